// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// callWorld runs the programs of the starts and ends of two pairs.
type callWorld struct {
	*world
	t        *testing.T
	kernel   *testKernel
	plan     *Plan
	latency  *Latency
	counters *bpfMap
	args     []argspec.Arg
	foreign  bool // starts and ends are in different functions
}

func newCallWorld(
	t *testing.T, k *testKernel, random *rand.Rand, filter string, by expr.Term,
) *callWorld {
	c := &callWorld{world: k.newWorld(random, 0), t: t, kernel: k}
	c.latency = &Latency{
		Match: Match{Start: by, Done: by}, Starts: testCalls, Zeros: testZeros, Saved: testSaved,
		SavedSize: 512, Birth: 40, Spans: true,
	}
	c.plan = &Plan{
		Kernel: k.forPlan(), Counters: testCounters, Latencies: []*Latency{c.latency},
		Events: &Events{Ring: testRing, RingSize: 1 << 20},
	}
	if filter != "" {
		c.plan.Filter = parseCondition(t, filter)
		c.plan.Filter.NumberAtStart(0)
		c.latency.Conditions = StartConditions(nil, c.plan.Filter, false)
	}
	c.addMap(testCalls, false, 16, CallsSize, 100)
	c.addMap(testZeros, true, 4, CallsSize, 1)
	c.maps[testZeros].valueSize = 0 // any size up to its own is read
	c.addMap(testSaved, false, 24, c.latency.SavedSize, 1000)
	c.counters = c.addMap(testCounters, true, 4, 8, int(CounterCount))
	c.args = argspec.Parse(k.program, "8@"+k.registers[0])
	return c
}

// hit passes a site. It returns what it sent: the duration, and the argument of
// the start.
func (c *callWorld) hit(ends Ends, tid uint32, now, sp, arg uint64) (sent [][2]uint64) {
	c.t.Helper()
	ends.Framed = ends.Framed || !c.foreign && ends.Failed == 0
	site := &Site{Provider: "p", Name: "n", Args: c.args, Pairs: map[*Latency]Ends{c.latency: ends}}
	block, err := c.plan.Block(site)
	qt.Assert(c.t, qt.IsNil(err))
	c.tid, c.now, c.records = tid, now, nil
	if saved, ok := savedRegisters[c.kernel.kernel]; ok {
		c.store(c.context[8*saved.SP:][:8], sp)
	}
	slot, _ := c.args[0].Register.Slot(c.kernel.kernel)
	c.store(c.context[8*slot:][:8], arg)
	blocks := &Blocks{}
	blocks.Add(block)
	id := uint64(7 + ends.Start)
	qt.Assert(c.t, qt.IsNil(c.run(blocks.Fixed(0, id<<32).Instructions)))
	for _, raw := range c.records {
		span := block.Record.Span
		qt.Assert(c.t, qt.Equals(c.load(raw[span.Found:][:8]), 1))
		qt.Assert(c.t, qt.Equals(c.load(raw[span.Began:][:8])+c.load(raw[span.Duration:][:8]), now))
		startSite := &Site{Provider: "p", Name: "n", Args: c.args,
			Pairs: map[*Latency]Ends{c.latency: {Start: 1}}}
		start, err := c.plan.Block(startSite)
		qt.Assert(c.t, qt.IsNil(err))
		failed := c.load(raw[span.Word:][:8])>>FlagFailed&1 != 0
		qt.Assert(c.t, qt.Equals(failed, ends.Failed != 0))
		sent = append(sent, [2]uint64{c.load(raw[span.Duration:][:8]),
			c.load(raw[span.Saved+start.Saved.Args[0].Value:][:8])})
	}
	return sent
}

// callKernels are those whose registers hold 8 bytes, in both byte orders.
func callKernels() (all []*testKernel) {
	for i := range testKernels {
		if slices.Contains([]string{"x86-64", "arm64", "s390x", "riscv64"}, testKernels[i].name) {
			all = append(all, &testKernels[i])
		}
	}
	return all
}

