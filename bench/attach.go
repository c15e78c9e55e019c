// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

const (
	byRawLink = "raw link"
	byLibbpf  = "libbpf"
)

// attachedSpecs bounds how many specs the sites of a synthetic file share.
const attachedSpecs = 100

// specsFor returns how many specs the sites of a probe have: more than most
// real ones, which have one.
func specsFor(sites int) int { return max(1, min(attachedSpecs, sites/10)) }

func attachRows() []row {
	attach := func(name, title string, file syntheticFile, times float64) row {
		file.Specs = specsFor(file.Sites)
		return row{
			name:    "attach/" + name,
			title:   title,
			rounds:  25,
			goals:   []goal{{Of: ours, Than: byRawLink, Times: times}},
			prepare: func(e *env) ([]contestant, error) { return e.attachers(file) },
		}
	}
	return []row{
		attach("1", "attach 1 site", syntheticFile{Sites: 1}, 4),
		attach("100", "attach 100 sites", syntheticFile{Sites: 100}, 2.5),
		attach("1000", "attach 1,000 sites", syntheticFile{Sites: 1000}, 1.8),
		attach("10000", "attach 10,000 sites", syntheticFile{Sites: 10_000}, 1.4),
	}
}

// attachers returns who attaches a program to all sites of the first probe of a
// file.
func (e *env) attachers(file syntheticFile) ([]contestant, error) {
	path, err := e.synthetic(file)
	if err != nil {
		return nil, err
	}
	other, err := e.synthetic(syntheticFile{Sites: 10})
	if err != nil {
		return nil, err
	}
	t, err := e.tracer(ownObject, usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(path)
	if err != nil {
		return nil, err
	}
	rawOther, err := prepareRaw(other)
	if err != nil {
		return nil, err
	}
	program := t.programs["add3"]
	timed := func(attach, other attachFunc) func(int) (float64, error) {
		return func(int) (float64, error) {
			return primed(other, func() (spent float64, undo func() error, err error) {
				start := time.Now()
				undo, err = attach()
				return since(start), undo, err
			})
		}
	}
	return []contestant{
		{Name: ours, Once: true, Measure: timed(t.attaching(path), t.attaching(other))},
		{Name: byRawLink, Once: true,
			Measure: timed(raw.attaching(program), rawOther.attaching(program))},
		e.attachByLibbpf(path, other, len(raw.offsets)),
	}, nil
}

// Attaching by perf events is fast, but it takes a tenth of a second for each
// to detach.
const (
	maxPerfSites  = 100
	manyPerfSites = 10
)

// attachByLibbpf attaches to the first probe of a file, primed by that of
// another one.
func (e *env) attachByLibbpf(path, other string, sites int) contestant {
	p, mode, err := e.libbpf()
	if err != nil {
		return missing(byLibbpf, err)
	}
	attach := func(path string) (float64, error) {
		return p.Number("attach", "add3", path, syntheticProvider, syntheticProbe(0))
	}
	attachOther := func() (func() error, error) {
		_, err := attach(other)
		return func() error { return nil }, err // it is closed with the rest
	}
	c := contestant{Name: byLibbpf, Once: true, Measure: func(int) (float64, error) {
		return primed(attachOther, func() (float64, func() error, error) {
			// The time that libbpf takes is without that of asking it.
			spent, err := attach(path)
			return spent, func() error {
				_, err := p.Ask("close")
				return err
			}, err
		})
	}}
	if mode == modePerf {
		// A few rounds, each of which takes a second or more to detach.
		c.MaxRounds = 3
		if sites > manyPerfSites {
			c.MaxRounds = 1
			if sites > maxPerfSites || e.scale != full {
				c.Missing = &unableError{fmt.Sprintf("would take minutes to detach %d perf events",
					sites)}
			}
		}
	}
	return c
}

// rawSites are sites prepared for the kernel: attaching them by system calls
// alone is what no library can beat.
type rawSites struct {
	path    *byte
	offsets []uint64
	cookies []uint64
}

// prepareRaw finds the sites of a file.
func prepareRaw(path string) (*rawSites, error) {
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
		offsets = append(offsets, site.Offset)
	}
	p, err := unix.BytePtrFromString(path)
	return &rawSites{path: p, offsets: offsets, cookies: make([]uint64, len(offsets))}, err
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
		return func() error { return unix.Close(fd) }, err
	}
}

// closeTogether closes descriptors, all at a time.
func closeTogether(fds []int) error {
	errs := make([]error, len(fds))
	var wait sync.WaitGroup
	for i, fd := range fds {
		wait.Go(func() { errs[i] = unix.Close(fd) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// attachFunc attaches something and returns how to undo it.
type attachFunc func() (undo func() error, err error)

// primed measures attaching just after something else was attached in the same
// way, twice. The first attachment after a while waits for 8 ms in the kernel
// and finds all caches cold, which would hide all else. While it waits the
// processor rests and its caches become cold again. The second warms them.
func primed(
	other attachFunc, attach func() (spent float64, undo func() error, err error),
) (spent float64, err error) {
	var undos []func() error
	for range 2 {
		undo, failed := other()
		if err = failed; err != nil {
			break
		}
		undos = append(undos, undo)
	}
	if err == nil {
		var undo func() error
		if spent, undo, err = attach(); err == nil {
			undos = append(undos, undo)
		}
	}
	// Together, as each waits for the kernel.
	errs := make([]error, len(undos))
	var wait sync.WaitGroup
	for i, undo := range undos {
		wait.Go(func() { errs[i] = undo() })
	}
	wait.Wait()
	return spent, errors.Join(append(errs, err)...)
}
