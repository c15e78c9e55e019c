// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
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

// withProgram attaches a program of its own to the subject's probe.
func (s *subject) withProgram(b *testing.B, args []argspec.Arg) *subject {
	b.Helper()
	mode, err := usdt.ModeAuto.Resolve()
	qt.Assert(b, qt.IsNil(err))
	sel, err := usdt.Select(usdt.Target{Path: s.path}, elfnote.Exact("gousdt_test", "none"))
	qt.Assert(b, qt.IsNil(err))
	defer sel.Close()
	machine, err := sys.KernelMachine()
	qt.Assert(b, qt.IsNil(err))
	instructions, err := bpfgen.SumArguments(bpfgen.Kernel{Machine: machine,
		Order: binary.NativeEndian}, args)
	qt.Assert(b, qt.IsNil(err))
	spec := &ebpf.ProgramSpec{Name: "benchmark", Type: ebpf.Kprobe, Instructions: instructions,
		License: "Dual BSD/GPL"}
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

// arguments returns so many arguments in one kind of place.
func arguments(b *testing.B, place string, count int) []argspec.Arg {
	b.Helper()
	machines := map[string]struct {
		machine   elf.Machine
		registers []string
		stack     string
		constant  string
	}{
		"amd64": {elf.EM_X86_64,
			strings.Fields("%rax %rbx %rcx %rdx %rsi %rdi %rbp %rsp %r8 %r9 %r10 %r12"),
			"%d(%%rsp)", "$%d"},
		"arm64": {elf.EM_AARCH64, strings.Fields("x0 x1 x2 x3 x4 x5 x6 x7 x8 x19 x20 x21"),
			"[sp, %d]", "%d"},
	}
	testneeds.Only(b, "registers of other machines are not known",
		slices.Sorted(maps.Keys(machines))...)
	m := machines[runtime.GOARCH]
	var all []string
	for i := range count {
		switch place {
		case "register":
			all = append(all, "8@"+m.registers[i])
		case "stack":
			all = append(all, "8@"+fmt.Sprintf(m.stack, 8*i))
		default:
			all = append(all, "8@"+fmt.Sprintf(m.constant, i))
		}
	}
	args := argspec.Parse(m.machine, strings.Join(all, " "))
	qt.Assert(b, qt.HasLen(args, count))
	for _, arg := range args {
		qt.Assert(b, qt.IsNil(arg.Err))
	}
	return args
}

// BenchmarkHit measures what a hit costs whose arguments are fetched and added
// up, beside an empty program.
func BenchmarkHit(b *testing.B) {
	testprog.RequireBPF(b)
	for _, place := range []string{"register", "stack", "constant"} {
		for _, count := range []int{1, 3, 6, 12} {
			b.Run(fmt.Sprintf("%s=%d", place, count), func(b *testing.B) {
				args := arguments(b, place, count)
				compare(b, newSubject(b, nil).withProgram(b, nil),
					newSubject(b, nil).withProgram(b, args))
			})
		}
	}
}

// BenchmarkSession measures what a hit costs of a probe without arguments that
// a session watches, beside an empty program.
func BenchmarkSession(b *testing.B) {
	testprog.RequireBPF(b)
	for _, test := range []struct {
		name string
		opts trace.SessionOptions
	}{
		{"event", trace.SessionOptions{Delay: 10 * time.Millisecond}},
		{"event=at-once", trace.SessionOptions{}},
		{"event=arguments",
			trace.SessionOptions{ArgumentsOnly: true, Delay: 10 * time.Millisecond}},
		{"event=stack", trace.SessionOptions{ArgumentsOnly: true, StackDepth: 127,
			Delay: 10 * time.Millisecond}},
		{"event=copy-4k", trace.SessionOptions{ArgumentsOnly: true, StackCopy: 4 << 10,
			Delay: 10 * time.Millisecond}},
		{"event=copy-16k", trace.SessionOptions{ArgumentsOnly: true, StackCopy: 16 << 10,
			Delay: 10 * time.Millisecond}},
		{"event=copy-64k", trace.SessionOptions{ArgumentsOnly: true, StackCopy: 64 << 10,
			Delay: 10 * time.Millisecond}},
		{"filtered", trace.SessionOptions{Filter: "pid == 1"}},
		{"count", *aggregating(trace.NewAggregator(trace.Aggregation{}))},
		{"count=by-pid", *aggregating(trace.NewAggregator(trace.Aggregation{By: []string{"pid"}}))},
		{"count=by-command",
			*aggregating(trace.NewAggregator(trace.Aggregation{By: []string{"comm"}}))},
		{"count=by-stack",
			*aggregating(trace.NewAggregator(trace.Aggregation{By: []string{"stack"}}))},
		{"histogram=1", *aggregating(histogramOf(1))},
		{"histogram=8", *aggregating(histogramOf(8))},
		{"histogram=16", *aggregating(histogramOf(16))},
		{"histogram=8-extremes", *aggregating(extremesOf())},
		{"histogram=8-by-command", *aggregating(histogramOf(8, "comm"))},
		{"histogram=8-extremes-by-command", *aggregating(extremesOf("comm"))},
		{"latency", *aggregating(trace.NewAggregator(trace.Aggregation{
			Latency:   &trace.Latency{Pair: elfnote.MustParsePairPattern("none..none")},
			Histogram: &trace.Histogram{},
		}))},
	} {
		b.Run(test.name, func(b *testing.B) {
			empty := newSubject(b, nil).withProgram(b, nil)
			process := start(b, "target-pie")
			test.opts.RingSize, test.opts.ReuseEvents = 64<<20, true
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

func histogramOf(perDoubling int, by ...string) *trace.Aggregator {
	return trace.NewAggregator(trace.Aggregation{
		Value: "pid", Histogram: trace.Exponential(perDoubling, 0), By: by,
	})
}

func extremesOf(by ...string) *trace.Aggregator {
	return trace.NewAggregator(trace.Aggregation{Value: "pid", Histogram: &trace.Histogram{},
		Min: true, Max: true, By: by})
}
