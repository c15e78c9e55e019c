// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// The kernel accepts every program, whatever is asked for at once.
func TestKernelAcceptsWhatIsGenerated(t *testing.T) {
	testprog.RequireBPF(t)
	var name unix.Utsname
	qt.Assert(t, qt.IsNil(unix.Uname(&name)))
	machines := map[string]string{"x86_64": "x86-64", "aarch64": "arm64", "s390x": "s390x",
		"riscv64": "riscv64"}
	var k *testKernel
	for i := range testKernels {
		if testKernels[i].name == machines[unix.ByteSliceToString(name.Machine[:])] {
			k = &testKernels[i]
		}
	}
	qt.Assert(t, qt.IsNotNil(k), qt.Commentf("no arguments are known for this machine"))

	kernel := k.forPlan()
	kernel.Order = binary.NativeEndian
	kernel.CompareExchange = loadProgram(CompareExchangeProbe(), 0) == nil
	mode, err := usdt.ModeAuto.Resolve()
	qt.Assert(t, qt.IsNil(err))
	random := rand.New(rand.NewPCG(13, 14))
	newMap := func(spec *ebpf.MapSpec) int {
		m, err := ebpf.NewMap(spec)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { m.Close() })
		return m.FD()
	}
	counters := newMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8,
		MaxEntries: uint32(CounterCount)})
	ring := newMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 20})
	room := newMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: RoomStateSize,
		MaxEntries: 4})
	owners := newMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 8, ValueSize: OwnerKeysSize,
		MaxEntries: 16})
	const savedSize = 16 << 10
	calls := newMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 16, ValueSize: CallsSize,
		MaxEntries: 16})
	zeros := newMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: savedSize,
		MaxEntries: 1})
	saved := newMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 24, ValueSize: savedSize,
		MaxEntries: 16})
	processors := newMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8,
		MaxEntries: 1})
	refused := loadProgram(ProcessorIDProbe(), 0) != nil
	stackMap := &ebpf.MapSpec{Type: ebpf.StackTrace, KeySize: 4, ValueSize: 8 * 127, MaxEntries: 16}
	stacks := [2]int{newMap(stackMap), newMap(stackMap)}
	generations := newMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4,
		MaxEntries: 1, InnerMap: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8,
			MaxEntries: 1}})

	table := newMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: EntrySize, MaxEntries: 9})
	loaded, rounds := 0, testprog.Soak(100, 300)
	for range rounds {
		// As many sites as a file may have, a few of which share their code.
		count := 1 + random.IntN(11)
		w := k.newWorld(random, count)
		kernel.PIDs = nil
		if random.IntN(2) == 0 {
			kernel.PIDs = &testNamespace
		}
		kernel.Processors = 0
		if refused || random.IntN(2) == 0 {
			kernel.Processors = processors
		}
		plan := &Plan{Kernel: kernel, Counters: counters, Generations: generations}
		if random.IntN(2) == 0 {
			node, err := expr.ParseCondition(w.randomCondition(kernel, random, random.IntN(4)), nil,
				nil)
			if err != nil {
				continue
			}
			plan.Filter = node
		}
		if random.IntN(3) > 0 {
			plan.Events = &Events{
				Ring: ring, RingSize: 1 << 20, Header: random.IntN(2) == 1,
				Cgroup: random.IntN(2) == 1, Frames: random.IntN(2) * random.IntN(128),
				Batch: random.IntN(2) == 0, Captures: randomCaptures(random, len(w.args)),
			}
			if random.IntN(4) == 0 {
				plan.Events.Copy = CopyUnit * (1 + random.IntN(16))
			}
		}
		for range random.IntN(3) {
			a := randomAggregation(random, len(w.args))
			a.Stacks, a.Bit = stacks, random.IntN(64)
			if random.IntN(2) == 0 {
				a.Where = parseCondition(t, w.comparisons(kernel, random, random.IntN(3)))
			}
			spec := &ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4,
				ValueSize: uint32(a.ValueSize()), MaxEntries: 2 * uint32(a.Entries())}
			if len(a.Keys) > 0 {
				_, size := a.KeyLayout()
				a.Overflow = newMap(spec)
				spec = spec.Copy()
				spec.Type, spec.KeySize, spec.MaxEntries = ebpf.PerCPUHash, uint32(size), 16
				if random.IntN(2) == 0 {
					a.Room = &Room{
						State:  room,
						Signal: ring * random.IntN(2),
						Index:  uint32(random.IntN(2)),
						Owners: owners,
						Filled: 50,
						Size:   100,
						Share:  5,
					}
				}
			}
			if a.Map = newMap(spec); len(a.Keys) > 0 {
				a.Map = newMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4,
					MaxEntries: 2, InnerMap: spec})
			}
			if random.IntN(3) == 0 {
				a.Latency = &Latency{
					Starts: calls, Zeros: zeros, Saved: saved, SavedSize: savedSize,
					Birth: random.IntN(100), Fails: random.IntN(2) == 0,
					Match: Match{Start: expr.Term{Source: expr.TID},
						Done: expr.Term{Source: expr.Argument, Index: random.IntN(3)}},
					Spans: plan.Events != nil && random.IntN(2) == 0,
				}
				if random.IntN(2) == 0 {
					a.Latency.Done = a.Latency.Start
				}
				if l := a.Latency; l.ByThread() && !l.Fails && random.IntN(3) > 0 {
					l.Nested, l.Path = true, &expr.Term{Source: expr.String, Max: 14, Index: random.IntN(3)}
					l.Starts = newMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 16,
						ValueSize: uint32(l.StackSize()), MaxEntries: 16})
					l.Paths = newMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8,
						ValueSize: uint32(l.PathSize()), MaxEntries: 16})
					a.Value = &expr.Term{Source: expr.Self}
				}
				if a.Where != nil {
					a.Where = &expr.Node{Op: expr.And, Nodes: []*expr.Node{
						a.Where, parseCondition(t,
							`!(duration < 5ms) && (start.arg0 == 1 || !(str(start.arg0, 3) == "abc"))`),
					}}
					a.Where.NumberAtStart(0)
					a.Latency.Conditions = StartConditions(nil, a.Where, false)
				}
				plan.Latencies = append(plan.Latencies, a.Latency)
			}
			plan.Aggregations = append(plan.Aggregations, a)
		}

		var blocks Blocks
		generate := plan.Block
		if mode != usdt.ModeSingleIPMap && random.IntN(2) == 0 {
			blocks.Table = plan.NewTable()
			generate = blocks.Table.Block
		}
		for range 1 + random.IntN(20) {
			other := k.newWorld(random, count)
			if random.IntN(2) == 0 {
				other = k.newNeighbours(random, count)
			}
			site := &Site{Provider: "p", Name: "n", Args: other.args,
				Pairs: make(map[*Latency]Ends)}
			for _, l := range plan.Latencies {
				site.Pairs[l] = Ends{Start: uint32(random.IntN(3)), Done: uint32(random.IntN(3)),
					Compared: random.IntN(4), Width: random.IntN(9),
					Failed: uint32(random.IntN(2))}
			}
			if blocks.Table != nil {
				site.Args = k.otherArguments(random, other, count)
			}
			block, err := generate(site)
			if errors.Is(err, argcode.ErrStack) || err != nil && plan.Filter != nil ||
				err != nil && len(plan.Aggregations) > 0 {
				continue // too much, or a float where none can be
			}
			qt.Assert(t, qt.IsNil(err))
			if block != nil && (mode != usdt.ModeSingleIPMap || blocks.Len() == 0) {
				blocks.Add(block)
			}
		}
		if blocks.Len() == 0 {
			continue
		}
		programs := []Program{blocks.Fixed(0, random.Uint64())}
		if mode != usdt.ModeSingleIPMap {
			programs = append(programs, blocks.Programs(nil)...)
		}
		for i := range programs {
			var refused *ebpf.VerifierError
			if err := loadProgram(programs[i].WithTable(table), 0); errors.As(err, &refused) {
				t.Fatalf("%+v\n%v", refused, w.args)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		loaded++
	}
	qt.Assert(t, qt.IsTrue(loaded > rounds/3), qt.Commentf("%d", loaded))
}

func loadProgram(program asm.Instructions, flags uint32) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, Instructions: program,
		License: "Dual BSD/GPL", Flags: flags})
	if err == nil {
		prog.Close()
	}
	return err
}
