// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

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
