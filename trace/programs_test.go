// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"encoding/binary"
	"fmt"
	"strings"
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

// structure returns the structure of internal/testdata/places.c: three numbers.
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

type state int

const (
	missing state = iota // it cannot be read
	none                 // nothing is to be read
	truncated
	complete
)

func TestCapture(t *testing.T) {
	digits := strings.Repeat("0123456789", 40)
	for _, test := range []struct {
		name, group string
		capture     trace.Capture
		state       state
		data, shown string
	}{
		{"text", "strings", trace.Capture{Arg: "arg0"}, complete, "hello, gousdt",
			`"hello, gousdt"`},
		{"empty text", "strings", trace.Capture{Arg: "arg2"}, complete, "", `""`},
		{"text longer than usual", "strings", trace.Capture{Arg: "arg1"}, truncated, digits[:128],
			`"` + digits[:128] + `"...`},
		{"long text", "strings", trace.Capture{Arg: "arg1", Max: 32 << 10}, complete, digits,
			`"` + digits + `"`},
		{"text as long as its limit", "strings", trace.Capture{Arg: "arg1", Max: 400}, complete,
			digits, `"` + digits + `"`},
		{"text one longer than its limit", "strings", trace.Capture{Arg: "arg1", Max: 399},
			truncated, digits[:399], `"` + digits[:399] + `"...`},
		{"text of one byte", "strings", trace.Capture{Arg: "arg0", Max: 1}, truncated,
			"h", `"h"...`},
		{"bytes", "strings", trace.Capture{Arg: "arg0", Bytes: true, Max: 3}, complete, "hel",
			"68 65 6c"},
		{"no pointer", "three", trace.Capture{Arg: "arg0"}, none, "", "-2000000000"},
		{"no pointer to bytes", "three", trace.Capture{Arg: "arg2", Bytes: true, Max: 8},
			missing, "",
			"18000000000000000001 <unreadable>"},
		{"another probe", "three",
			trace.Capture{Probes: []elfnote.Pattern{elfnote.Exact("gousdt_test", "strings")},
				Arg: "arg1", Max: 8}, none, "", ""},
		{"no such argument", "three", trace.Capture{Arg: "arg77"}, missing, "", ""},
		{"pointer that is unreadable", "fault", trace.Capture{Arg: "arg1"}, missing, "",
			"<unreadable>"},
		{"small constant", "fault", trace.Capture{Arg: "arg2", Bytes: true, Max: 5}, none, "",
			"17"},
		// The last argument of twelve but two is a pointer; others serve as
		// lengths.
		{"length in a constant", "twelve", trace.Capture{Arg: "arg9", Bytes: true, Length: "arg10",
			Max: 5},
			truncated, "hello", "68 65 6c 6c 6f..."},
		{"length in a register", "twelve", trace.Capture{Arg: "arg9", Bytes: true, Length: "arg1",
			Max: 2},
			truncated, "he", "68 65..."},
		{"length in memory", "twelve",
			trace.Capture{Arg: "arg9", Bytes: true, Length: "arg3", Max: 7},
			truncated, "hello, ", "68 65 6c 6c 6f 2c 20..."},
		{"exact length", "twelve", trace.Capture{Arg: "arg9", Bytes: true, Length: "arg8", Max: 17},
			complete, "hello, gousdt\x00", ""},
		{"text with a length in a register", "twelve", trace.Capture{Arg: "arg9", Length: "arg1",
			Max: 2}, truncated, "he", `"he"...`},
		{"text with its length", "twelve", trace.Capture{Arg: "arg9", Length: "arg8", Max: 17},
			complete, "hello, gousdt", ""},
		{"text with a negative length", "twelve", trace.Capture{Arg: "arg9", Length: "arg0"},
			missing, "", ""},
		{"negative length in a register", "twelve", trace.Capture{Arg: "arg9", Bytes: true,
			Length: "arg0"}, missing, "", ""},
		{"negative length in memory", "twelve", trace.Capture{Arg: "arg9", Bytes: true,
			Length: "arg4"}, missing, "", ""},
		{"negative constant length", "twelve", trace.Capture{Arg: "arg9", Bytes: true,
			Length: "arg11"}, missing, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			process := start(t, "target-pie")
			s := open(t, process, "gousdt_test:"+test.group,
				&trace.SessionOptions{
					Events: &trace.EventOptions{Captures: []trace.Capture{test.capture}}})
			process.Fire(test.group, 1)
			event := next(t, s, 1)[0]
			var index int
			_, err := fmt.Sscanf(test.capture.Arg, "arg%d", &index)
			qt.Assert(t, qt.IsNil(err))
			if index >= len(event.Args) {
				return
			}
			arg := event.Args[index]
			data, all := arg.Data()
			qt.Check(t, qt.Equals(data == nil, test.state == missing || test.state == none))
			qt.Check(t, qt.Equals(all, test.state == complete || test.state == none))
			// A length may lead past the text.
			qt.Check(t, qt.Equals(string(data[:min(len(data), len(test.data))]), test.data))
			if test.shown != "" {
				qt.Check(t, qt.Equals(arg.String(), test.shown))
			}
		})
	}
}

