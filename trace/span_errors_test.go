// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestSpanErrors(t *testing.T) {
	path := copyOf(t, "calls")
	for _, test := range []struct {
		opts trace.SessionOptions
		want string
	}{
		{trace.SessionOptions{Spans: []trace.Latency{{}}},
			`option Spans\[0\]: Pair: no pair of probes is given`},
		{trace.SessionOptions{Spans: everyCall, NoEvents: true},
			`option Spans: spans need events: remove NoEvents`},
		{trace.SessionOptions{StartStacks: true, StackDepth: 1},
			"option StartStacks: stacks of starts need Spans, and StackDepth or StackCopy"},
		{trace.SessionOptions{StartStacks: true, Spans: everyCall}, "option StartStacks: .*"},
		{trace.SessionOptions{Filter: "duration > 1"},
			`option Filter: duration, failed and start.argN are known only at the end of a call: .*`},
		{trace.SessionOptions{Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("sql")}}},
			`.*: there is no pair of probes sql \(there are: (gousdt_calls:\w+(, )?){6}\)`},
		{trace.SessionOptions{Spans: everyCall, Filter: "arg9 == 1"},
			`.*the condition "arg9 == 1" can never hold.*`},
		{trace.SessionOptions{Spans: everyCall, Filter: strings.Repeat("start.arg0 == 1 || ", 31) +
			"start.arg0 == 2"},
			`option Filter: 32 comparisons with values of the start are more than 28`},
		{trace.SessionOptions{Spans: everyCall,
			Captures: []trace.Capture{{Arg: "arg1", Max: 30_000}}},
			`option Captures: what is captured of each start takes 30017 bytes, more than 28672: capture less`},
	} {
		_, err := trace.Open(usdt.Target{Path: path}, &test.opts)
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
}
