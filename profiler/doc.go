// SPDX-License-Identifier: BSD-2-Clause

// Package profiler brings USDT probes to the OpenTelemetry eBPF profiler: its
// unwinder runs where a process passes a probe, so that a hit has the stack
// with the frames of Python, Java and the other languages that it knows.
//
// A [Probe] is a tracer.Probe. Give it to Tracer.Enable, of a tracer that was
// made with Config.LoadProbe, and pass each trace through [Probe.Match] before
// it is handled:
//
//	probe := profiler.USDT(&profiler.Options{}, elfnote.MustParsePattern("python:gc__start"))
//	defer probe.Close()
//	if err := tracer.Enable(ctx, probe); err != nil {
//		return err
//	}
//	for trace := range traces {
//		if trace != nil {
//			probe.Match(trace)
//			tracer.HandleTrace(trace)
//		}
//	}
//
// Conditions, sampling and calls between two probes are those of package trace,
// whose program runs first at a hit. The unwinder only runs for the hits that
// this program lets through.
package profiler