func TestCaptureInEveryMode(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-static")
		s := open(t, process, "gousdt_test:strings", &trace.SessionOptions{Mode: mode,
			Events: &trace.EventOptions{
				StackDepth: 5, Captures: []trace.Capture{
					{Arg: "arg2"}, {Arg: "arg0", Max: 4}, {Arg: "arg0",
						Max: 100},
					{Probes: []elfnote.Pattern{elfnote.MustParsePattern("*")}, Arg: "arg1",
						Max: 10},
				},
			}})
		process.Fire("strings", 1)
		event := next(t, s, 1)[0]
		qt.Assert(t, qt.DeepEquals(texts(event), []string{`"hell"...`, `"0123456789"...`, `""`}))
		testprog.RequireStacks(t)
		qt.Assert(t, qt.IsTrue(len(event.Stack) >= 1 && len(event.Stack) <= 5))
		qt.Assert(t, qt.Equals(event.Stack[0], event.Site.Instruction))
	})
}

func TestCaptureErrors(t *testing.T) {
	testprog.RequireBPF(t)
	for _, test := range []struct {
		capture trace.Capture
		want    string
	}{
		{trace.Capture{Length: "arg1"}, `Arg: expression "", at column 1: .*`},
		{trace.Capture{Arg: "0"}, `Arg: expression "0", at column 1: an argument is expected.*`},
		{trace.Capture{Arg: "arg0 & 1"},
			`Arg: expression "arg0 & 1", at column 1: an argument is expected.*`},
		{trace.Capture{Arg: "arg0", Length: "pid"},
			`Length: expression "pid", at column 1: an argument is expected.*`},
		{trace.Capture{Arg: "arg0", Max: -1}, "Max: -1 is not between 0 and 32768"},
		{trace.Capture{Arg: "arg0", Max: 32769}, "Max: 32769 is not between 0 and 32768"},
	} {
		_, err := trace.New(&trace.SessionOptions{Events: &trace.EventOptions{
			Captures: []trace.Capture{{Arg: "arg0"},
				test.capture},
		}})
		qt.Check(t, qt.ErrorMatches(err, `option Captures\[1\]: `+test.want))
	}
	_, err := trace.Open(usdt.Target{Path: testprog.Path(t, "target-pie")},
		&trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 4096, Captures: []trace.Capture{{Arg: "arg0", Max: 4000}}}},
		elfnote.Exact("gousdt_test", "strings"))
	qt.Check(t, qt.ErrorMatches(err, ".*an event would be larger than half of the ring buffer.*"))
}

// The probe cold passes a text in a page that is not in memory at that moment.
func TestTextThatIsNotInMemoryIsUnreadable(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:cold",
			&trace.SessionOptions{Mode: mode,
				Events: &trace.EventOptions{Captures: []trace.Capture{{Arg: "arg0"}}}})
		process.Fire("cold", 1)
		data, _ := next(t, s, 1)[0].Args[0].Data()
		qt.Assert(t, qt.IsNil(data))
	})
}

