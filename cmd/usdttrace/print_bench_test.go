// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"testing"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// BenchmarkPrint prints what tools/bench/print.go has printed: an event of
// three arguments.
func BenchmarkPrint(b *testing.B) {
	site := &trace.Site{File: "/tmp/gousdt-bench/target", Site: usdt.Site{Site: elfnote.Site{
		Provider: "bench", Name: "three_0", Location: 0x401234,
	}}}
	event := &trace.Event{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.Local), Monotonic: 12345678901234,
		PID: 12345, TID: 12345, Command: "target", CPU: 1, Weight: 1, Probe: "bench:three_0",
		Site: site,
		Args: []trace.Value{trace.ValueOf(int64(-7)), trace.ValueOf(uint64(0x7ffc12345678)),
			trace.ValueOf(int64(42))},
	}
	cgroups, err := proc.WatchCgroups("")
	if err == nil {
		defer cgroups.Close()
		event.CgroupID = 1 // of no container, as that of most processes
	} else {
		cgroups = nil
	}
	t := &tracer{prepared: prepared{options: &options{}},
		opened: opened{containers: cgroups}}
	t.targets = newTargets(t.options)
	for name, p := range map[string]printer{
		"text": &textPrinter{tracer: t, out: io.Discard},
		"json": &jsonPrinter{tracer: t, out: io.Discard},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				event.Time = event.Time.Add(3 * time.Microsecond)
				event.Monotonic += 3 * time.Microsecond
				p.event(event)
			}
		})
	}
}
