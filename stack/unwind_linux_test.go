// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// throwing is a program that throws exceptions, whose stacks are copied.
type throwing struct {
	*testprog.Software
	session *trace.Session
}

func startThrowing(t testing.TB, size int, known ...*unwind.KnownStacks) *throwing {
	t.Helper()
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	p := &throwing{Software: testprog.StartThrow(t)}
	events := &trace.EventOptions{StackCopy: size}
	var err error
	for _, k := range known {
		var m *ebpf.Map
		m, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: unwind.KnownKeySize,
			ValueSize: unwind.KnownNodeSize, MaxEntries: unwind.MaxKnownNodes})
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { m.Close() })
		tracing.CountKnownStacks(events, m.FD())
		k.Map = m
	}
	p.session, err = trace.Open(usdt.Target{Path: p.File, PID: p.PID},
		&trace.SessionOptions{Events: events},
		elfnote.Exact("libstdcxx", "throw"))
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { p.session.Close() })
	return p
}

// throwFrom throws so many calls deep and returns the event.
func (p *throwing) throwFrom(t testing.TB, levels int) *trace.Event {
	t.Helper()
	p.Do(strconv.Itoa(levels))
	return p.next(t)
}

func (p *throwing) next(t testing.TB) *trace.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for event, err := range p.session.Events(ctx) {
		qt.Assert(t, qt.IsNil(err))
		return event
	}
	t.Fatal("no event")
	return nil
}

func unwound(s *stack.Symbolizer, e *trace.Event) []uint64 {
	return s.Unwind(context.Background(), e.PID, e.Registers, e.StackCopy)
}

// The functions were built without frame pointers. How many calls of descend
// there are is known.
func TestUnwindAtEveryDepth(t *testing.T) {
	p := startThrowing(t, 64<<10)
	known := stack.NewSymbolizer("")
	defer known.Close()
	for levels := range 100 {
		want := []string{"__cxa_throw", "throw_it"}
		want = append(want, slices.Repeat([]string{"descend"}, levels+1)...)
		want = append(want, "throw_again", "main")
		addresses := unwound(known, p.throwFrom(t, levels))
		qt.Check(t, qt.DeepEquals(names(known, p.PID, addresses)[:len(want)], want))
		qt.Check(t, qt.IsTrue(len(addresses) <= len(want)+5),
			qt.Commentf("%d functions", len(addresses)))
	}
}

// What a signal has interrupted is found through the frame that the kernel has
// made.
func TestUnwindAcrossSignals(t *testing.T) {
	p := startThrowing(t, 16<<10)
	known := stack.NewSymbolizer("")
	defer known.Close()
	p.Do("signal")
	all := names(known, p.PID, unwound(known, p.next(t)))
	qt.Check(t, qt.DeepEquals(all[:4], []string{"__cxa_throw", "throw_it", "descend", "handle"}))
	interrupted := slices.Index(all, "interrupted")
	qt.Assert(t, qt.IsTrue(interrupted > 4), qt.Commentf("%v", all))
	qt.Check(t, qt.Equals(all[interrupted+1], "main"))
}

// Hits whose stack has been walked before are counted and not sent, until all
// is learned anew. Stacks that differ in one call differ.
func TestKnownStacksAreCountedInTheKernel(t *testing.T) {
	var known unwind.KnownStacks
	p := startThrowing(t, 16<<10, &known)
	names := stack.NewSymbolizer("")
	defer names.Close()
	const depths, more = 20, 3
	counted, frames := make([]uint64, depths), make([]int, depths)
	walk := func(e *trace.Event) ([]uint64, unwind.Trail) {
		var trail unwind.Trail
		return names.Unwind(unwind.WithTrail(t.Context(), &trail), e.PID, e.Registers, e.StackCopy), trail
	}
	for levels := range depths {
		for range 2 { // a stack that comes once may never come again
			addresses, trail := walk(p.throwFrom(t, levels))
			qt.Assert(t, qt.IsFalse(trail.IsLost))
			frames[levels] = len(addresses)
			known.Know(uint32(p.PID), addresses[0], trail.Words, fmt.Sprint(levels),
				func(hits uint64) { counted[levels] += hits })
		}
	}
	for levels := range depths {
		for range more {
			p.Do(strconv.Itoa(levels))
		}
	}
	addresses, _ := walk(p.throwFrom(t, depths+5))
	qt.Check(t, qt.Equals(len(addresses), frames[0]+depths+5)) // none of the others was sent
	qt.Check(t, qt.Equals(known.Take(), depths*more))
	qt.Check(t, qt.DeepEquals(counted, slices.Repeat([]uint64{more}, depths)))

	for range 2 {
		known.Renew()
		addresses, _ = walk(p.throwFrom(t, 7))
		qt.Check(t, qt.HasLen(addresses, frames[7]))
	}
	qt.Check(t, qt.Equals(known.Take(), depths*more))
	// What a signal has interrupted is found by more than words of the stack.
	p.Do("signal")
	_, trail := walk(p.next(t))
	qt.Check(t, qt.IsTrue(trail.IsLost))
}

// A copy that is too short has the innermost functions.
func TestUnwindEndsWithTheCopy(t *testing.T) {
	p := startThrowing(t, 4<<10)
	known := stack.NewSymbolizer("")
	defer known.Close()
	all := names(known, p.PID, unwound(known, p.throwFrom(t, 100)))
	qt.Assert(t, qt.IsTrue(len(all) > 3 && len(all) < 30), qt.Commentf("%d functions", len(all)))
	qt.Check(t, qt.DeepEquals(all[:3], []string{"__cxa_throw", "throw_it", "descend"}))
	qt.Check(t, qt.Equals(all[len(all)-1], "descend"))
}

func TestUnwindEndedProcesses(t *testing.T) {
	p := startThrowing(t, 16<<10)
	known := stack.NewSymbolizer("")
	defer known.Close()
	known.Remember(p.PID)
	event := p.throwFrom(t, 0)
	p.Kill()
	qt.Check(t, qt.DeepEquals(names(known, p.PID, unwound(known, event))[1:4],
		[]string{"throw_it", "descend", "throw_again"}))
	qt.Check(t, qt.Equals(known.Counts().CutStacks, 0))
	ended, end := context.WithCancel(t.Context())
	end()
	qt.Check(t, qt.HasLen(known.Unwind(ended, p.PID, event.Registers,
		event.StackCopy), 1))
	// Of one that nobody has looked at there is the instruction alone.
	unknown := stack.NewSymbolizer("")
	defer unknown.Close()
	qt.Check(t, qt.DeepEquals(unwound(unknown, event), event.Registers[len(event.Registers)-1:]))
}

func names(p *stack.Symbolizer, pid int, addresses []uint64) []string {
	var all []string
	for _, frame := range p.Frames(context.Background(), pid, addresses) {
		all = append(all, frame.Function)
	}
	return all
}

func BenchmarkUnwind(b *testing.B) {
	p := startThrowing(b, 16<<10)
	known := stack.NewSymbolizer("")
	defer known.Close()
	for _, levels := range []int{0, 16, 48} {
		event := p.throwFrom(b, levels)
		b.Run(fmt.Sprintf("functions=%d", len(unwound(known, event))), func(b *testing.B) {
			for b.Loop() {
				unwound(known, event)
			}
		})
	}
}
