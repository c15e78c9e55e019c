// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
)

const (
	byRawLink = "raw link"
	byLibbpf  = "libbpf"
)

func attachRows() []row {
	attach := func(sites int, times float64) row {
		// More than most real probes have, which have one.
		file := syntheticFile{Sites: sites, Specs: max(1, min(100, sites/10))}
		return row{
			name:    fmt.Sprintf("attach/%d", sites),
			title:   fmt.Sprintf("attach to the sites of a probe: %d", sites),
			rounds:  25,
			goals:   []goal{{Of: ours, Than: byHand, Times: times}},
			prepare: func(e *env) ([]contestant, error) { return e.attachers(file) },
		}
	}
	return []row{attach(1, 2), attach(100, 2), attach(10_000, 1.3)}
}

// attachers returns the contestants that attach a program to all sites of the
// first probe of a file.
func (e *env) attachers(file syntheticFile) ([]contestant, error) {
	path, err := e.synthetic(file)
	if err != nil {
		return nil, err
	}
	other, err := e.synthetic(syntheticFile{Sites: 10})
	if err != nil {
		return nil, err
	}
	a, err := e.attachersTo(path, other)
	if err != nil {
		return nil, err
	}
	return []contestant{
		once(ours, func() (float64, error) { return a.ours.primed(other, path) }),
		once(byRawLink, func() (float64, error) { return a.raw.primed(other, path) }),
		e.attachByHand(a.program, path, other),
		e.attachByLibbpf(path, other),
	}, nil
}

// attachers attach a program to all sites of a file.
type attachers struct {
	program   *ebpf.Program
	ours, raw attacher // by raw links: what no library can beat
}

type attacher func(path string) (io.Closer, error)

// attachersTo prepares some files for raw links.
func (e *env) attachersTo(paths ...string) (*attachers, error) {
	t, err := e.tracer()
	if err != nil {
		return nil, err
	}
	raw := make(map[string]*rawSites)
	for _, path := range paths {
		if raw[path] == nil {
			if raw[path], err = prepareRaw(path); err != nil {
				return nil, err
			}
		}
	}
	program := t.programs["add3"]
	return &attachers{
		program: program,
		ours: func(path string) (io.Closer, error) {
			return t.Attach(program, usdt.Target{Path: path}, nil)
		},
		raw: func(path string) (io.Closer, error) { return raw[path].attach(program) },
	}, nil
}

// all attaches to files, and returns how long that takes.
func (attach attacher) all(paths []string) (spent float64, attached io.Closer, err error) {
	var all []io.Closer
	spent, err = timed(func() error {
		for _, path := range paths {
			c, err := attach(path)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		return 0, nil, errors.Join(err, sys.CloseTogether(all))
	}
	return spent, closer(func() error { return sys.CloseTogether(all) }), nil
}

// primed returns how long attaching to files takes after another one.
func (attach attacher) primed(other string, paths ...string) (float64, error) {
	return primed(func() (io.Closer, error) { return attach(other) },
		func() (float64, io.Closer, error) { return attach.all(paths) })
}

// attachByHand attaches the same program to the first probe of a file. It does
// what primed does itself.
func (e *env) attachByHand(program *ebpf.Program, path, other string) contestant {
	p, err := e.start("byhand")
	if err != nil {
		return missing(byHand, err)
	}
	info, err := program.Info()
	if err != nil {
		return missing(byHand, err)
	}
	id, _ := info.ID()
	return once(byHand, func() (float64, error) {
		spent, err := p.Number("attach", id, other, path, syntheticProvider, syntheticProbe(0))
		_, closeErr := p.Ask("close")
		return spent, errors.Join(err, closeErr)
	})
}

// attachByLibbpf attaches to the first probe of a file, primed by that of
// another one.
func (e *env) attachByLibbpf(path, other string) contestant {
	p, err := e.libbpf()
	if err != nil {
		return missing(byLibbpf, err)
	}
	attach := func(path string) (float64, io.Closer, error) {
		// The time that libbpf takes is without that of asking it.
		spent, err := p.Number("attach", "add3", path, syntheticProvider, syntheticProbe(0))
		return spent, closer(func() error { // all that it has attached
			_, err := p.Ask("close")
			return err
		}), err
	}
	return once(byLibbpf, func() (float64, error) {
		return primed(func() (io.Closer, error) {
			_, _, err := attach(other)
			return io.NopCloser(nil), err // it is closed with the rest
		}, func() (float64, io.Closer, error) { return attach(path) })
	})
}

// closer closes by a function.
type closer func() error

func (c closer) Close() error { return c() }

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

// attach makes a uprobe_multi link.
func (s *rawSites) attach(prog *ebpf.Program) (io.Closer, error) {
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
		return nil, fmt.Errorf("raw uprobe_multi link: %w", errno)
	}
	return closer(func() error { return unix.Close(int(fd)) }), nil
}

// primed returns how long attaching takes just after something else was
// attached in the same way, twice. The first attachment after a while waits for
// 8 ms in the kernel and finds all caches cold, which would hide all else.
// While it waits the processor rests and its caches become cold again. The
// second warms them.
func primed(
	other func() (io.Closer, error), attach func() (float64, io.Closer, error),
) (spent float64, err error) {
	var attached []io.Closer
	for i := 0; i < 3 && err == nil; i++ {
		var c io.Closer
		if i < 2 {
			c, err = other()
		} else {
			spent, c, err = attach()
		}
		if err == nil {
			attached = append(attached, c)
		}
	}
	// Together, as each waits for the kernel.
	return spent, errors.Join(sys.CloseTogether(attached), err)
}

const (
	// detachedLinks is how many attachments are closed together.
	detachedLinks = 100

	oursTogether = "gousdt, together"
	rawTogether  = "raw links, together"
)

func detachRows() []row {
	return []row{{
		name:    "detach/together",
		title:   fmt.Sprintf("close %d attachments (uprobe_multi links)", detachedLinks),
		rounds:  15,
		goals:   []goal{{Of: oursTogether, Than: rawTogether, Times: 1.5}},
		prepare: (*env).closeLinks,
	}}
}

func (e *env) closeLinks() ([]contestant, error) {
	count := e.pick(detachedLinks, detachedLinks, 3)
	path, err := e.synthetic(syntheticFile{Sites: count, Probes: count})
	if err != nil {
		return nil, err
	}
	t, err := e.tracer()
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(path)
	if err != nil {
		return nil, err
	}
	program := t.programs["add3"]
	// closed attaches to each probe, and returns how long closing takes.
	closed := func(attach func(i int) (io.Closer, error)) func() (float64, error) {
		return func() (float64, error) {
			var all []io.Closer
			for i := range count {
				c, err := attach(i)
				if err != nil {
					return 0, errors.Join(err, sys.CloseTogether(all))
				}
				all = append(all, c)
			}
			return timed(func() error { return sys.CloseTogether(all) })
		}
	}
	return []contestant{
		once(oursTogether, closed(func(i int) (io.Closer, error) {
			return t.Attach(program, usdt.Target{Path: path}, nil,
				elfnote.Exact(syntheticProvider, syntheticProbe(i)))
		})),
		once(rawTogether, closed(func(i int) (io.Closer, error) {
			one := &rawSites{path: raw.path, offsets: raw.offsets[i : i+1], cookies: raw.cookies[i : i+1]}
			return one.attach(program)
		})),
	}, nil
}
