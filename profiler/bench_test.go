// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// atATime is how often a program does what it is asked for until what it has
// sent is read: what is lost costs less.
const atATime = 500

// measure reports what one of b.N costs the program.
func (p *target) measure(b *testing.B, what string, read func()) {
	b.Helper()
	spent, done := int64(0), 0
	for ; done < b.N; done += atATime {
		fmt.Fprintln(p.in, what, atATime)
		var took int64
		_, err := fmt.Fscan(p.out, &took)
		qt.Assert(b, qt.IsNil(err))
		spent += took
		read()
	}
	b.ReportMetric(float64(spent)/float64(done), "ns/op")
}

// ask makes the program do something once, and waits until the unwinder, which
// reads of new processes now and then, sends its stack.
func (p *target) ask(b *testing.B, what string, probe *Probe) (stacks uint64) {
	b.Helper()
	for stacks == 0 {
		fmt.Fprintln(p.in, what, 1)
		_, err := fmt.Fscan(p.out, new(int64))
		qt.Assert(b, qt.IsNil(err))
		time.Sleep(100 * time.Millisecond)
		stacks = matched(b, probe)
	}
	return stacks
}

func matched(b *testing.B, probe *Probe) uint64 {
	b.Helper()
	stats, err := probe.Stats()
	qt.Assert(b, qt.IsNil(err))
	qt.Assert(b, qt.Equals(stats.Lost, 0))
	return stats.Matched
}

// arrive waits until stacks have come.
func arrive(b *testing.B, probe *Probe, stacks uint64) {
	b.Helper()
	for matched(b, probe) < stacks {
		time.Sleep(time.Millisecond)
	}
}

var costProbe = elfnote.Exact("gousdt_test", "cost")

// BenchmarkHit is the cost of a hit with its stack of some fifteen functions,
// for the program that is hit.
func BenchmarkHit(b *testing.B) {
	program := compile(b, "cost", "-fno-omit-frame-pointer")
	for _, way := range []struct {
		name string
		opts trace.EventOptions
	}{
		{name: "NoStack"},
		{name: "FramePointers", opts: trace.EventOptions{StackDepth: 127}},
		{name: "StackCopy16k", opts: trace.EventOptions{StackCopy: 16 << 10}},
	} {
		b.Run(way.name, func(b *testing.B) {
			p := run(b, program)
			way.opts.Delay, way.opts.RingSize = time.Hour, 64<<20
			s, err := trace.Open(usdt.Target{Path: program, PID: p.Process.Pid},
				&trace.SessionOptions{Events: &way.opts}, costProbe)
			qt.Assert(b, qt.IsNil(err))
			defer s.Close()
			go func() {
				for range s.Events(context.Background()) {
				}
			}()
			p.measure(b, "hit", func() { qt.Assert(b, qt.IsNil(s.Drain(b.Context()))) })
			lost, err := s.Losses()
			qt.Assert(b, qt.IsNil(err))
			qt.Check(b, qt.Equals(lost.Events, 0))
		})
	}
	b.Run("Unwinder", func(b *testing.B) {
		p := run(b, program)
		c := start(b, &Options{Watch: only(p.Process.Pid),
			Session: trace.SessionOptions{
				Events: &trace.EventOptions{Delay: time.Hour, RingSize: 64 << 20}}}, costProbe)
		stacks := p.ask(b, "hit", c.probe)
		p.measure(b, "hit", func() {
			stacks += atATime
			arrive(b, c.probe, stacks)
		})
	})
}

// BenchmarkAllocate is the cost of an allocation of 4 kB and of freeing it, for
// the program.
func BenchmarkAllocate(b *testing.B) {
	program := compile(b, "cost")
	allocator := compile(b, "allocator", "-O2", "-shared", "-fPIC")
	preload := []string{"env", "LD_PRELOAD=" + allocator}
	never, each := "OTEL_MEMORY_PERIOD=1000000000000000", "OTEL_MEMORY_PERIOD=1"
	for _, way := range []struct {
		name     string
		command  []string
		profiled bool
	}{
		{"Plain", []string{program}, false},
		{"Unsampled", append(preload, never, program), false},
		{"Sampled", append(preload, each, program), false},
		{"SampledProfiled", append(preload, each, program), true},
	} {
		b.Run(way.name, func(b *testing.B) {
			p := run(b, way.command...)
			if !way.profiled {
				p.measure(b, "allocate", func() {})
				return
			}
			fmt.Fprintln(p.in, "allocate 0")
			fmt.Fscan(p.out, new(int64)) // it runs, as the process that env was
			memory := NewMemory(&Options{Watch: only(p.Process.Pid),
				Session: trace.SessionOptions{
					Events: &trace.EventOptions{Delay: 50 * time.Millisecond, RingSize: 64 << 20}}})
			defer memory.Close()
			running, err := memory.Start(b.Context())
			qt.Assert(b, qt.IsNil(err))
			defer running.Close()
			go running.Run(b.Context())
			stacks := p.ask(b, "allocate", memory.Probe())
			p.measure(b, "allocate", func() {
				stacks += atATime
				arrive(b, memory.Probe(), stacks)
			})
		})
	}
}
