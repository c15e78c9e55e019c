// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
)

// rawSites are sites prepared for the kernel: attaching them by system calls
// alone is what no library can beat.
type rawSites struct {
	path    *byte
	offsets []uint64
	cookies []uint64
}

func newRawSites(path string, offsets []uint64) (*rawSites, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	return &rawSites{path: p, offsets: offsets, cookies: make([]uint64, len(offsets))}, nil
}

// prepareRaw finds the sites of the probes that match.
func prepareRaw(path string, patterns ...elfnote.Pattern) (*rawSites, error) {
	f, err := elfnote.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var offsets []uint64
	for site, err := range f.Sites() {
		if err != nil {
			return nil, err
		}
		if elfnote.MatchAny(patterns, site.Provider, site.Name) {
			offsets = append(offsets, site.Offset)
		}
	}
	return newRawSites(path, offsets)
}

// linkMulti makes a uprobe_multi link and returns its descriptor.
func (s *rawSites) linkMulti(prog *ebpf.Program) (int, error) {
	// BPF_LINK_CREATE of bpf(2).
	attributes := struct {
		program, target, attachType, flags uint32
		path, offsets, semaphores, cookies unsafe.Pointer
		count, multiFlags, pid, _          uint32
	}{
		program: uint32(prog.FD()), attachType: uint32(ebpf.AttachTraceUprobeMulti),
		path: unsafe.Pointer(s.path), offsets: unsafe.Pointer(unsafe.SliceData(s.offsets)),
		cookies: unsafe.Pointer(unsafe.SliceData(s.cookies)), count: uint32(len(s.offsets)),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE,
		uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	runtime.KeepAlive(s)
	if errno != 0 {
		return -1, fmt.Errorf("raw uprobe_multi link: %w", errno)
	}
	return int(fd), nil
}

// attaching returns what makes a uprobe_multi link.
func (s *rawSites) attaching(prog *ebpf.Program) attachFunc {
	return func() (func() error, error) {
		fd, err := s.linkMulti(prog)
		return func() error { return closeTogether([]int{fd}, 1) }, err
	}
}

// rawLinks returns what makes several links, and closes them together.
func rawLinks(prog *ebpf.Program, sites []*rawSites) attachFunc {
	return func() (func() error, error) {
		var fds []int
		for _, s := range sites {
			fd, err := s.linkMulti(prog)
			if err != nil {
				return nil, errors.Join(err, closeTogether(fds, len(sites)))
			}
			fds = append(fds, fd)
		}
		return func() error { return closeTogether(fds, len(fds)) }, nil
	}
}

// openEvents makes a perf event with the program for each site and returns the
// descriptors.
func (s *rawSites) openEvents(prog *ebpf.Program) ([]int, error) {
	text, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		return nil, err
	}
	pmu, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, offset := range s.offsets {
		fd, err := openEvent(&unix.PerfEventAttr{
			Type: uint32(pmu), Size: unix.PERF_ATTR_SIZE_VER1,
			Ext1: uint64(uintptr(unsafe.Pointer(s.path))), Ext2: offset,
		}, prog)
		if err != nil {
			closeTogether(fds, 1)
			return nil, err
		}
		fds = append(fds, fd)
	}
	runtime.KeepAlive(s)
	return fds, nil
}

// openEvent makes a perf event for every process, with a program.
func openEvent(attributes *unix.PerfEventAttr, prog *ebpf.Program) (int, error) {
	fd, err := unix.PerfEventOpen(attributes, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("raw perf event: %w", err)
	}
	for _, request := range []struct{ number, value int }{
		{unix.PERF_EVENT_IOC_SET_BPF, prog.FD()}, {unix.PERF_EVENT_IOC_ENABLE, 0},
	} {
		if err := unix.IoctlSetInt(fd, uint(request.number), request.value); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("raw perf event: %w", err)
		}
	}
	return fd, nil
}

// closeTogether closes descriptors, so many at a time.
func closeTogether(fds []int, atATime int) error {
	errs := make([]error, len(fds))
	room := make(chan struct{}, atATime)
	var wait sync.WaitGroup
	for i, fd := range fds {
		room <- struct{}{}
		wait.Go(func() {
			errs[i] = unix.Close(fd)
			<-room
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
