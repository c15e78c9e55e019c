// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestEventsAreDeliveredOrCountedAsLost(t *testing.T) {
	// The number of times that the group inlined, of five hits, is fired.
	burst := testprog.Soak(200_000, 1_000_000)
	smallBurst := min(burst, 100_000)
	slower := 1
	if testing.Short() || os.Getenv("GOUSDT_GUEST") != "" {
		slower = 100 // an emulated machine takes minutes for what is seconds here
	}
	for _, test := range []struct {
		name  string
		fires int
		opts  trace.SessionOptions
	}{
		{"small ring buffer", burst, trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 1 << 16}}},
		{"large ring buffer", smallBurst, trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 64 << 20}}},
		{"large ring buffer and delay", burst, trace.SessionOptions{Events: &trace.EventOptions{
			RingSize: 64 << 20,
			Delay:    10 * time.Millisecond,
		}}},
		{"small ring buffer and delay", smallBurst, trace.SessionOptions{
			Events: &trace.EventOptions{
				RingSize: 1 << 16,
				Delay:    time.Millisecond,
			}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fires := test.fires / slower
			hits := uint64(5 * fires)
			process := start(t, "target-pie")
			opts := test.opts
			sums := &trace.Aggregation{Value: "arg0", Sum: true}
			opts.Aggregations = []*trace.Aggregation{sums}
			s := open(t, process, "gousdt_test:inlined", &opts)

			began := time.Now()
			fired := make(chan error, 1)
			go func() {
				_, err := process.Command("fire inlined " + decimal(fires))
				s.Detach()
				fired <- err
			}()
			var delivered, sum, lost uint64
			gap := false
			for event, err := range s.Events(context.Background()) {
				var l trace.LostError
				if errors.As(err, &l) {
					lost += uint64(l)
					continue
				}
				qt.Assert(t, qt.IsNil(err))
				// The values come in order: 1 2 3 4 5 1 2 3 ...
				gap = gap || event.Args[0].Uint() != delivered%5+1
				delivered++
				sum += event.Args[0].Uint()
			}
			qt.Assert(t, qt.IsNil(<-fired))
			took := time.Since(began)
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			t.Logf("%d delivered, %d lost, %v for each", delivered, losses.Events,
				took/time.Duration(hits))

			qt.Assert(t, qt.Equals(delivered+losses.Events, hits))
			qt.Assert(t, qt.Equals(lost, losses.Events))
			if losses.Events == 0 {
				qt.Assert(t, qt.Equals(sum, 3*hits))
				qt.Assert(t, qt.IsFalse(gap))
			}
			row := snapshot(t, sums).Rows[0]
			qt.Assert(t, qt.Equals(row.Count, hits))
			qt.Assert(t, qt.Equals(row.Sum.Uint(), 3*hits))
		})
	}
}

func TestEventsWithDelay(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{
		Events: &trace.EventOptions{Delay: 5 * time.Millisecond}})
	for range 5 {
		process.Fire("inlined", 1)
		next(t, s, 5)
	}
	silent(t, s)
}

// The kernel wakes a reader whose events may be delayed for the first of them.
// It does not look for events again and again, and rests after the last.
func TestReaderSleepsWhileNothingComes(t *testing.T) {
	const delay = time.Millisecond
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{
		Events: &trace.EventOptions{Delay: delay}})
	var came, rests atomic.Int64
	rested := make(chan struct{}, 1)
	var reading sync.WaitGroup
	ctx := tracing.WithRest(t.Context(), func() {
		rests.Add(1)
		if came.Load() == 5 {
			select {
			case rested <- struct{}{}:
			default:
			}
		}
	})
	reading.Go(func() {
		for range s.Events(ctx) {
			came.Add(1)
		}
	})
	process.Fire("inlined", 1)
	<-rested
	before := rests.Load()
	time.Sleep(200 * delay) // what does not happen cannot be awaited
	qt.Check(t, qt.IsTrue(rests.Load()-before < 20), qt.Commentf("%d", rests.Load()-before))
	qt.Assert(t, qt.IsNil(s.Close()))
	reading.Wait()
}