// A program whose functions call each other at random, and are left by
// exceptions at random, is measured as it runs.
func TestCallsAreMeasured(t *testing.T) {
	type call struct {
		pair       uint32
		began, arg uint64
	}
	for _, k := range callKernels() {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(21, 22))
			c := newCallWorld(t, k, random,
				"duration >= 100ns && (start.arg0 != 3 || !(start.arg0 > 2)) && arg0 != 4",
				expr.Term{Source: expr.TID})
			const threads = 3
			running := make([][]call, threads) // the calls of each, the innermost last
			now := uint64(1000)
			var left, unmatched uint64
			sp := func(depth int) uint64 { return 1<<40 - 64*uint64(depth) }
			// A call that was left is found to be by the next hit of its pair
			// further out.
			var gone [threads][3][]int // depths, by pair
			found := func(tid int, pair uint32, depth int) {
				deeper := func(d int) bool { return d > depth }
				all := len(gone[tid][pair])
				gone[tid][pair] = slices.DeleteFunc(gone[tid][pair], deeper)
				left += uint64(all - len(gone[tid][pair]))
			}
			for range 2000 {
				now += random.Uint64N(60)
				tid := random.IntN(threads)
				calls := &running[tid]
				depth := len(*calls)
				switch n := random.IntN(100); {
				case depth > 0 && n < 48 && depth < 20 || depth == 0 && n >= 30:
					new := call{uint32(1 + random.IntN(2)), now, random.Uint64N(6)}
					found(tid, new.pair, depth)
					sent := c.hit(Ends{Start: new.pair}, uint32(tid), now, sp(depth), new.arg)
					qt.Assert(t, qt.HasLen(sent, 0))
					*calls = append(*calls, new)
				case depth == 0:
					found(tid, 1, 0)
					sent := c.hit(Ends{Done: 1}, uint32(tid), now, sp(0), 0)
					qt.Assert(t, qt.HasLen(sent, 0))
					unmatched++
				default:
					// An exception leaves some calls, and the one below goes
					// on.
					thrown := 0
					if random.IntN(5) == 0 {
						thrown = random.IntN(min(depth, 5))
					}
					this := (*calls)[depth-1-thrown]
					for i, abandoned := range (*calls)[depth-thrown:] {
						gone[tid][abandoned.pair] = append(gone[tid][abandoned.pair], depth-thrown+i)
					}
					found(tid, this.pair, depth-1-thrown)
					arg := random.Uint64N(6)
					sent := c.hit(Ends{Done: this.pair}, uint32(tid), now, sp(depth-1-thrown), arg)
					var want [][2]uint64
					if now-this.began >= 100 && this.arg != 3 && arg != 4 {
						want = append(want, [2]uint64{now - this.began, this.arg})
					}
					qt.Assert(t, qt.DeepEquals(sent, want))
					*calls = (*calls)[:depth-1-thrown]
				}
			}
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterLeft), left))
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), unmatched))
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterStarts), 0))
			qt.Check(t, qt.IsTrue(left > 20 && unmatched > 0),
				qt.Commentf("%d, %d", left, unmatched))
		})
	}
}

// A call that fails ends at another probe, far below in the stack. An end that
// comes all the same is not another one's, and none is counted as lost.
func TestCallsThatFail(t *testing.T) {
	start, done, failed := Ends{Start: 1}, Ends{Done: 1}, Ends{Failed: 1}
	const outer, inner, below = 1000, 900, 500 // in the stack
	for _, k := range callKernels() {
		t.Run(k.name, func(t *testing.T) {
			c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.TID})
			c.latency.Fails = true
			now := uint64(1000)
			hit := func(ends Ends, sp, arg uint64) [][2]uint64 {
				now += 10
				return c.hit(ends, 1, now, sp, arg)
			}
			none := func(sent [][2]uint64) {
				t.Helper()
				qt.Check(t, qt.HasLen(sent, 0))
			}
			one := func(sent [][2]uint64, took, arg uint64) {
				t.Helper()
				qt.Check(t, qt.DeepEquals(sent, [][2]uint64{{took, arg}}))
			}
			none(hit(failed, below, 0)) // nothing goes on
			none(hit(start, outer, 1))
			one(hit(done, outer, 0), 10, 1)
			for range 3 * MaxCalls {
				none(hit(start, outer, 2))
				one(hit(failed, below, 0), 10, 2)
			}
			none(hit(failed, below, 0)) // it has failed before
			none(hit(done, outer, 0))   // it goes on to its end all the same
			none(hit(failed, below, 0))

			none(hit(start, outer, 3))
			none(hit(start, inner, 4))
			one(hit(failed, below, 0), 10, 4)
			one(hit(done, outer, 0), 30, 3) // without the end of the inner one
			none(hit(start, outer, 5))
			none(hit(start, inner, 6))
			one(hit(failed, below, 0), 10, 6)
			none(hit(done, inner, 0))
			one(hit(done, outer, 0), 40, 5)
			for counter := range CounterCount {
				qt.Check(t, qt.Equals(c.counter(c.counters, counter), 0), qt.Commentf("%d", counter))
			}
			none(hit(done, outer, 0))
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), 1))

			c = newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.Argument})
			c.latency.Fails = true
			none(hit(start, outer, 7))
			none(hit(start, outer, 8))
			one(hit(failed, below, 7), 20, 7)
			none(hit(failed, below, 7))
			one(hit(done, outer, 8), 30, 8)
			none(hit(done, outer, 7))
			none(hit(start, outer, 7))
			one(hit(done, outer, 7), 10, 7)
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), 0))
		})
	}
}

