// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// FUSE is a mounted file system that this process serves, in one folder without
// others in it. It answers until Stop is called: a file system of somebody else
// may stop at any moment.
type FUSE struct {
	// Dir is where it is mounted.
	Dir string

	files   []fuseFile
	device  int
	ended   chan struct{}
	mu      sync.Mutex
	waiting *sync.Cond
	stopped map[uint32]bool // kinds of requests that get no answer
	waits   map[uint32]int  // how many of them wait
	closing bool
}

type fuseFile struct {
	name     string
	contents []byte
}

// What a FUSE server can be asked for (linux/fuse.h).
const (
	FUSELookup  = 1
	FUSEGetattr = 3
	FUSEOpen    = 14
	FUSERead    = 15
	FUSEFlush   = 25

	fuseForget, fuseRelease, fuseInit, fuseBatchForget, fuseInterrupt = 2, 18, 26, 42, 36
)

// MountFUSE mounts files by their names, everybody may execute them. The end of
// the test unmounts it, whatever it does not answer then.
func MountFUSE(t testing.TB, files map[string][]byte) *FUSE {
	t.Helper()
	testneeds.Root(t)
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		testneeds.Missing(t, "needs a kernel with FUSE: %v",
			os.NewSyscallError("open /dev/fuse", err))
	}
	f := &FUSE{Dir: t.TempDir(), device: device, ended: make(chan struct{}),
		stopped: make(map[uint32]bool), waits: make(map[uint32]int)}
	f.waiting = sync.NewCond(&f.mu)
	for name, contents := range files {
		f.files = append(f.files, fuseFile{name, contents})
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device)
	if err := unix.Mount("gousdt-test", f.Dir, "fuse.gousdt", unix.MS_NOSUID|unix.MS_NODEV,
		options); err != nil {
		unix.Close(device)
		testneeds.Missing(t, "needs a kernel with FUSE: %v", os.NewSyscallError("mount", err))
	}
	go f.serve()
	t.Cleanup(func() {
		f.mu.Lock()
		f.closing = true
		f.mu.Unlock()
		f.Resume()
		// By force: what still uses it, such as a process that is just being
		// killed, gets errors.
		if err := unix.Unmount(f.Dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", f.Dir, err)
			return
		}
		<-f.ended
		unix.Close(device)
	})
	return f
}

// Stop has requests of these kinds get no answer, until Resume.
func (f *FUSE) Stop(kinds ...uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range kinds {
		f.stopped[kind] = true
	}
}

// Resume answers everything.
func (f *FUSE) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.stopped)
	f.waiting.Broadcast()
}

// AwaitStopped returns when a request of a kind waits for an answer.
func (f *FUSE) AwaitStopped(kind uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.waits[kind] == 0 {
		f.waiting.Wait()
	}
}

func (f *FUSE) serve() {
	defer close(f.ended)
	var answering sync.WaitGroup
	defer answering.Wait()
	buffer := make([]byte, 1<<17)
	for {
		n, err := unix.Read(f.device, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return // unmounted
		}
		request := slices.Clone(buffer[:n])
		kind := binary.NativeEndian.Uint32(request[4:])
		f.mu.Lock()
		stopped := f.stopped[kind]
		f.mu.Unlock()
		if !stopped {
			f.answer(kind, request)
			continue
		}
		answering.Go(func() {
			f.mu.Lock()
			f.waits[kind]++
			f.waiting.Broadcast()
			for f.stopped[kind] && !f.closing {
				f.waiting.Wait()
			}
			f.waits[kind]--
			f.mu.Unlock()
			f.answer(kind, request)
		})
	}
}

const fuseHeader = 40 // struct fuse_in_header

// answer answers one request: the numbers are offsets in the structures of
// linux/fuse.h.
func (f *FUSE) answer(kind uint32, request []byte) {
	order := binary.NativeEndian
	node := order.Uint64(request[16:])
	body := request[fuseHeader:]
	var data []byte
	errno := unix.Errno(0)
	switch kind {
	case fuseForget, fuseBatchForget, fuseInterrupt:
		return
	case fuseInit:
		data = make([]byte, 64)
		order.PutUint32(data[0:], 7)
		order.PutUint32(data[4:], min(31, order.Uint32(body[4:])))
		order.PutUint32(data[20:], 1<<16) // max_write
	case FUSELookup:
		name := string(body[:len(body)-1])
		n := slices.IndexFunc(f.files, func(file fuseFile) bool { return file.name == name })
		if n < 0 {
			errno = unix.ENOENT
			break
		}
		data = make([]byte, 40+88)
		order.PutUint64(data, uint64(n+2))
		f.attributes(data[40:], uint64(n+2))
	case FUSEGetattr:
		data = make([]byte, 16+88)
		f.attributes(data[16:], node)
	case FUSEOpen:
		data = make([]byte, 16)
	case FUSERead:
		offset, size := order.Uint64(body[8:]), uint64(order.Uint32(body[16:]))
		contents := f.contents(node)
		offset = min(offset, uint64(len(contents)))
		data = contents[offset:min(offset+size, uint64(len(contents)))]
	case fuseRelease, FUSEFlush:
	default:
		errno = unix.ENOSYS
	}
	answer := make([]byte, 16, 16+len(data))
	order.PutUint32(answer[0:], uint32(16+len(data)))
	order.PutUint32(answer[4:], uint32(-int32(errno)))
	copy(answer[8:], request[8:16])
	// It fails for a request that has been interrupted.
	_, _ = unix.Write(f.device, append(answer, data...))
}

func (f *FUSE) contents(node uint64) []byte {
	if node < 2 || node-2 >= uint64(len(f.files)) {
		return nil
	}
	return f.files[node-2].contents
}

// attributes fills in struct fuse_attr.
func (f *FUSE) attributes(attr []byte, node uint64) {
	order := binary.NativeEndian
	mode, links := uint32(unix.S_IFDIR|0o755), uint32(2)
	if node >= 2 {
		mode, links = unix.S_IFREG|0o755, 1
	}
	order.PutUint64(attr[0:], node)
	order.PutUint64(attr[8:], uint64(len(f.contents(node))))
	order.PutUint32(attr[60:], mode)
	order.PutUint32(attr[64:], links)
}