func TestEventsOfThreads(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "three", nil)
	want := process.Thread("three", 5)
	var got []int
	for _, event := range next(t, s, 5) {
		qt.Assert(t, qt.Equals(event.PID, process.PID))
		got = append(got, event.TID)
	}
	slices.Sort(got)
	slices.Sort(want)
	qt.Assert(t, qt.DeepEquals(got, want))
}

func TestArgumentsOnly(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "twelve", &trace.SessionOptions{
		Events: &trace.EventOptions{ArgumentsOnly: true}})
	process.Fire("twelve", 1)
	event := next(t, s, 1)[0]
	qt.Check(t, qt.IsTrue(event.Time.IsZero()))
	qt.Check(t, qt.Equals(event.Monotonic, 0))
	qt.Check(t, qt.Equals(event.PID, 0))
	qt.Check(t, qt.Equals(event.TID, 0))
	qt.Check(t, qt.Equals(event.Command, ""))
	qt.Check(t, qt.Equals(event.Probe, "gousdt_test:twelve"))
	qt.Check(t, qt.Equals(event.Args[7].Uint(), 18000000000000000001))
	silent(t, s)
}

func TestEventsEndsWithItsContext(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", nil)
	ctx, cancel := context.WithCancel(context.Background())
	process.Fire("inlined", 1)
	n := 0
	for event, err := range s.Events(ctx) {
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(n+1)))
		if n++; n == 2 {
			cancel()
		}
	}
	qt.Assert(t, qt.Equals(n, 2))
	// What has been sent waits for the next iteration, also for one that is
	// left by break.
	for event, err := range s.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(event.Args[0].Int(), 3))
		break
	}
	for range s.Events(ctx) {
		t.Fatal("an event came though the context was done")
	}
	for i, event := range next(t, s, 2) {
		qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(i+4)))
	}

	// A reader that waits is woken.
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for range s.Events(ctx) {
		t.Fatal("an event came that nobody sent")
	}
	qt.Assert(t, qt.ErrorIs(ctx.Err(), context.DeadlineExceeded))
	silent(t, s)
}

func TestEventsEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(*trace.Session) error{"Close": (*trace.Session).Close,
		"Detach": (*trace.Session).Detach} {
		t.Run(name, func(t *testing.T) {
			process := start(t, "target-pie")
			s := open(t, process, "gousdt_test:inlined", nil)
			process.Fire("inlined", 1)
			ended := make(chan error)
			var events int
			for _, err := range s.Events(context.Background()) {
				qt.Assert(t, qt.IsNil(err))
				if events++; events == 5 {
					// Now the loop waits.
					go func() { ended <- end(s) }()
				}
			}
			qt.Assert(t, qt.IsNil(<-ended))
			qt.Assert(t, qt.Equals(events, 5))

			_, err := s.Attach(usdt.Target{Path: process.path}, nil,
				elfnote.Exact("gousdt_test", "three"))
			qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
			qt.Assert(t, qt.IsNil(s.Close()))
			qt.Assert(t, qt.IsNil(s.Close()))
			for range s.Events(context.Background()) {
				t.Fatal("an event came after Close")
			}
		})
	}
}

func TestEventsOnceAtATime(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", nil)
	process.Fire("inlined", 1)
	for range s.Events(context.Background()) {
		for event, err := range s.Events(context.Background()) {
			qt.Assert(t, qt.IsNil(event))
			qt.Assert(t, qt.ErrorMatches(err, "another iteration .* is going on"))
		}
		break
	}
	silent := newSession(t, aggregating(&trace.Aggregation{}))
	for event, err := range silent.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(event))
		qt.Assert(t, qt.ErrorMatches(err, ".*sends no events.*"))
	}
}