func TestCallsByArgument(t *testing.T) {
	for _, k := range callKernels() {
		c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.Argument})
		c.hit(Ends{Start: 1}, 1, 100, 0, 7)
		c.hit(Ends{Start: 1}, 1, 110, 0, 8)
		c.hit(Ends{Start: 2}, 1, 120, 0, 7)
		// Another thread.
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 2, 130, 0, 7), [][2]uint64{{30, 7}}))
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 2, 131, 0, 8), [][2]uint64{{21, 8}}))
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 2}, 2, 140, 0, 7), [][2]uint64{{20, 7}}))
		qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 2, 150, 0, 7), 0))
		c.hit(Ends{Start: 1}, 1, 160, 0, 7)
		c.pid++
		qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 2, 170, 0, 7), 0)) // another process
		qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), 2))
	}
}

// A call that goes on is not forgotten for others that have ended.
func TestEndedCallsByArgumentTakeNoRoom(t *testing.T) {
	for _, k := range callKernels() {
		c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "duration > 5ns",
			expr.Term{Source: expr.Argument})
		c.maps[testCalls].max, c.maps[testSaved].max = 2, 2
		c.hit(Ends{Start: 1}, 1, 100, 0, 7)
		for id := range uint64(4) {
			c.hit(Ends{Start: 1}, 1, 200, 0, 10+id)
			sent := c.hit(Ends{Done: 1}, 2, 204+id, 0, 10+id)
			qt.Check(t, qt.Equals(len(sent) > 0, id > 1)) // others are filtered out
		}
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 300, 0, 7), [][2]uint64{{200, 7}}))
		qt.Check(t, qt.Equals(c.counter(c.counters, CounterStarts), 0))
	}
}

// Two threads pass a start and an end of one key at the same time: the end read
// the clock first.
func TestEndBeforeItsStart(t *testing.T) {
	for _, k := range callKernels() {
		c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.Argument})
		c.hit(Ends{Start: 1}, 1, 100, 0, 7)
		qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 2, 99, 0, 7), 0))
		qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), 1))
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 104, 0, 7), [][2]uint64{{4, 7}}))
	}
}

// What is both the end of a call and the start of the next is measured from hit
// to hit.
func TestCallsFromHitToHit(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	both := Ends{Start: 1, Done: 1}
	qt.Check(t, qt.HasLen(c.hit(both, 1, 100, 0, 1), 0))
	qt.Check(t, qt.DeepEquals(c.hit(both, 1, 103, 0, 2), [][2]uint64{{3, 1}}))
	qt.Check(t, qt.DeepEquals(c.hit(both, 1, 109, 0, 3), [][2]uint64{{6, 2}}))
}

func TestTooManyCallsAtOnce(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	const more = 10
	for i := range uint64(MaxCalls + more) {
		c.hit(Ends{Start: 1}, 1, 1000+i, 1<<40-64*i, i)
	}
	qt.Check(t, qt.Equals(c.counter(c.counters, CounterReplaced), more))
	for i := range uint64(MaxCalls) {
		n := MaxCalls + more - 1 - i
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 2000+i, 1<<40-64*n, 0),
			[][2]uint64{{1000 + i - n, n}}))
	}
	for range more {
		qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 1, 3000, 0, 0), 0))
	}
	qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), more))
}

// A call is itself, however many calls inside it were left by exceptions.
func TestManyCallsAreLeft(t *testing.T) {
	for _, k := range callKernels() {
		c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.TID})
		const left = MaxCalls - 1
		for i := range uint64(3) {
			c.hit(Ends{Start: 1}, 1, 100, 1<<40, i)
			for n := range left * (i % 2) {
				c.hit(Ends{Start: 1}, 1, 200+n, 1<<40-64, 9)
			}
			qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 1000, 1<<40, 0),
				[][2]uint64{{900, i}}))
		}
		qt.Check(t, qt.Equals(c.counter(c.counters, CounterLeft), left))
	}
}

