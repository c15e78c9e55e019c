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
	a, raw, err := e.prepare(path)
	if err != nil {
		return nil, err
	}
	return []contestant{
		{Name: ours, Once: true, Measure: a.ours.attaching(a.attaching(path))},
		{Name: byRawLink, Once: true, Measure: a.raw.attaching(raw.attaching(a.programs["add3"]))},
		e.attachByLibbpf(path, a.other, len(raw.offsets)),
	}, nil
}

// prepare returns what attaches to all sites of a file, and the sites as the
// kernel wants them.
func (e *env) prepare(path string) (*attacher, *rawSites, error) {
	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, nil, err
	}
	raw, err := prepareRaw(path)
	return a, raw, err
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
	primed := &primer{other: func() (func() error, error) {
		_, err := attach(other)
		return nil, err // it is closed with the rest
	}}
	c := contestant{Name: byLibbpf, Once: true, Measure: func(int) (spent float64, err error) {
		_, _, err = primed.measure(func() (func() error, error) {
			// The time that libbpf takes is without that of asking it.
			spent, err = attach(path)
			return func() error {
				_, err := p.Ask("close")
				return err
			}, err
		})
		return spent, err
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

func jvmRows() []row {
	return []row{
		{
			name:   "jvm/attach",
			title:  "attach one program to all probes of libjvm",
			rounds: 20,
			prepare: func(e *env) ([]contestant, error) {
				return e.jvm((*primer).attaching)
			},
		},
		{
			name:   "jvm/close",
			title:  "close that: one link",
			rounds: 20,
			goals: []goal{{Text: "close one program attached to all probes of libjvm",
				Of: ours, Than: byRawLink, Times: 1.5}},
			prepare: func(e *env) ([]contestant, error) {
				return e.jvm((*primer).detaching)
			},
		},
		{
			name:   "jvm/specs",
			title:  "spec IDs for all probes of libjvm (the default map has 256)",
			unit:   inCount,
			rounds: 1,
			goals:  []goal{{Of: ours, More: 130}},
			prepare: func(e *env) ([]contestant, error) {
				path, err := libjvm()
				if err != nil {
					return nil, err
				}
				// There is room for one: the error says how many are needed.
				t, err := e.tracer(ownObject, usdt.ManagerOptions{MaxSpecs: 1}, 0)
				if err != nil {
					return nil, err
				}
				return []contestant{{Name: ours, Once: true, Measure: func(int) (float64, error) {
					_, err := t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil)
					var full *usdt.LimitError
					if !errors.As(err, &full) {
						return 0, fmt.Errorf("attaching with room for one spec: got error %v", err)
					}
					return float64(full.Needed), nil
				}}}, nil
			},
		},
	}
}

// jvm returns who attaches to all probes of libjvm by one link. measure is a
// method of a primer.
func (e *env) jvm(
	measure func(*primer, attachFunc) func(int) (float64, error),
) ([]contestant, error) {
	path, err := libjvm()
	if err != nil {
		return nil, err
	}
	a, raw, err := e.prepare(path)
	if err != nil {
		return nil, err
	}
	return []contestant{
		{Name: ours, Once: true, Measure: measure(a.ours, a.attaching(path))},
		{Name: byRawLink, Once: true, Measure: measure(a.raw, raw.attaching(a.programs["add3"]))},
	}, nil
}

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

// attachFunc attaches something and returns how to undo it.
type attachFunc func() (undo func() error, err error)

// A primer measures how long it takes to attach and to detach, just after
// something else was attached in the same way. The first attachment after a
// while waits for 8 ms in the kernel and finds all caches cold: it would hide
// all else.
type primer struct {
	other attachFunc // its undo may be nil
}

// prime attaches the other twice, and returns how to undo that. The first time
// mostly waits, and while the processor rests its caches become cold again. The
// second time warms them.
func (p *primer) prime() (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		errs := make([]error, len(undos))
		var wait sync.WaitGroup
		for i, undo := range undos {
			wait.Go(func() { errs[i] = undo() })
		}
		wait.Wait()
		return errors.Join(errs...)
	}
	for range 2 {
		undoOther, err := p.other()
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		if undoOther != nil {
			undos = append(undos, undoOther)
		}
	}
	return undo, nil
}

// measure takes the times of attach and of what it returns.
func (p *primer) measure(attach attachFunc) (attached, detached float64, err error) {
	undoOther, err := p.prime()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	undo, err := attach()
	attached = since(start)

	// It would take as long to detach the other before or after.
	other := make(chan error, 1)
	go func() { other <- undoOther() }()
	if err == nil {
		start = time.Now()
		err = undo()
		detached = since(start)
	}
	if otherErr := <-other; err == nil {
		err = otherErr
	}
	return attached, detached, err
}

// attaching makes a contestant's Measure of the first of the two times,
// detaching of the second.
func (p *primer) attaching(attach attachFunc) func(int) (float64, error) {
	return func(int) (float64, error) {
		attached, _, err := p.measure(attach)
		return attached, err
	}
}

func (p *primer) detaching(attach attachFunc) func(int) (float64, error) {
	return func(int) (float64, error) {
		_, detached, err := p.measure(attach)
		return detached, err
	}
}

// attacher is a tracer with primers for its own way to attach and for raw
// links.
type attacher struct {
	*tracer
	ours, raw *primer
	other     string // the file that primers attach to, all probes of it
}

func (e *env) attacher(opts usdt.ManagerOptions) (*attacher, error) {
	t, err := e.tracer(ownObject, opts, 0)
	if err != nil {
		return nil, err
	}
	if t.Mode() != usdt.ModeMulti {
		return nil, &notHereError{reason: "the kernel has no uprobe_multi links (Linux 6.6)"}
	}
	other, err := e.synthetic(syntheticFile{Sites: 10})
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(other)
	if err != nil {
		return nil, err
	}
	return &attacher{
		tracer: t,
		ours:   &primer{other: t.attaching(other)},
		raw:    &primer{other: raw.attaching(t.programs["add3"])},
		other:  other,
	}, nil
}