// A program that follows runs once for each event, and for no other hit.
func TestNext(t *testing.T) {
	testprog.RequireBPF(t)
	runs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	qt.Assert(t, qt.IsNil(err))
	defer runs.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, runs.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		}})
	qt.Assert(t, qt.IsNil(err))
	defer program.Close()

	p := start(t, "target-pie")
	s := open(t, p, "gousdt_test:specs", &trace.SessionOptions{Filter: "arg0 < 10",
		Events: &trace.EventOptions{Next: program}})
	p.Fire("specs", 3)
	qt.Check(t, qt.HasLen(next(t, s, 30), 30))
	var count uint64
	qt.Assert(t, qt.IsNil(runs.Lookup(uint32(0), &count)))
	qt.Check(t, qt.Equals(count, 30))

	_, err = trace.New(&trace.SessionOptions{Mode: usdt.ModeMulti,
		Events: &trace.EventOptions{Next: program}})
	qt.Check(t, qt.ErrorMatches(err, "option Next: .*another mode than ModeMulti.*"))
}

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

// stackPointers are the numbers of the stack pointer among Event.Registers.
var stackPointers = map[string]int{"amd64": 7, "arm64": 31, "riscv64": 2, "s390x": 15}

// The copy reaches from the stack pointer to the end of the stack, which is
// near enough in a small program.
func TestStackCopy(t *testing.T) {
	testprog.RequireBPF(t)
	const size = 64 << 10
	p := start(t, "target-pie")
	s := open(t, p, "gousdt_test:three", &trace.SessionOptions{
		Events: &trace.EventOptions{StackCopy: size}})
	p.Fire("three", 1)
	event := next(t, s, 1)[0]
	registers := event.Registers
	stackPointer := registers[stackPointers[runtime.GOARCH]]
	qt.Check(t, qt.Equals(registers[len(registers)-1], addressOf(t, p, event.Site.Offset)))

	end := stackEnd(t, p.PID)
	copied := uint64(len(event.StackCopy))
	qt.Assert(t, qt.Equals(copied, min(end-stackPointer, size)))
	// What main's callers have there has not changed since.
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	now := make([]byte, copied)
	_, err = memory.ReadAt(now, int64(stackPointer))
	qt.Assert(t, qt.IsNil(err))
	unchanged := copied * 3 / 4
	qt.Check(t, qt.DeepEquals(event.StackCopy[unchanged:], now[unchanged:]))
}

// addressOf returns where an offset in the program's file is in the process.
func addressOf(t *testing.T, p *traced, offset uint64) uint64 {
	t.Helper()
	files, err := procfs.Files("", p.PID)
	qt.Assert(t, qt.IsNil(err))
	for _, file := range files {
		for _, m := range file.Mappings {
			if address, ok := m.Address(offset); ok && file.Path == p.path {
				return address
			}
		}
	}
	t.Fatal("not mapped")
	return 0
}

func stackEnd(t *testing.T, pid int) uint64 {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[stack]\n") {
			var start, end uint64
			_, err := fmt.Sscanf(line, "%x-%x", &start, &end)
			qt.Assert(t, qt.IsNil(err))
			return end
		}
	}
	t.Fatal("no stack")
	return 0
}

func TestStackCopyErrors(t *testing.T) {
	for _, size := range []int{-1, 64<<10 + 1} {
		_, err := trace.New(&trace.SessionOptions{Events: &trace.EventOptions{StackCopy: size}})
		qt.Check(t, qt.ErrorMatches(err, "option StackCopy: .* is not between 0 and 65536"))
	}
}

