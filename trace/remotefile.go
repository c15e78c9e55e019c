// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// remoteFileSystems are those whose pages come from a server or a process,
// which may never answer, by what statfs says of them.
var remoteFileSystems = map[uint32]string{
	0x65735546: "FUSE",
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
}

// maxStatfs is how long a file system has to say what it is. Local ones answer
// at once; a remote one may ask its server.
const maxStatfs = time.Second

// checkLocal returns an error if a page of the file may have to come from a
// server. A program that waits for such a page holds back whoever detaches BPF
// programs on this host, see SessionOptions.PageIn.
func checkLocal(file *os.File) error {
	if file == nil {
		return errors.New("PageIn: the file system of the file is not known: set SessionOptions.PageInRemote if its pages come at once")
	}
	number, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("PageIn: asking for the file system: %w",
			os.NewSyscallError("fcntl", err))
	}
	type answer struct {
		kind uint32
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		defer unix.Close(number)
		var stat unix.Statfs_t
		err := unix.Fstatfs(number, &stat)
		answers <- answer{uint32(stat.Type), err}
	}()
	timer := time.NewTimer(maxStatfs)
	defer timer.Stop()
	select {
	case a := <-answers:
		if a.err != nil {
			return fmt.Errorf("PageIn: asking for the file system: %w",
				os.NewSyscallError("fstatfs", a.err))
		}
		if name := remoteFileSystems[a.kind]; name != "" {
			return errRemote("the file is on " + name)
		}
		return nil
	case <-timer.C:
		return errRemote(fmt.Sprintf("the file's file system has not said within %v what it is",
			maxStatfs))
	}
}

func errRemote(why string) error {
	return fmt.Errorf("PageIn: %s: a page that does not come would hold back everything on this host that detaches "+
		"BPF programs: leave SessionOptions.PageIn out, or set PageInRemote", why)
}
