// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace"
)

// Events and filters know the processor also where programs cannot ask the
// kernel for it.
func TestCPU(t *testing.T) {
	var allowed unix.CPUSet
	qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(0, &allowed)))
	for _, way := range []string{"asked", "from a map"} {
		t.Run(way, func(t *testing.T) {
			if way == "from a map" {
				trace.WithoutProcessorID(t)
			}
			process := start(t, "target-pie")
			events := open(t, process, "gousdt_test:three", nil)
			for cpu := range 64 {
				if !allowed.IsSet(cpu) {
					continue
				}
				var one unix.CPUSet
				one.Set(cpu)
				qt.Assert(t, qt.IsNil(unix.SchedSetaffinity(process.PID, &one)))
				filtered := open(t, process, "gousdt_test:three",
					&trace.SessionOptions{Filter: "cpu == " + decimal(cpu)})
				process.Fire("three", 1)
				qt.Check(t, qt.Equals(next(t, events, 1)[0].CPU, cpu))
				qt.Check(t, qt.Equals(next(t, filtered, 1)[0].CPU, cpu))
				qt.Assert(t, qt.IsNil(filtered.Close()))
			}
		})
	}
}
