// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Events and filters know the processor also where programs cannot ask the
// kernel for it.
func TestCPU(t *testing.T) {
	var allowed unix.CPUSet
	qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(0, &allowed)))
	for way, prepare := range map[string]func(*trace.Session) error{
		"asked": func(*trace.Session) error { return nil }, "from a map": trace.NumberProcessors,
	} {
		t.Run(way, func(t *testing.T) {
			process := start(t, "target-pie")
			open := func(opts *trace.SessionOptions) *trace.Session {
				s := newSession(t, opts)
				qt.Assert(t, qt.IsNil(prepare(s)))
				attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:three", nil)
				return s
			}
			events := open(nil)
			for cpu := range 64 {
				if !allowed.IsSet(cpu) {
					continue
				}
				var one unix.CPUSet
				one.Set(cpu)
				qt.Assert(t, qt.IsNil(unix.SchedSetaffinity(process.PID, &one)))
				filtered := open(&trace.SessionOptions{Filter: "cpu == " + decimal(cpu)})
				process.Fire("three", 1)
				qt.Check(t, qt.Equals(next(t, events, 1)[0].CPU, cpu))
				qt.Check(t, qt.Equals(next(t, filtered, 1)[0].CPU, cpu))
				qt.Assert(t, qt.IsNil(filtered.Close()))
			}
		})
	}
}
