// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Programs of every kind have variables by their symbols, whatever their sites
// pass.
func TestVariablesOfPrograms(t *testing.T) {
	for _, program := range []string{"target-pie", "target-static", "target-shared"} {
		t.Run(program, func(t *testing.T) {
			path, file := copyWithProbes(t, program)
			p := startFile(t, path)
			text := trace.NewAggregator(trace.Aggregation{By: []string{"str(global.gousdt_greeting, 5)",
				"global.global_u8"}, Value: "global.global_s32 & 0xff", Sum: true})
			s := newSession(t, &trace.SessionOptions{
				Filter: `global.gousdt_greeting == "hello, gousdt" && global.global_u8 == 200 &&
					global.global_word & 0xff == arg3 & 0xff`,
				Aggregators: []*trace.Aggregator{text},
				Events: &trace.EventOptions{
					Captures: []trace.Capture{{Arg: "global.gousdt_greeting"}, {Arg: "global.global_s32"}}},
			})
			a := attach(t, s, usdt.Target{Path: file, PID: p.PID}, "gousdt_test:globals", nil)
			qt.Assert(t, qt.HasLen(a.Sites(), 1))
			p.Fire("globals", 2)
			for _, e := range next(t, s, 2) {
				qt.Check(t, qt.DeepEquals(texts(e), []string{"-2000000000", "200", "-30000",
					"-9000000000000000001", `"hello, gousdt"`, "2294967296"}))
				qt.Check(t, qt.Equals(e.Site.ArgumentName(4), "global.gousdt_greeting"))
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
	ones := trace.NewAggregator(trace.Aggregation{By: []string{"global.global_u8"}})
	texts := trace.NewAggregator(trace.Aggregation{By: []string{"str(global.gousdt_greeting)"}})
	s := open(t, p, "gousdt_test:specs", &trace.SessionOptions{
		Filter:      `global.gousdt_greeting == "hello, gousdt"`,
		Aggregators: []*trace.Aggregator{ones, texts},
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
		"global.long_text == 1": `.*global.long_text of .*: 401: size is not 1, 2, 4 or 8 bytes.*`,
	} {
		s := newSession(t, &trace.SessionOptions{Filter: expression})
		_, err := s.Attach(usdt.Target{Path: p.path}, nil, elfnote.Exact("gousdt_test", "globals"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}