// Where ends are in other functions than starts, frames tell nothing.
func TestCallsWhoseEndsAreInOtherFunctions(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	c.foreign = true
	for range 2 {
		c.hit(Ends{Start: 1}, 1, 100, 1<<40, 1)
		c.hit(Ends{Start: 1}, 1, 101, 1<<40-64, 2)
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 110, 1<<40, 0), [][2]uint64{{9, 2}}))
		qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 120, 1<<40+64, 0), [][2]uint64{{20, 1}}))
	}
	qt.Check(t, qt.Equals(c.counter(c.counters, CounterReplaced), 0))
}

// A call that was left by a thread that has ended is not one of a later thread
// with the same number.
func TestCallsOfAnEarlierThread(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	const second = uint64(time.Second)
	c.born = 1 * second
	c.hit(Ends{Start: 1}, 1, 2*second, 0, 1)
	qt.Check(t,
		qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 5*second, 0, 0), [][2]uint64{{3 * second, 1}}))
	c.hit(Ends{Start: 1}, 1, 6*second, 0, 1)
	c.born = 7 * second
	qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 1, 8*second, 0, 0), 0))
	qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 1, 8*second, 0, 0), 0))
	qt.Check(t, qt.Equals(c.counter(c.counters, CounterUnmatched), 2))
}

func TestCallsWithoutRoom(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	c.maps[testCalls].max = 1
	c.hit(Ends{Start: 1}, 1, 100, 0, 1)
	c.hit(Ends{Start: 1}, 2, 100, 0, 1)
	qt.Check(t, qt.Equals(c.counter(c.counters, CounterStarts), 1))
	qt.Check(t, qt.HasLen(c.hit(Ends{Done: 1}, 2, 110, 0, 0), 0))
	qt.Check(t, qt.DeepEquals(c.hit(Ends{Done: 1}, 1, 110, 0, 0), [][2]uint64{{10, 1}}))
}

// A stack of calls can be read between any two stores of a program, which may
// wait there: it shows no call that does not go on.
func TestCallsCanBeReadAtAnyTime(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	c := newCallWorld(t, callKernels()[0], random, "", expr.Term{Source: expr.TID})
	going := make(map[time.Duration]bool) // by when they began
	c.stored = func() {
		for _, stack := range c.maps[testCalls].values {
			for _, call := range c.latency.Calls(stack) {
				qt.Assert(t, qt.IsTrue(going[call.Began]), qt.Commentf("began at %d", call.Began))
			}
		}
	}
	var began []time.Duration
	for now := uint64(1000); now < 2000; now++ {
		sp := 1<<40 - 64*uint64(len(began))
		if n := len(began) - 1; n >= 0 && random.IntN(4) < 1+int(now/200%2)*2 { // up and down
			c.hit(Ends{Done: 1}, 1, now, sp+64, 0)
			delete(going, began[n])
			began = began[:n]
		} else if n < MaxCalls {
			going[time.Duration(now)] = true
			began = append(began, time.Duration(now))
			c.hit(Ends{Start: 1}, 1, now, sp, 0)
		}
	}
}

// Nothing is generated where there is nothing to do, and a condition that can
// hold nowhere is found out.
func TestBlocksOfCalls(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "arg7 == 1",
		expr.Term{Source: expr.TID})
	for ends, want := range map[Ends]string{{}: "none", {Start: 1}: "starts", {Done: 1}: "ends"} {
		block, err := c.plan.Block(&Site{Args: c.args, Pairs: map[*Latency]Ends{c.latency: ends}})
		qt.Assert(t, qt.IsNil(err))
		got := "none"
		if block != nil {
			qt.Check(t, qt.IsFalse(block.Delivers))
			got = map[bool]string{true: "ends", false: "starts"}[block.Ends]
		}
		qt.Check(t, qt.Equals(got, want), qt.Commentf("%v", fmt.Sprint(ends)))
	}
}

