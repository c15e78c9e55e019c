// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// hitsPerRound is how many hits are timed together: some 2 ms, less than the
// scheduler gives a process at a time, so that the best of many rounds has not
// been disturbed.
const hitsPerRound = 4_000

// subject is a traced process whose probe costs something to be passed. Each
// has a file of its own, so that several can be attached at the same time and
// fired in turn.
type subject struct {
	*traced
	best time.Duration // for a hit
}

func newSubject(b *testing.B, opts *trace.SessionOptions) *subject {
	s := &subject{traced: start(b, "target-pie"), best: math.MaxInt64}
	if opts != nil {
		open(b, s.traced, "gousdt_test:none", opts)
	}
	return s
}

func (s *subject) withProgram(b *testing.B) *subject {
	b.Helper()
	mode, err := usdt.ModeAuto.Resolve()
	qt.Assert(b, qt.IsNil(err))
	sel, err := usdt.Select(usdt.Target{Path: s.path}, elfnote.Exact("gousdt_test", "none"))
	qt.Assert(b, qt.IsNil(err))
	defer sel.Close()
	spec := &ebpf.ProgramSpec{Name: "benchmark", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}}
	if mode == usdt.ModeMulti {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	prog, err := ebpf.NewProgram(spec)
	qt.Assert(b, qt.IsNil(err))
	lnk, err := sel.AttachRaw(prog, nil)
	qt.Assert(b, qt.IsNil(err))
	b.Cleanup(func() {
		lnk.Close()
		prog.Close()
	})
	return s
}

func (s *subject) round(b *testing.B) {
	began := time.Now()
	if _, err := s.Command("fire none " + decimal(hitsPerRound)); err != nil {
		b.Fatal(err)
	}
	s.best = min(s.best, time.Since(began)/hitsPerRound)
}

// compare fires the subjects in turn and reports the cost of a hit, and how it
// compares with that of the first one.
func compare(b *testing.B, empty, subject *subject) {
	b.Helper()
	const warmUp = 2
	for range warmUp {
		empty.round(b)
		subject.round(b)
	}
	for b.Loop() {
		empty.round(b)
		subject.round(b)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(subject.best), "ns/hit")
	b.ReportMetric(float64(subject.best-empty.best), "ns/more")
	b.ReportMetric(float64(subject.best)/float64(empty.best), "x-empty")
}

// BenchmarkSession measures what a hit costs of a probe without arguments that
// a session watches, beside an empty program.
func BenchmarkSession(b *testing.B) {
	testprog.RequireBPF(b)
	for _, test := range []struct {
		name string
		opts trace.SessionOptions
	}{
		{"event", trace.SessionOptions{Events: &trace.EventOptions{Delay: 10 * time.Millisecond}}},
		{"event=at-once", trace.SessionOptions{Events: &trace.EventOptions{}}},
		{"event=arguments",
			trace.SessionOptions{
				Events: &trace.EventOptions{ArgumentsOnly: true, Delay: 10 * time.Millisecond}}},
		{"event=stack", trace.SessionOptions{Events: &trace.EventOptions{
			ArgumentsOnly: true, StackDepth: 127,
			Delay: 10 * time.Millisecond,
		}}},
		{"event=copy-4k", trace.SessionOptions{Events: &trace.EventOptions{
			ArgumentsOnly: true, StackCopy: 4 << 10,
			Delay: 10 * time.Millisecond,
		}}},
		{"event=copy-16k", trace.SessionOptions{Events: &trace.EventOptions{
			ArgumentsOnly: true, StackCopy: 16 << 10,
			Delay: 10 * time.Millisecond,
		}}},
		{"event=copy-64k", trace.SessionOptions{Events: &trace.EventOptions{
			ArgumentsOnly: true, StackCopy: 64 << 10,
			Delay: 10 * time.Millisecond,
		}}},
		{"filtered", trace.SessionOptions{Filter: "pid == 1", Events: &trace.EventOptions{}}},
		{"count", *aggregating(&trace.Aggregation{})},
		{"count=by-pid", *aggregating(&trace.Aggregation{By: []string{"pid"}})},
		{"count=by-command",
			*aggregating(&trace.Aggregation{By: []string{"comm"}})},
		{"count=by-stack",
			*aggregating(&trace.Aggregation{By: []string{"stack"}})},
		{"histogram=1", *aggregating(histogramOf(1))},
		{"histogram=8", *aggregating(histogramOf(8))},
		{"histogram=16", *aggregating(histogramOf(16))},
		{"histogram=8-extremes", *aggregating(extremesOf())},
		{"histogram=8-by-command", *aggregating(histogramOf(8, "comm"))},
		{"histogram=8-extremes-by-command", *aggregating(extremesOf("comm"))},
		{"latency", *aggregating(&trace.Aggregation{
			Latency:   &trace.Latency{Pair: "none..none"},
			Histogram: &trace.Histogram{},
		})},
	} {
		b.Run(test.name, func(b *testing.B) {
			empty := newSubject(b, nil).withProgram(b)
			process := start(b, "target-pie")
			if e := test.opts.Events; e != nil {
				e.RingSize, e.ReuseEvents = 64<<20, true
			}
			s := open(b, process, "gousdt_test:none", &test.opts)
			read := make(chan struct{})
			go func() {
				for range s.Events(context.Background()) {
				}
				close(read)
			}()
			compare(b, empty, &subject{traced: process, best: math.MaxInt64})
			qt.Assert(b, qt.IsNil(s.Detach()))
			<-read
			losses, err := s.Losses()
			qt.Assert(b, qt.IsNil(err))
			b.ReportMetric(float64(losses.Events), "lost")
		})
	}
}

func histogramOf(perDoubling int, by ...string) *trace.Aggregation {
	return &trace.Aggregation{
		Value: "pid", Histogram: trace.Exponential(perDoubling, 0), By: by,
	}
}

func extremesOf(by ...string) *trace.Aggregation {
	return &trace.Aggregation{Value: "pid", Histogram: &trace.Histogram{},
		Min: true, Max: true, By: by}
}
