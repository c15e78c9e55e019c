// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	tracefs = "/sys/kernel/tracing"
	// traceGroup is the first part of the names of our events there, which are
	// for the whole machine.
	traceGroup = "gousdt_bench"
)

// privateMounts marks the process that has a mount namespace of its own.
const privateMounts = "GOUSDT_BENCH_PRIVATE_MOUNTS"

// withTracefs runs this program again, with tracefs mounted in a mount
// namespace of its own, if it is not mounted: sites share perf events by it. It
// reports whether it did.
func withTracefs() (again bool, err error) {
	if os.Getenv(privateMounts) != "" {
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return false, fmt.Errorf("making mounts private: %w", err)
		}
		_ = unix.Mount("none", tracefs, "tracefs", 0, "") // tracefsMissing says so
		return false, nil
	}
	if tracefsMissing() == nil {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), privateMounts+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return true, cmd.Run()
}

// tracefsMissing says so where the machine has no tracefs mounted.
func tracefsMissing() error {
	if _, err := os.Stat(filepath.Join(tracefs, "uprobe_events")); err != nil {
		return &unableError{fmt.Sprintf("no tracefs is mounted: %v", err)}
	}
	return nil
}

// openGroup makes one event of all sites, by name in tracefs, and one perf
// event of that, with the program. So it is closed by one wait. All sites have
// one cookie then, and the name outlives a process that is killed: a library
// cannot do it in general.
func (s *rawSites) openGroup(prog *ebpf.Program) (close func() error, err error) {
	name := fmt.Sprintf("%s/sites_%d", traceGroup, os.Getpid())
	var definition strings.Builder
	for _, offset := range s.offsets {
		fmt.Fprintf(&definition, "p:%s %s:%#x\n", name, unix.BytePtrToString(s.path), offset)
	}
	if err := writeTracefs(definition.String()); err != nil {
		return nil, err
	}
	remove := func() error { return writeTracefs("-:" + name + "\n") }
	text, err := os.ReadFile(filepath.Join(tracefs, "events", name, "id"))
	if err != nil {
		remove()
		return nil, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		remove()
		return nil, err
	}
	fd, err := openEvent(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER1, Config: id,
	}, prog)
	if err != nil {
		remove()
		return nil, err
	}
	return func() error {
		if err := unix.Close(fd); err != nil {
			return err
		}
		return remove()
	}, nil
}

func writeTracefs(line string) error {
	// To truncate the file would remove the events of everybody.
	events, err := os.OpenFile(filepath.Join(tracefs, "uprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer events.Close()
	_, err = events.WriteString(line)
	return err
}