// sampledEvents fires a probe and returns copies of its events. It checks that
// all hits are accounted for. "specs" has 300 sites, whose arguments count from
// 0 to 299, and "inlined" 5, from 1 to 5.
func sampledEvents(t *testing.T, probe string, opts *trace.EventOptions,
	fire func(*traced)) (events []trace.Event, losses trace.Losses, hits uint64) {
	t.Helper()
	testprog.RequireBPF(t)
	p := start(t, "target-pie")
	counted := &trace.Aggregation{}
	s := open(t, p, "gousdt_test:"+probe,
		&trace.SessionOptions{Aggregations: []*trace.Aggregation{counted}, Events: opts})
	fire(p)
	qt.Assert(t, qt.IsNil(s.Detach()))
	for event, err := range s.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(err))
		events = append(events, *event)
	}
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	snapshot, err := s.Snapshot(counted)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
	hits = snapshot.Rows[0].Count
	qt.Check(t, qt.Equals(uint64(len(events))+losses.NotSampled, hits))
	qt.Check(t, qt.Equals(weights(events)+losses.Unrepresented, hits))
	return events, losses, hits
}

func weights(events []trace.Event) (sum uint64) {
	for _, e := range events {
		sum += e.Weight
	}
	return sum
}

func TestSampleEvery(t *testing.T) {
	const every, fired = 10, 200
	events, losses, hits := sampledEvents(t, "specs", &trace.EventOptions{SampleEvery: every},
		func(p *traced) { p.Fire("specs", fired) })
	qt.Check(t, qt.Equals(hits, 300*fired), qt.Commentf("aggregations are of all hits"))
	qt.Check(t, qt.Equals(losses.Events, 0))
	// A tenth of the hits of each site, on average, wait for the next event.
	qt.Check(t, qt.IsTrue(losses.Unrepresented > 0 && losses.Unrepresented < 300*2*every),
		qt.Commentf("%d", losses.Unrepresented))
	// The standard deviation is 0.6 times the square root of the number.
	qt.Check(t, qt.IsTrue(len(events) > 5500 && len(events) < 6500), qt.Commentf("%d", len(events)))
	// Hits that alternate both have their part.
	odd := 0
	for _, e := range events {
		odd += int(e.Args[0].Uint() % 2)
	}
	share := float64(odd) / float64(len(events))
	qt.Check(t, qt.IsTrue(share > 0.45 && share < 0.55), qt.Commentf("%v", share))
}

// Events come all the time, however short the run is, and their weights stand
// for all hits.
func TestSampleRate(t *testing.T) {
	const rate = 100
	for _, test := range []struct{ least, pause time.Duration }{
		{least: time.Second / 2},
		{least: testprog.Soak(time.Second, 2*time.Second)},
		{least: testprog.Soak(time.Second, 2*time.Second), pause: 100 * time.Millisecond}, // many at once
	} {
		t.Run(fmt.Sprint(test.least, " ", test.pause), func(t *testing.T) {
			var took, idle time.Duration // idle: without hits for longer than what may come at once
			type moment struct{ at, busy time.Duration }
			var moments []moment
			fire := func(p *traced) {
				onOneProcessor(t, p)
				began := time.Now()
				// A busy machine takes long for each: few would say nothing.
				for n := 0; took < test.least || n < 10; n++ {
					p.Fire("inlined", 600)
					time.Sleep(test.pause)
					idle += max(0, time.Since(began)-took-time.Second/8)
					took = time.Since(began)
					moments = append(moments, moment{took, took - idle})
				}
			}
			events, _, hits := sampledEvents(t, "inlined",
				&trace.EventOptions{SamplePerSecond: rate}, fire)
			most := rate/8 + 1 + int(rate*took/time.Second)
			qt.Check(t, qt.IsTrue(len(events) <= most), qt.Commentf("%d of %d", len(events), most))
			if least := int(rate * (took - idle) / time.Second / 2); test.pause == 0 {
				qt.Check(t, qt.IsTrue(len(events) >= least),
					qt.Commentf("%d of %d", len(events), least))
			}
			// But for the hits after the last event of each site.
			share := float64(weights(events)) / float64(hits)
			qt.Check(t, qt.IsTrue(share <= 1 && share > 0.75), qt.Commentf("%v", share))
			early, odd := 0, uint64(0)
			// A busy machine may have most hits in one half of the time.
			isHalf := func(m moment) bool { return m.busy >= (took-idle)/2 }
			half := slices.IndexFunc(moments, isHalf)
			for _, e := range events {
				if e.Monotonic-events[0].Monotonic < moments[half].at {
					early++
				}
				odd += e.Args[0].Uint() % 2 * e.Weight
				qt.Check(t, qt.IsTrue(e.Weight < hits/4), qt.Commentf("%d of %d", e.Weight, hits))
			}
			first, late := moments[half], len(events)-early
			most = rate/8 + 1 + int(rate*first.at/time.Second)
			qt.Check(t, qt.IsTrue(early <= most), qt.Commentf("%d of %d", early, most))
			if least := int(rate * (took - idle - first.busy) / time.Second / 4); test.pause == 0 {
				qt.Check(t, qt.IsTrue(late >= least), qt.Commentf("%d of %d", late, least))
			}
			// Hits that alternate both have their part.
			share = float64(odd) / float64(weights(events))
			qt.Check(t, qt.IsTrue(share > 0.25 && share < 0.75), qt.Commentf("%v", share))
			t.Logf("%d events of %d hits in %v: %.3f", len(events), hits, took,
				float64(weights(events))/float64(hits))
		})
	}
}