// Programs of every kind have variables by their symbols, whatever their sites
// pass.
func TestVariablesOfPrograms(t *testing.T) {
	for _, program := range []string{"target-pie", "target-static", "target-shared"} {
		t.Run(program, func(t *testing.T) {
			path, file := copyWithProbes(t, program)
			p := startFile(t, path)
			text := &trace.Aggregation{By: []string{"str(global.gousdt_greeting, 5)",
				"global.global_u8"}, Value: "global.global_s32 & 0xff", Sum: true}
			s := newSession(t, &trace.SessionOptions{
				Filter: `global.gousdt_greeting == "hello, gousdt" && global.global_u8 == 200 &&
					global.global_word & 0xff == arg3 & 0xff`,
				Aggregations: []*trace.Aggregation{text},
				Events: &trace.EventOptions{
					Captures: []trace.Capture{{Arg: "global.gousdt_greeting"}, {Arg: "global.global_s32"}}},
			})
			a := attach(t, s, usdt.Target{Path: file, PID: p.PID}, "gousdt_test:globals", nil)
			qt.Assert(t, qt.HasLen(a.Sites(), 1))
			p.Fire("globals", 2)
			for _, e := range next(t, s, 2) {
				qt.Check(t, qt.DeepEquals(texts(e), []string{"-2000000000", "200", "-30000",
					"-9000000000000000001", `"hello, gousdt"`, "2294967296"}))
				qt.Check(t, qt.Equals(e.Site.Argument(4).Name, "global.gousdt_greeting"))
				qt.Check(t, qt.Equals(e.Site.Argument(0).Length, -1))
			}
			qt.Check(t, qt.DeepEquals(rows(snapshot(t, text)), []string{"[hello... 200] 2 0"}))
			silent(t, s)
		})
	}
}

// A stripped program has its dynamic symbols.
func TestVariablesOfStrippedPrograms(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		p := start(t, "target-stripped")
		s := open(t, p, "gousdt_test:globals", &trace.SessionOptions{Mode: mode,
			Filter: `str(global.gousdt_greeting, 5) == "hello"`})
		p.Fire("globals", 1)
		qt.Check(t, qt.HasLen(next(t, s, 1)[0].Args, 4))
		silent(t, s)
	})
}

// Sites that look their arguments up in a table have the variable, too: there
// are 300 kinds of sites.
func TestVariablesAtManySites(t *testing.T) {
	p := start(t, "target-pie")
	ones := &trace.Aggregation{By: []string{"global.global_u8"}}
	texts := &trace.Aggregation{By: []string{"str(global.gousdt_greeting)"}}
	s := open(t, p, "gousdt_test:specs", &trace.SessionOptions{
		Filter:       `global.gousdt_greeting == "hello, gousdt"`,
		Aggregations: []*trace.Aggregation{ones, texts},
		Events: &trace.EventOptions{
			Captures: []trace.Capture{{Arg: "global.gousdt_greeting"}}},
	})
	p.Fire("specs", 1)
	p.Fire("globals", 1)
	p.Fire("specs", 1)
	for i, e := range next(t, s, 300) {
		qt.Assert(t, qt.Equals(e.Args[0].Int(), int64(i)))
		qt.Assert(t, qt.Equals(e.Args[1].String(), `"hello, gousdt"`))
	}
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, ones)), []string{"[200] 300 ?"}))
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, texts)), []string{"[hello, gousdt] 300 ?"}))
	silent(t, s)
}

// A site whose file has no such variable is left out, and the error says why.
func TestVariablesThatAreMissing(t *testing.T) {
	p := start(t, "target-pie")
	for expression, want := range map[string]string{
		"global.nothing_such == 1": `.*global.nothing_such of gousdt_test:globals is not available: ` +
			`symbol "nothing_such": not defined in the file.*`,
		"global.main != 0":      `.*global.main of .*: function, not a variable \(main\)`,
		"global.long_text == 1": `.*global.long_text of .*: 401: size is not 1, 2, 4 or 8 bytes, or a float's 4 or 8.*`,
	} {
		s := newSession(t, &trace.SessionOptions{Filter: expression})
		_, err := s.Attach(usdt.Target{Path: p.path}, nil, elfnote.Exact("gousdt_test", "globals"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}