// The keys of a call's time are those of its end: a site that is an end and has
// none of them says so.
func TestMissingKeysOfCallsAreNamed(t *testing.T) {
	c := newCallWorld(t, &testKernels[0], rand.New(rand.NewPCG(1, 2)), "",
		expr.Term{Source: expr.TID})
	c.plan.Aggregations = []*Aggregation{{Latency: c.latency,
		Keys: []expr.Term{{Source: expr.Argument, Index: 5}}}}
	site := func(ends Ends) *Site {
		return &Site{Provider: "p", Name: "n", Args: c.args,
			Pairs: map[*Latency]Ends{c.latency: ends}}
	}
	const missing = `p:n has no arg5 \(start.arg5 is of the start\)`
	qt.Check(t, qt.ErrorMatches(c.plan.Missing(site(Ends{Done: 1})), missing))
	qt.Check(t, qt.IsNil(c.plan.Missing(site(Ends{Start: 1}))))
	named := site(Ends{Done: 1})
	named.Names = []string{"size"}
	qt.Check(t, qt.ErrorMatches(c.plan.Missing(named), missing))
}

// An interpreter changes between invocations of functions on one stack. By its
// frames each end has its own start, and each call its callers.
func TestCallsOfAnInterpreter(t *testing.T) {
	const variable, frames, caller = 1 << 33, 1 << 35, 24
	type call struct{ began, arg, frame uint64 }
	for _, k := range callKernels() {
		t.Run(k.name, func(t *testing.T) {
			w := newNestedWorld(t, k)
			l := w.latency
			l.Deep = true
			w.plan.Aggregations[0].Value = &expr.Term{Source: expr.Duration}
			w.addMap(testCalls, false, 16, l.StackSize(), 100)
			w.addMap(testZeros, true, 4, l.StackSize(), 1).valueSize = 0
			random := rand.New(rand.NewPCG(51, 52))
			word := func(at, value uint64) {
				w.memory[at] = make([]byte, 8)
				w.store(w.memory[at], value)
			}
			const pc = 1 << 20
			w.store(w.context[8*savedRegisters[k.kernel].PC:][:8], pc)
			a := Activation{Variable: variable - pc, Members: [MaxActivation]int32{16}, Depth: 1,
				Caller: caller}
			names, greenlets := []string{"main", "price", "sell"}, make([][]call, 12)
			now, free, switches, at := uint64(1000), []uint64(nil), 0, 0
			for i := range uint64(400) {
				free = append(free, frames+i*64)
			}
			path := func(calls []call) (text string) {
				for _, c := range calls {
					text += ";" + names[c.arg]
				}
				return text[1:]
			}
			for range 1500 {
				now += 1 + random.Uint64N(50)
				if random.IntN(3) == 0 {
					at = random.IntN(len(greenlets))
					switches++
				}
				calls := greenlets[at]
				sp := 1<<40 - 64*random.Uint64N(8) // shows nothing
				loop := sp + 8
				word(variable, loop)
				if len(calls) == 0 || len(calls) < 20 && random.IntN(2) == 0 {
					n, around := random.IntN(len(names)), uint64(0)
					if len(calls) > 0 {
						around = calls[len(calls)-1].frame
					}
					c := call{now, uint64(n), free[0]}
					free = free[1:]
					word(loop+16, c.frame)
					word(c.frame+caller, around)
					name := userMemory + uint64(strings.Index("main\x00price\x00sell", names[n]))
					qt.Assert(t, qt.HasLen(w.hit(Ends{Start: 1, Activation: a}, 1, now, sp, name), 0))
					greenlets[at] = append(calls, c)
					continue
				}
				this := calls[len(calls)-1]
				word(loop+16, this.frame)
				clear(w.rows.values)
				sent := w.hit(Ends{Done: 1, Activation: a}, 1, now, sp, 0)
				qt.Assert(t, qt.HasLen(sent, 1))
				qt.Assert(t, qt.Equals(sent[0][0], now-this.began))
				qt.Assert(t, qt.HasLen(w.rows.values, 1))
				for key := range w.rows.values {
					qt.Assert(t, qt.Equals(w.path(w.load([]byte(key)[:8])), path(calls)))
				}
				free, greenlets[at] = append(free, this.frame), calls[:len(calls)-1]
			}
			for counter := range CounterCount {
				qt.Check(t, qt.Equals(w.counter(w.counters, counter), 0), qt.Commentf("%d", counter))
			}
			qt.Check(t, qt.IsTrue(switches > 300))
			delete(w.memory, variable)
			qt.Check(t, qt.HasLen(w.hit(Ends{Done: 1, Activation: a}, 1, now, 1<<41, 0), 0))
			qt.Check(t, qt.Equals(w.counter(w.counters, CounterUnmatched), 1))
		})
	}
}

