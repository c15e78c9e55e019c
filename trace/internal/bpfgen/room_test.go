// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// crowd is a program that counts by thread, with room for eight keys, after
// four of which there is a signal, and three in reserve.
type crowd struct {
	*world
	program                       asm.Instructions
	rows, room, owners, overflows *bpfMap
	overflow                      uint64 // the index of the only accumulator that is used
}

func newCrowd(t *testing.T, k testKernel, odd, signals bool) *crowd {
	t.Helper()
	const outer, overflow, room, signal, owners, generations, word = 80, 81, 82, 83, 84, 85, 86
	c := &crowd{world: k.newWorld(rand.New(rand.NewPCG(9, 10)), 0)}
	a := &Aggregation{
		Map:      testRows,
		Overflow: overflow,
		Applies:  func(*Site) bool { return true },
		Keys:     []expr.Term{{Source: expr.TID}},
		Value:    &expr.Term{Source: expr.CPU}, Sum: true,
		Room: &Room{State: room, Index: 1, Filled: 4, Size: 8, Share: 1, Owners: owners},
	}
	if signals {
		a.Room.Signal = signal
	}
	_, size := a.KeyLayout()
	c.rows = c.addMap(testRows, false, size, a.ValueSize(), 11)
	c.overflows = c.addMap(overflow, true, 4, a.ValueSize(), 2*a.Entries())
	c.room = c.addMap(room, true, 4, RoomStateSize, 4)
	c.owners = c.addMap(owners, false, 8, OwnerKeysSize, 5)
	c.addMap(testCounters, true, 4, 8, int(CounterCount))
	c.take(1)
	plan := &Plan{Kernel: k.forPlan(), Counters: testCounters, Aggregations: []*Aggregation{a}}
	if odd {
		a.Bit, a.Map, plan.Generations = 63, outer, generations
		c.overflow = uint64(a.Entries())
		c.addMap(outer, true, 4, 4, 2).inner = testRows
		c.addMap(generations, true, 4, 4, 1).inner = word
		c.store(c.addMap(word, true, 4, 8, 1).values["\x00\x00\x00\x00"], 1<<63)
	}
	block, err := plan.Block(&Site{})
	qt.Assert(t, qt.IsNil(err))
	c.program = append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, block.Instructions...)
	return c
}

// take empties the room for keys.
func (c *crowd) take(round uint64) {
	clear(c.rows.values)
	element := func(n uint64) []byte {
		index := make([]byte, 4)
		c.store(index, n)
		return c.room.values[string(index)]
	}
	copy(element(3)[:8], element(2)[:8])
	c.store(element(3)[8:12], round)
}

// hit is a hit of a control group, or of a user if that is the root, and
// reports whether it is counted by its key.
func (c *crowd) hit(t *testing.T, cgroup uint64, uid, tid uint32) bool {
	t.Helper()
	c.cgroup, c.uid, c.tid = cgroup, uid, tid
	before := c.overflowed()
	qt.Assert(t, qt.IsNil(c.run(c.program)))
	return c.overflowed() == before
}

// overflowed returns how many hits found no room.
func (c *crowd) overflowed() uint64 {
	return c.load(c.overflowing()[:8])
}

func (c *crowd) overflowing() []byte {
	index := make([]byte, 4)
	c.store(index, c.overflow)
	return c.overflows.values[string(index)]
}

func forEachCrowd(t *testing.T, test func(t *testing.T, k testKernel, odd, signals bool)) {
	for _, k := range testKernels {
		for _, odd := range []bool{false, true} {
			for _, signals := range []bool{false, true} {
				t.Run(fmt.Sprint(k.name, odd, signals),
					func(t *testing.T) { test(t, k, odd, signals) })
			}
		}
	}
}

