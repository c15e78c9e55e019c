// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestSpanErrors(t *testing.T) {
	path := copyOf(t, "calls")
	for _, test := range []struct {
		opts trace.SessionOptions
		want string
	}{
		{trace.SessionOptions{Events: &trace.EventOptions{Spans: []trace.Latency{{}}}},
			`option Spans\[0\]: Pair: no pair of probes is given`},
		{trace.SessionOptions{Filter: "duration > 1ns"},
			`option Filter: duration, failed and start.argN are known only at the end of a call: .*`},
		{trace.SessionOptions{
			Events: &trace.EventOptions{Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("sql")}}}},
			`.*: there is no pair of probes sql \(there are: (gousdt_calls:\w+(, )?){6}\)`},
		{trace.SessionOptions{Filter: "arg9 == 1", Events: &trace.EventOptions{Spans: everyCall}},
			`.*the condition "arg9 == 1" can never hold.*`},
		{trace.SessionOptions{Filter: strings.Repeat("start.arg0 == 1 || ", 31) +
			"start.arg0 == 2",
			Events: &trace.EventOptions{Spans: everyCall}},
			`option Filter: 32 comparisons with values of the start are more than 28`},
		{trace.SessionOptions{Events: &trace.EventOptions{
			Spans:    everyCall,
			Captures: []trace.Capture{{Arg: "arg1", Max: 30_000}},
		}},
			`option Captures: the captures of each start take 30017 bytes, more than 28672: capture less`},
	} {
		_, err := trace.Open(usdt.Target{Path: path}, &test.opts)
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
}

// A session of spans that the kernel refuses has no maps to look into.
func TestSessionsOfSpansMayFail(t *testing.T) {
	testprog.RequireBPF(t)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends without its privileges
		none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		err := unix.Capset(&none, &make([]unix.CapUserData, 2)[0])
		if err == nil {
			_, err = trace.New(&trace.SessionOptions{
				Events: &trace.EventOptions{Spans: everyCall}})
		}
		failed <- err
	}()
	var refused *usdt.PermissionError
	qt.Check(t, qt.ErrorAs(<-failed, &refused))
}
