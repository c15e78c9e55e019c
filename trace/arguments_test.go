// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// maxSingleSites bounds the probes that tests attach one by one: closing
// hundreds of single links takes the kernel minutes.
const maxSingleSites = 40

func TestArguments(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for _, program := range []string{"target-pie", "target-static", "target-shared"} {
			t.Run(program, func(t *testing.T) { checkAllValues(t, mode, program) })
		}
	})
}

func checkAllValues(t *testing.T, mode usdt.Mode, program string) {
	path, file := copyWithProbes(t, program)
	process := startFile(t, path)
	probes := testprog.Expected(machine(t, file))
	var patterns []elfnote.Pattern
	for _, p := range probes {
		if mode == usdt.ModeMulti || p.Sites <= maxSingleSites {
			patterns = append(patterns, elfnote.Exact(p.Provider, p.Name))
		}
	}
	sel, err := usdt.Select(usdt.Target{Path: file}, patterns...)
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	// One link in ModeMulti; a session for each probe would close forty of
	// them.
	s := newSession(t, &trace.SessionOptions{Mode: mode,
		Events: &trace.EventOptions{Captures: captureTexts(probes)}})
	_, err = s.Attach(usdt.Target{Selection: sel}, &usdt.AttachOptions{Cookie: 1<<64 - 1})
	qt.Assert(t, qt.IsNil(err))

	fired := make(map[string]bool)
	for _, p := range probes {
		if fired[p.Group] || mode != usdt.ModeMulti && p.Sites > maxSingleSites {
			continue
		}
		fired[p.Group] = true
		before := time.Now()
		process.Fire(p.Group, 1)
		after := time.Now()
		want := hitsOf(probes, p.Group)
		for i, event := range next(t, s, len(want)) {
			w := want[i]
			qt.Assert(t, qt.Equals(event.Probe, w.probe.Provider+":"+w.probe.Name))
			qt.Check(t, qt.Equals(event.PID, process.PID))
			qt.Check(t, qt.Equals(event.TID, process.PID))
			qt.Check(t, qt.Equals(event.Command, program[:min(len(program), 15)]))
			qt.Check(t, qt.Equals(event.Site.Cookie, uint64(1<<64-1)))
			qt.Check(t, qt.Equals(event.Site.File, file))
			// The clocks are compared once a second, and a clock may be slewed.
			const tolerance = 100 * time.Millisecond
			qt.Check(t, qt.IsTrue(event.Time.After(before.Add(-tolerance)) &&
				event.Time.Before(after.Add(tolerance))),
				qt.Commentf("%v is not between %v and %v", event.Time, before, after))
			checkArgs(t, event, w)
		}
	}
	silent(t, s)
}

type hit struct {
	probe testprog.Probe
	args  []testprog.Arg
}

// hitsOf returns all hits that firing a group makes. The probes of a group that
// has several are fired in the order of the table.
func hitsOf(probes []testprog.Probe, group string) []hit {
	var hits []hit
	for _, p := range probes {
		if p.Group != group {
			continue
		}
		for _, args := range p.Hits {
			hits = append(hits, hit{p, args})
		}
	}
	return hits
}

// captureTexts asks for all texts that the probes pass.
func captureTexts(probes []testprog.Probe) []trace.Capture {
	var captures []trace.Capture
	seen := make(map[string]bool)
	for _, p := range probes {
		for _, args := range p.Hits {
			for i, arg := range args {
				key := fmt.Sprint(p.Name, " ", i)
				if arg.Kind == testprog.Text && !seen[key] {
					seen[key] = true
					captures = append(captures, trace.Capture{
						Probes: []elfnote.Pattern{elfnote.Exact(p.Provider,
							p.Name)}, Arg: fmt.Sprintf("arg%d", i), Max: 1000,
					})
				}
			}
		}
	}
	return captures
}

func checkArgs(t *testing.T, event *trace.Event, want hit) {
	t.Helper()
	qt.Assert(t, qt.HasLen(event.Args, len(want.args)), qt.Commentf("%s", event.Probe))
	for i, w := range want.args {
		comment := qt.Commentf("%s argument %d (%v)", event.Probe, i, event.Site.Args[i])
		got := event.Args[i]
		qt.Check(t, qt.Equals(got.Size(), w.Size), comment)
		if got.IsPresent() {
			qt.Check(t, qt.Equals(got.Kind() == trace.Float, w.Float), comment)
			qt.Check(t, qt.Equals(got.Kind() == trace.Signed, w.Signed), comment)
		}
		data, complete := got.Data()
		switch w.Kind {
		case testprog.Unavailable:
			if event.Site.Args[i].Kind == argspec.Bytes {
				qt.Check(t, qt.Equals(got.Kind(), trace.Bytes), comment)
				checkStructure(t, got, comment)
				continue
			}
			qt.Check(t, qt.Equals(got.Kind(), trace.Unavailable), comment)
		case testprog.Fault:
			qt.Check(t, qt.Equals(got.Kind(), trace.Unreadable), comment)
			qt.Check(t, qt.Equals(got.Uint(), 0), comment)
		case testprog.Text:
			qt.Check(t, qt.IsTrue(got.IsPresent()), comment)
			qt.Check(t, qt.IsTrue(complete), comment)
			qt.Check(t, qt.Equals(string(data), w.Text), comment)
		case testprog.Location:
			qt.Check(t, qt.IsTrue(got.IsPresent()), comment)
			qt.Check(t, qt.Equals(got.Uint()%4096, event.Site.Location%4096), comment)
		default:
			qt.Check(t, qt.IsTrue(got.IsPresent()), comment)
			qt.Check(t, qt.Equals(got.Uint(), w.Value), comment)
			qt.Check(t, qt.IsNil(data), comment)
		}
	}
}

// structure returns the structure of testdata/places.c: three numbers.
func structure(size int) (b []byte) {
	for n := uint64(1); len(b) < size; n++ {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	return b
}

func checkStructure(t *testing.T, v trace.Value, comment qt.Comment) {
	t.Helper()
	data, complete := v.Data()
	qt.Check(t, qt.IsTrue(v.IsPresent()), comment)
	qt.Check(t, qt.IsTrue(complete), comment)
	qt.Check(t, qt.DeepEquals(data, structure(v.Size())), comment)
	qt.Check(t, qt.Equals(v.Uint(), 0), comment)
}

// An argument may be a structure. Captures say how much of it is read.
func TestStructures(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		for name, opts := range map[string]*trace.EventOptions{
			"as they are": {},
			"with stacks": {StackDepth: 5},
		} {
			t.Run(name, func(t *testing.T) {
				opts.Captures = []trace.Capture{{Arg: "arg1", Length: "arg77", Max: 9}}
				s := open(t, process, "gousdt_test:structure",
					&trace.SessionOptions{Mode: mode, Events: opts})
				process.Fire("structure", 1)
				args := next(t, s, 1)[0].Args
				checkStructure(t, args[2], qt.Commentf("not captured"))
				data, complete := args[1].Data()
				qt.Check(t, qt.DeepEquals(data, structure(16)[:9]))
				qt.Check(t, qt.IsFalse(complete))
				qt.Check(t, qt.Equals(args[1].String(), fmt.Sprintf("% x...", structure(16)[:9])))
				qt.Check(t, qt.Equals(args[3].Int(), 17))
			})
		}
	})
}
