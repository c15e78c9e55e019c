// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

const provider = "gousdt_test"

// modes are all ways to attach. Each is forced on every kernel that has it.
var modes = []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle, usdt.ModeSingleIPMap}

// since has the first version of Linux with a mode.
var since = map[usdt.Mode]string{
	usdt.ModeMulti: "6.6", usdt.ModeSingle: "5.15", usdt.ModeSingleIPMap: "4.17",
}

// forEachMode runs a test in every mode that this kernel has.
func forEachMode(t *testing.T, test func(t *testing.T, mode usdt.Mode)) { forEach(t, modes, test) }

func forEach(t *testing.T, modes []usdt.Mode, test func(t *testing.T, mode usdt.Mode)) {
	testprog.RequireBPF(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			needsMode(t, mode)
			test(t, mode)
		})
	}
}

// needsMode skips a test on kernels that do not have a mode.
func needsMode(t *testing.T, mode usdt.Mode) {
	t.Helper()
	_, err := mode.Resolve()
	testneeds.Feature(t, since[mode], mode.String(), err)
}

// A collector is a Manager with the programs that report every hit.
type collector struct {
	*usdt.Manager
	spec *ebpf.CollectionSpec
	testbpf.ArgsObjects
	events *ringbuf.Reader
}

func newCollector(t *testing.T, opts *usdt.ManagerOptions) *collector {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	c := &collector{spec: spec}
	c.Manager, err = usdt.NewManager(spec, opts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(c.Manager.Close())) })
	load(t, spec, &c.ArgsObjects, c.CollectionOptions())
	t.Cleanup(func() {
		c.ArgsObjects.Close()
		// The memory of its maps is freed when nothing refers to it.
		c.ArgsObjects = testbpf.ArgsObjects{}
	})
	c.events, err = ringbuf.NewReader(c.Events)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { c.events.Close() })
	return c
}

func load(t *testing.T, spec *ebpf.CollectionSpec, objects any, opts *ebpf.CollectionOptions) {
	t.Helper()
	err := spec.LoadAndAssign(objects, opts)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	qt.Assert(t, qt.IsNil(err))
}

// attach attaches the collector's program and closes the link at the end of the
// test.
func (c *collector) attach(t *testing.T, prog *ebpf.Program, target usdt.Target, name string,
	opts *usdt.AttachOptions) *usdt.Link {
	t.Helper()
	lnk, err := c.Manager.Attach(prog, target, opts, elfnote.Exact(provider, name))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(lnk.PerfEvents() == 0, c.Mode() == usdt.ModeMulti))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(lnk.Close())) })
	return lnk
}

// A watchProgram is a program that a watch attaches, and a watchAttachment what
// it has attached: the process is the zero value for every process.
type (
	watchProgram struct {
		Program    *ebpf.Program
		Patterns   []elfnote.Pattern
		OptionsFor func(*proc.ProcessFile) usdt.AttachOptions
	}
	watchAttachment struct {
		Link    *usdt.Link
		program *ebpf.Program
		proc.ProcessFile
	}
)

// watched is a watch that knows what it has attached.
type watched struct {
	*watch.Watch
	mu  sync.Mutex
	all map[*watchAttachment]bool
}

// Attachments returns what is attached now, in no order.
func (w *watched) Attachments() []*watchAttachment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.all))
}

// watchPrograms is a watch of a Manager's programs.
func watchPrograms(mgr *usdt.Manager, opts *watch.Options,
	changed func(*watch.Changes[*watchAttachment]), programs ...watchProgram) (*watched, error) {
	w := &watched{all: make(map[*watchAttachment]bool)}
	var parts []watch.Part[*watchAttachment]
	for _, p := range programs {
		of := watch.Program(mgr, p.Program, p.Patterns...)
		parts = append(parts, watch.Part[*watchAttachment]{
			Patterns: of.Patterns, OptionsFor: p.OptionsFor, Name: of.Name, Begin: of.Begin,
			Attach: func(found *proc.ProcessFile, sel *usdt.Selection, opts *usdt.AttachOptions,
			) (*watchAttachment, error) {
				lnk, err := of.Attach(found, sel, opts)
				if err != nil {
					return nil, err
				}
				a := &watchAttachment{lnk, p.Program, *found}
				if sel.PID() == 0 {
					a.Process = proc.Process{}
				}
				return a, nil
			},
			Detach: func(all []*watchAttachment) error {
				var links []*usdt.Link
				for _, a := range all {
					links = append(links, a.Link)
				}
				return of.Detach(links)
			},
			Descriptors: func(a *watchAttachment) int { return of.Descriptors(a.Link) },
		})
	}
	var err error
	w.Watch, err = watch.New(opts, func(c *watch.Changes[*watchAttachment]) {
		w.mu.Lock()
		for _, a := range c.Attached {
			w.all[a] = true
		}
		for _, a := range c.Detached {
			delete(w.all, a)
		}
		w.mu.Unlock()
		if changed != nil {
			changed(c)
		}
	}, parts...)
	return w, err
}

// Watch is a watch of the collector's Manager.
func (c *collector) Watch(opts *watch.Options, changed func(*watch.Changes[*watchAttachment]),
	programs ...watchProgram) (*watched, error) {
	return watchPrograms(c.Manager, opts, changed, programs...)
}

// unavailable counts the arguments of a link's sites that cannot be fetched.
func unavailable(lnk *usdt.Link) int {
	n := 0
	for _, site := range lnk.Selection().Sites() {
		for _, arg := range site.Args {
			if arg.Err != nil {
				n++
			}
		}
	}
	return n
}

// next returns the next n events. A hit is reported before the traced program
// goes on, so all events have come already.
func (c *collector) next(t *testing.T, n int) []testbpf.ArgsEvent {
	t.Helper()
	events := make([]testbpf.ArgsEvent, n)
	for i := range events {
		c.events.SetDeadline(time.Now().Add(testneeds.Patience(10 * time.Second)))
		record, err := c.events.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d events came, not %d", i, n)
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
			&events[i])))
	}
	return events
}

// silent asserts that no further event has come.
func (c *collector) silent(t *testing.T) {
	t.Helper()
	// A deadline in the past: only events that are there are read.
	c.events.SetDeadline(time.Unix(1, 0))
	_, err := c.events.Read()
	qt.Assert(t, qt.ErrorIs(err, os.ErrDeadlineExceeded),
		qt.Commentf("an event that should not be"))
}

func readMemory(t *testing.T, pid int, address uint64, buf []byte) {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	_, err = memory.ReadAt(buf, int64(address))
	qt.Assert(t, qt.IsNil(err))
}
