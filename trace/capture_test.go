// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestWhatPointersPointTo(t *testing.T) {
	digits := strings.Repeat("0123456789", 40)
	for _, test := range []struct {
		name, group string
		capture     trace.Capture
		state       trace.DataState
		data, shown string
	}{
		{"text", "strings", trace.Capture{Arg: 0}, trace.DataComplete, "hello, gousdt", `"hello, gousdt"`},
		{"empty text", "strings", trace.Capture{Arg: 2}, trace.DataComplete, "", `""`},
		{"text longer than usual", "strings", trace.Capture{Arg: 1}, trace.DataTruncated, digits[:128], `"` + digits[:128] + `"...`},
		{"long text", "strings", trace.Capture{Arg: 1, Max: 32 << 10}, trace.DataComplete, digits, `"` + digits + `"`},
		{"text as long as its limit", "strings", trace.Capture{Arg: 1, Max: 400}, trace.DataComplete, digits, `"` + digits + `"`},
		{"text one longer than its limit", "strings", trace.Capture{Arg: 1, Max: 399}, trace.DataTruncated, digits[:399], `"` + digits[:399] + `"...`},
		{"text of one byte", "strings", trace.Capture{Arg: 0, Max: 1}, trace.DataTruncated, "h", `"h"...`},
		{"bytes", "strings", trace.Capture{Arg: 0, Bytes: true, Max: 3}, trace.DataComplete, "hel", "68 65 6c"},
		{"no pointer", "three", trace.Capture{Arg: 0}, trace.DataUnreadable, "", "-2000000000 <unreadable>"},
		{"no pointer to bytes", "three", trace.Capture{Arg: 2, Bytes: true, Max: 8}, trace.DataUnreadable, "",
			"18000000000000000001 <unreadable>"},
		{"another probe", "three", trace.Capture{Probes: "gousdt_test:strings", Arg: 1, Max: 8}, trace.NoData, "", ""},
		{"no such argument", "three", trace.Capture{Arg: 77}, trace.NoData, "", ""},
		{"pointer that is unreadable", "fault", trace.Capture{Arg: 1}, trace.DataUnreadable, "", "<unreadable>"},
		{"small constant", "fault", trace.Capture{Arg: 2, Bytes: true, Max: 5}, trace.DataUnreadable, "", "17 <unreadable>"},
		// The last argument of twelve but two is a pointer; others serve as
		// lengths.
		{"length in a constant", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 10, Max: 5},
			trace.DataTruncated, "hello", "68 65 6c 6c 6f..."},
		{"length in a register", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 1, Max: 2},
			trace.DataTruncated, "he", "68 65..."},
		{"length in memory", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 3, Max: 7},
			trace.DataTruncated, "hello, ", "68 65 6c 6c 6f 2c 20..."},
		{"exact length", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 8, Max: 17},
			trace.DataComplete, "hello, gousdt\x00", ""},
		{"negative length in a register", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 0}, trace.DataUnreadable, "", ""},
		{"negative length in memory", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 4}, trace.DataUnreadable, "", ""},
		{"negative constant length", "twelve", trace.Capture{Arg: 9, Bytes: true, LengthArg: 1 + 11}, trace.DataUnreadable, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			process := start(t, "target-pie")
			s := open(t, process, "gousdt_test:"+test.group, &trace.SessionOptions{Captures: []trace.Capture{test.capture}})
			process.Fire(test.group, 1)
			event := next(t, s, 1)[0]
			if test.capture.Arg >= len(event.Args) {
				return
			}
			arg := event.Args[test.capture.Arg]
			data, state := arg.Data()
			qt.Check(t, qt.Equals(state, test.state))
			// A length may lead behind the text.
			qt.Check(t, qt.Equals(string(data[:min(len(data), len(test.data))]), test.data))
			if test.shown != "" {
				qt.Check(t, qt.Equals(arg.String(), test.shown))
			}
		})
	}
}

func TestCapturesInEveryMode(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-static")
		s := open(t, process, "gousdt_test:strings", &trace.SessionOptions{Mode: mode, StackDepth: 5, Captures: []trace.Capture{
			{Arg: 2}, {Arg: 0, Max: 4}, {Arg: 0, Max: 100}, {Probes: "*", Arg: 1, Max: 10},
		}})
		process.Fire("strings", 1)
		event := next(t, s, 1)[0]
		qt.Assert(t, qt.DeepEquals(texts(event), []string{`"hell"...`, `"0123456789"...`, `""`}))
		testprog.RequireStacks(t)
		qt.Assert(t, qt.IsTrue(len(event.Stack) >= 1 && len(event.Stack) <= 5))
		qt.Assert(t, qt.Equals(event.Stack[0], event.Site.Instruction))
	})
}

func TestCapturesThatMakeNoSense(t *testing.T) {
	testprog.RequireBPF(t)
	for _, test := range []struct {
		capture trace.Capture
		want    string
	}{
		{trace.Capture{Arg: -1}, "options: capture 0: arguments are numbered from 0"},
		{trace.Capture{LengthArg: -1, Bytes: true}, "options: capture 0: arguments are numbered from 0"},
		{trace.Capture{Max: -1}, "options: capture 0: Max is -1, not between 1 and 32768"},
		{trace.Capture{Max: 32769}, "options: capture 0: Max is 32769, not between 1 and 32768"},
		{trace.Capture{LengthArg: 1}, "options: capture 0: only with Bytes an argument says the length"},
		{trace.Capture{Probes: "["}, ".*class.*"},
	} {
		_, err := trace.New(&trace.SessionOptions{Captures: []trace.Capture{test.capture}})
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
	_, err := trace.Open(usdt.Target{Path: testprog.Path(t, "target-pie")},
		&trace.SessionOptions{RingSize: 4096, Captures: []trace.Capture{{Arg: 0, Max: 4000}}},
		elfnote.Exact("gousdt_test", "strings"))
	qt.Check(t, qt.ErrorMatches(err, ".*an event would be larger than half of the ring buffer.*"))
}

// The probe cold passes a text in a page that is not in memory at that moment.
func TestTextThatIsNotInMemoryIsPagedIn(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for _, pageIn := range []bool{false, true} {
			process := start(t, "target-pie")
			opts := &trace.SessionOptions{Mode: mode, PageIn: pageIn, StackDepth: 5, Captures: []trace.Capture{{Arg: 0}}}
			if pageIn {
				testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
			}
			s := open(t, process, "gousdt_test:cold", opts)
			process.Fire("cold", 1)
			data, state := next(t, s, 1)[0].Args[0].Data()
			if pageIn {
				qt.Assert(t, qt.Equals(state, trace.DataComplete))
				qt.Assert(t, qt.Equals(string(data[:4]), "\x7fELF"))
			} else {
				qt.Assert(t, qt.Equals(state, trace.DataUnreadable))
			}
			qt.Assert(t, qt.IsNil(s.Close()))
		}
	})
}