// A hit of a quiet process that comes after a burst of another one does not
// stand for the burst.
func TestWeightsAreOfOneProcessAndSite(t *testing.T) {
	for name, opts := range map[string]*trace.EventOptions{"rate": {SamplePerSecond: 200},
		"every": {SampleEvery: 50}} {
		t.Run(name, func(t *testing.T) {
			const rounds, burst = 60, 2000
			var busy, quiet *traced
			events, _, hits := sampledEvents(t, "inlined", opts,
				func(p *traced) {
					busy, quiet = p, p.again(t)
					onOneProcessor(t, busy, quiet)
					for range rounds {
						busy.Fire("inlined", burst)
						quiet.Fire("inlined", 10)
					}
				})
			qt.Check(t, qt.Equals(hits, 5*rounds*(burst+10)))
			type key struct {
				pid  int
				site *trace.Site
			}
			stand := make(map[key]uint64)
			for _, e := range events {
				stand[key{e.PID, e.Site}] += e.Weight
			}
			for key, weight := range stand {
				most := uint64(rounds * burst)
				if key.pid == quiet.PID {
					most = rounds * 10
				}
				qt.Check(t, qt.IsTrue(weight <= most), qt.Commentf("%d stand for %d of process %d",
					most, weight, key.pid))
			}
		})
	}
}

// onOneProcessor has processes run on the first processor that they can have:
// each has its own sampling.
func onOneProcessor(t *testing.T, all ...*traced) {
	t.Helper()
	var allowed, one unix.CPUSet
	qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(all[0].PID, &allowed)))
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, p := range all {
		qt.Assert(t, qt.IsNil(unix.SchedSetaffinity(p.PID, &one)))
	}
}

// An eighth of the hits of a second may come at once.
func TestSampleRateTakesAllThatAreFew(t *testing.T) {
	events, losses, hits := sampledEvents(t, "specs",
		&trace.EventOptions{SamplePerSecond: 8 * 300},
		func(p *traced) { p.Fire("specs", 1) })
	qt.Check(t, qt.Equals(hits, 300))
	qt.Check(t, qt.HasLen(events, 300))
	qt.Check(t, qt.Equals(weights(events), 300))
	qt.Check(t, qt.Equals(losses.NotSampled, 0))
}

func TestEventsWithoutSamplingStandForOneHit(t *testing.T) {
	for _, every := range []int{0, 1} {
		events, losses, _ := sampledEvents(t, "specs", &trace.EventOptions{SampleEvery: every},
			func(p *traced) { p.Fire("specs", 1) })
		qt.Check(t, qt.HasLen(events, 300))
		qt.Check(t, qt.Equals(weights(events), 300))
		qt.Check(t, qt.Equals(losses.NotSampled, 0))
	}
}
