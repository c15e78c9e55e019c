// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/uprobeevent"
)

// leaveLinks has another process close the links and perf events of this one.
// The kernel takes a tenth of a second for each perf event, and waits for what
// other tools do, for which a process that ends would keep its shell waiting.
// The other process is this program once more.
//
// Events that are defined in tracefs are not among them: they are few, and the
// next tracer takes them for unused once this process has ended.
func leaveLinks() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	shared := uprobeevent.Descriptors()
	heir := exec.Command("/proc/self/exe", holdLinks)
	// So that no signal of the terminal is for it.
	heir.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || slices.Contains(shared, fd) {
			continue
		}
		if !isLink(fd) {
			continue
		}
		// Another goroutine may be closing it, and the number be another
		// file's.
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break // what is left is closed here
		}
		if !isLink(copied) {
			unix.Close(copied)
			continue
		}
		heir.ExtraFiles = append(heir.ExtraFiles, os.NewFile(uintptr(copied), "link"))
	}
	if len(heir.ExtraFiles) > 0 {
		_ = heir.Start() // or they are closed here
	}
}

// holdUntilAlone returns when the process that has started this one has ended.
// What it had open is then closed when this process ends.
func holdUntilAlone() {
	for parent := os.Getppid(); os.Getppid() == parent && parent != 1; {
		time.Sleep(10 * time.Millisecond)
	}
}

// isLink reports whether a descriptor is of a BPF link or a perf event.
func isLink(fd int) bool {
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return false
	}
	switch target {
	case "anon_inode:[perf_event]", "anon_inode:bpf_link", "anon_inode:bpf-link",
		"anon_inode:[bpf_link]":
		return true
	}
	return false
}