// What finds no room is in the overflow, and the signal comes before. Of the
// reserve each owner has its share, be it a control group or a user.
func TestKeysOfOneOwnerLeaveRoomForThoseOfOthers(t *testing.T) {
	forEachCrowd(t, func(t *testing.T, k testKernel, odd, signals bool) {
		c := newCrowd(t, k, odd, signals)
		const flood, modest, another = 1<<40 + 1, 1<<40 + 2, 1<<40 + 3
		for i := range uint32(20) {
			for range 2 { // the second one finds the key, or still no room
				qt.Assert(t, qt.Equals(c.hit(t, flood, 0, i), i < 9), qt.Commentf("hit %d", i))
			}
		}
		index := make([]byte, 4)
		c.store(index, 1)
		if signals {
			// One for each new key that leaves no more than half of the room,
			// and for each that is refused: 22 hits.
			qt.Check(t, qt.HasLen(c.records, 6+22))
		} else {
			qt.Check(t, qt.HasLen(c.records, 0))
		}
		for _, record := range c.records {
			qt.Assert(t, qt.DeepEquals(record, append(index[:4:4], 0, 0, 0, 0)))
		}
		qt.Check(t, qt.HasLen(c.rows.values, 9))
		qt.Check(t, qt.Equals(c.overflowed(), 22))
		value := c.overflowing()
		qt.Check(t, qt.Equals(c.load(value[8:16]), 22*uint64(c.cpu)))

		qt.Check(t, qt.IsTrue(c.hit(t, modest, 0, 100)))
		qt.Check(t, qt.IsTrue(c.hit(t, rootCgroup, 1000, 101)))
		qt.Check(t, qt.IsFalse(c.hit(t, rootCgroup, 1000, 102)))
		qt.Check(t, qt.IsTrue(c.hit(t, modest, 0, 100))) // which is there already
		// Nothing is left for more owners than the reserve is made for.
		qt.Check(t, qt.IsFalse(c.hit(t, another, 0, 103)))
	})
}

// When the keys have been taken, all have their share again.
func TestOwnersHaveTheirShareAgain(t *testing.T) {
	forEachCrowd(t, func(t *testing.T, k testKernel, odd, signals bool) {
		c := newCrowd(t, k, odd, signals)
		const flood, modest = 1<<40 + 1, 1<<40 + 2
		for round := range uint64(3) {
			for i := range uint32(20) {
				qt.Assert(t, qt.Equals(c.hit(t, flood, 0, i), i < 9))
			}
			qt.Check(t, qt.IsTrue(c.hit(t, modest, 0, 100)))
			c.take(round + 2)
		}
	})
}

// The last word of an accumulator is the owner of the hit that made the key,
// whatever hits come later.
func TestKeysBelongToWhoMadeThem(t *testing.T) {
	forEachCrowd(t, func(t *testing.T, k testKernel, odd, signals bool) {
		c := newCrowd(t, k, odd, signals)
		for _, hit := range []struct {
			cgroup, owner uint64
			uid, tid      uint32
		}{{cgroup: 77, owner: 77, tid: 1}, {cgroup: 78, owner: 77, tid: 1},
			{cgroup: 0, uid: 9, owner: UserOwner | 9, tid: 2}} {
			clear(c.overflows.values["\x00\x00\x00\x00"])
			qt.Assert(t, qt.IsTrue(c.hit(t, hit.cgroup, hit.uid, hit.tid)))
			for key, value := range c.rows.values {
				if uint32(c.load([]byte(key)[:8])) == hit.tid {
					qt.Check(t, qt.Equals(c.load(value[len(value)-8:]), hit.owner))
				}
			}
		}
		qt.Check(t, qt.HasLen(c.rows.values, 2))
	})
}

// What programs write is where package trace reads it.
func TestStatesHaveTheirOffsets(t *testing.T) {
	for _, test := range []struct {
		state   reflect.Type
		size    int
		offsets []int
	}{
		{reflect.TypeFor[SamplingState](), SamplingStateSize, []int{stateSince, stateGap,
			stateLeftOut, stateStood, stateNext, stateBegan, stateHits, stateMean}},
		{reflect.TypeFor[OwnerState](), OwnerStateSize, []int{ownerPeriod, ownerBytes, ownerLost}},
		{reflect.TypeFor[RoomState](), RoomStateSize, []int{roomKeys, roomRound}},
	} {
		of := test.state
		qt.Check(t, qt.Equals(int(of.Size()), test.size))
		for i, offset := range test.offsets {
			qt.Check(t, qt.Equals(int(of.Field(i).Offset), offset), qt.Commentf("%s", of.Field(i).Name))
		}
	}
}