// Without those frames, calls inside each other are measured until an end has
// another name than the last start, or a start is above an open call.
func TestCallsOfAnInterpreterWithoutItsFrames(t *testing.T) {
	start, done := Ends{Start: 1, Names: [2]int{1}, Lone: true}, Ends{Done: 1, Names: [2]int{1}}
	const outer, inner = 1 << 40, 1<<40 - 1000
	for _, k := range callKernels() {
		for _, foreign := range []bool{false, true} {
			for _, mixes := range []func(c *callWorld){
				func(c *callWorld) { c.hit(done, 1, 2000, inner, 3) },
				func(c *callWorld) { c.hit(start, 1, 2000, outer, 4); c.hit(done, 1, 2001, outer, 4) },
			} {
				c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.TID})
				c.foreign = foreign
				one := func(sent [][2]uint64, took, arg uint64) {
					t.Helper()
					qt.Check(t, qt.DeepEquals(sent, [][2]uint64{{took, arg}}))
				}
				c.hit(start, 1, 1000, outer, 1)
				for i := range uint64(3 * MaxCalls) {
					c.hit(start, 1, 1100+i, inner, 2)
					c.hit(start, 1, 1100+i, inner, 1)
					one(c.hit(done, 1, 1110+i, inner, 1), 10, 1)
					one(c.hit(done, 1, 1120+i, inner, 2), 20, 2)
				}
				one(c.hit(done, 1, 1500, outer, 1), 500, 1)
				c.hit(start, 1, 1600, outer, 3)
				c.hit(start, 1, 1700, inner, 2)
				qt.Check(t, qt.Equals(c.counter(c.counters, CounterOverlapped), 0))
				mixes(c)
				qt.Check(t, qt.Equals(c.counter(c.counters, CounterOverlapped), 1))
				c.hit(start, 1, 2100, inner, 5)
				qt.Check(t, qt.HasLen(c.hit(done, 1, 2200, inner, 5), 0))
				qt.Check(t, qt.HasLen(c.hit(done, 1, 2300, outer, 3), 0))
				qt.Check(t, qt.Equals(c.counter(c.counters, CounterOverlapped), 3))
				c.hit(start, 2, 2400, outer, 6)
				one(c.hit(done, 2, 2500, outer, 6), 100, 6) // another thread
				for key, stack := range c.maps[testCalls].values {
					thread := uint32(c.load([]byte(key)[:8]))
					if k.name != "s390x" { // stacks are read on the machine itself
						qt.Check(t, qt.Equals(c.latency.Compared(stack).Mixed, thread == 1))
					}
				}
				for _, counter := range []Counter{CounterLeft, CounterUnmatched} {
					qt.Check(t, qt.Equals(c.counter(c.counters, counter), 0))
				}
			}
		}
	}
}

// A start at which the condition on stacks holds gives up its thread's calls.
func TestCallsOfSeveralStacks(t *testing.T) {
	start, done := Ends{Start: 1, StacksIf: 1}, Ends{Done: 1, StacksIf: 1}
	const sp, own, stacks = 1 << 40, 3, 7
	for _, k := range callKernels() {
		t.Run(k.name, func(t *testing.T) {
			c := newCallWorld(t, k, rand.New(rand.NewPCG(1, 2)), "", expr.Term{Source: expr.TID})
			node, err := expr.ParseCondition("arg0 == 7", nil, nil)
			qt.Assert(t, qt.IsNil(err))
			c.latency.If = []*expr.Node{node}
			for _, thread := range []uint32{1, 2} {
				c.hit(start, thread, 1000, sp, own)
				c.hit(start, thread, 1100, sp, own)
				qt.Check(t, qt.HasLen(c.hit(done, thread, 1200, sp, own), 1))
			}
			c.hit(start, 1, 1300, sp, stacks)
			c.hit(start, 1, 1400, sp, own)
			for i := range uint64(3) {
				qt.Check(t, qt.HasLen(c.hit(done, 1, 1500+i, sp, own), 0))
			}
			qt.Check(t, qt.Equals(c.counter(c.counters, CounterOverlapped), 3))
			qt.Check(t, qt.DeepEquals(c.hit(done, 2, 1600, sp, own), [][2]uint64{{600, own}}))
			lost := c.counter(c.counters, CounterLeft) + c.counter(c.counters, CounterUnmatched)
			qt.Check(t, qt.Equals(lost, 0))
		})
	}
}
