// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// stackMachine is a hit on x86-64 with a stack of that many words, numbered
// from 1, and the register that points to it. RDI is 5, RSI points to the end
// of the stack.
func stackMachine(words int) *bpfMachine {
	m := newBPFMachine(binary.LittleEndian)
	memory := make([]byte, 8*words)
	for i := range words {
		m.store(memory[8*i:][:8], uint64(i+1))
	}
	m.memory[userMemory] = memory
	testKernels[0].setRegister(m, "%rsp", userMemory)
	testKernels[0].setRegister(m, "%rsi", userMemory+uint64(len(memory)))
	testKernels[0].setRegister(m, "%rdi", 5)
	return m
}

// stackArguments are the words of the stack, RDI, and a word of another place.
func stackArguments(words int) []argspec.Arg {
	var all []string
	for i := range words {
		all = append(all, fmt.Sprintf("8@%d(%%rsp)", 8*i))
	}
	return argspec.Parse(elf.EM_X86_64, strings.Join(append(all, "8@%rdi", "8@-8(%rsi)"), " "))
}

func parseCondition(t *testing.T, source string) *expr.Node {
	t.Helper()
	node, err := expr.ParseCondition(source, nil, nil)
	qt.Assert(t, qt.IsNil(err))
	return node
}

// A condition reads neighbours by one call, and only where it comes to one of
// them.
func TestConditionsReadNeighboursTogether(t *testing.T) {
	for _, test := range []struct {
		condition string
		holds     bool
		reads     int
	}{
		{"arg0 == 1", true, 1},
		{"arg0 == 1 && arg1 == 2", true, 1},
		{"arg0 == 9 || arg1 == 9 || arg2 == 9 || arg3 == 9", false, 1},
		{"arg0 == 9 || arg1 == 9 || arg2 == 9 || arg3 == 4", true, 1},
		{"arg0 < arg1", true, 1},
		{"arg0 < arg1 && arg2 < arg3", true, 1},
		{"!(arg0 > arg1 || arg2 == 9)", true, 1},
		// What a register decides needs no memory.
		{"arg4 == 9 && arg0 == 1 && arg1 == 2", false, 0},
		{"arg4 == 5 || arg0 == 1 || arg1 == 2", true, 0},
		{"(arg4 == 9 && arg0 == 1) || (arg4 == 9 && arg1 == 2)", false, 0},
		{"(arg4 == 9 && arg0 == 1) || (arg4 == 5 && arg1 == 2)", true, 1},
		{"(arg4 == 5 || arg0 == 9) && arg1 == 2", true, 1},
		// Where it depends on a register whether they have been read, they are
		// read again.
		{"(arg4 == 9 || arg0 == 1) && arg1 == 2", true, 2},
		{"(arg4 == 5 && arg0 == 9) || (arg4 == 5 && arg1 == 9) || arg2 == 3", true, 3},
		// Another place is another call.
		{"arg0 == 1 && arg5 == 4", true, 2},
		{"arg0 == 9 || arg1 == 9 || arg5 == 9", false, 2},
	} {
		t.Run(test.condition, func(t *testing.T) {
			const words = 4
			m := stackMachine(words)
			hits := m.addMap(testRows, true, 4, 8, 1)
			a := &Aggregation{Map: testRows, Applies: func(*Site) bool { return true },
				Histogram: nil}
			plan := &Plan{Kernel: testKernels[0].forPlan(), Counters: testCounters,
				Filter: parseCondition(t, test.condition), Aggregations: []*Aggregation{a}}
			block, err := plan.Block(&Site{Args: stackArguments(words)})
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
				block.Instructions...))))
			qt.Check(t, qt.Equals(m.load(hits.values["\x00\x00\x00\x00"]) == 1, test.holds))
			qt.Check(t, qt.Equals(m.reads, test.reads))
		})
	}
}

// An aggregation reads what its condition, its keys and its value need by one
// call, unless the filter has.
func TestAggregationsReadNeighboursTogether(t *testing.T) {
	argument := func(i int) expr.Term { return expr.Term{Source: expr.Argument, Index: i} }
	value := argument(3)
	for _, test := range []struct {
		filter string
		reads  int
	}{
		{"", 1},
		{"arg4 == 5", 1},
		{"arg0 == 1 && arg1 < arg2 && arg3 == 4", 1},
		// Where one could not be read it is not certain what the filter has
		// read.
		{"arg0 == 9 || arg1 == 2", 3},
	} {
		m := stackMachine(4)
		a := &Aggregation{
			Map: testRows, Applies: func(*Site) bool { return true },
			Where: parseCondition(t, "arg1 == 2"),
			Keys:  []expr.Term{argument(0), argument(2)}, Value: &value, Sum: true,
		}
		_, keySize := a.KeyLayout()
		rows := m.addMap(testRows, false, keySize, a.ValueSize(), 10)
		plan := &Plan{Kernel: testKernels[0].forPlan(), Counters: testCounters,
			Aggregations: []*Aggregation{a}}
		if test.filter != "" {
			plan.Filter = parseCondition(t, test.filter)
		}
		block, err := plan.Block(&Site{Args: stackArguments(4)})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
			block.Instructions...))))
		qt.Check(t, qt.Equals(m.reads, test.reads), qt.Commentf("%s", test.filter))
		qt.Assert(t, qt.HasLen(rows.values, 1))
		for key, row := range rows.values {
			qt.Check(t, qt.Equals(m.load([]byte(key)[:8]), 1))
			qt.Check(t, qt.Equals(m.load([]byte(key)[8:16]), 3))
			qt.Check(t, qt.Equals(m.load(row[8:16]), 4))
		}
	}
}

// Where memory ends between neighbours, a condition finds what it would if it
// read each alone.
func TestConditionsReadNeighboursApartWhereOneIsMissing(t *testing.T) {
	for condition, holds := range map[string]bool{
		"arg0 == 1 || arg3 == 4":                     true,
		"arg3 == 4 || arg0 == 1":                     true,
		"arg0 == 9 || arg3 == 4":                     false,
		"arg0 == 1 && arg3 != 9":                     false,
		"arg0 == 1 && (arg3 == 4 || arg1 == 2)":      true,
		"!(arg0 == 9 && arg3 == 4) && arg1 == 2":     true,
		"!(arg0 == 1 && arg3 == 4) && arg1 == 2":     false,
		"arg0 < arg1 && (arg4 == 9 || arg1 == 2)":    true,
		"arg0 < arg3 || arg1 < arg2 || arg0 == arg0": true,
	} {
		m := stackMachine(2)
		m.addMap(testCounters, true, 4, 8, int(CounterCount))
		plan := &Plan{Kernel: testKernels[0].forPlan(), Filter: parseCondition(t, condition),
			Events: &Events{Ring: testRing, RingSize: 1 << 20}, Counters: testCounters}
		block, err := plan.Block(&Site{Args: stackArguments(4)})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
			block.Instructions...))))
		qt.Check(t, qt.Equals(len(m.records) == 1, holds), qt.Commentf("%s", condition))
	}
}

// newNeighbours makes up a hit with arguments that are close together, often
// where memory ends.
func (k *testKernel) newNeighbours(random *rand.Rand, count int) *world {
	const reach = 40
	w := k.newWorld(random, 0)
	base := k.registers[random.IntN(len(k.registers))]
	k.setRegister(w.bpfMachine, base,
		userMemory+uint64(random.IntN(2)*userMemorySize+random.IntN(4*reach)-2*reach))
	var all []string
	for range count {
		size := []int{1, 2, 4, 8}[random.IntN(4)]
		if k.kernel == elf.EM_ARM || k.program == elf.EM_386 {
			size = min(size, 4)
		}
		sign := []string{"", "-"}[random.IntN(2)]
		displacement := (random.IntN(2*reach) - reach) &^ (size - 1)
		all = append(all, fmt.Sprintf("%s%d@%s", sign, size,
			fillIn(k.memory, base, "", displacement, "")))
	}
	w.args = argspec.Parse(k.program, strings.Join(all, " "))
	return w
}

// comparisons makes up a condition over the arguments.
func (w *world) comparisons(k Kernel, random *rand.Rand, depth int) string {
	if depth > 0 {
		a, b := w.comparisons(k, random, depth-1), w.comparisons(k, random, depth-1)
		return []string{"", "!"}[random.IntN(2)] + "(" + a + []string{" && ",
			" || "}[random.IntN(2)] + b + ")"
	}
	index := random.IntN(len(w.args))
	op := []string{"==", "!=", "<", ">="}[random.IntN(4)]
	if random.IntN(4) == 0 {
		return fmt.Sprintf("arg%d %s arg%d", index, op, random.IntN(len(w.args)))
	}
	value, _ := w.expect(k, index)
	return fmt.Sprintf("arg%d %s %d", index, op, int64(value))
}

// Whatever can be read of neighbours, a filter and the condition of an
// aggregation find what they should.
func TestConditionsHoldWhereTheyShouldThoughNeighboursAreMissing(t *testing.T) {
	for _, k := range testKernels {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(15, 16))
			apart, aggregated := 0, 0
			for range 1000 {
				w := k.newNeighbours(random, 1+random.IntN(8))
				argument := func() expr.Term {
					return expr.Term{Source: expr.Argument,
						Index: random.IntN(len(w.args))}
				}
				filter := parseCondition(t, w.comparisons(k.forPlan(), random, random.IntN(4)))
				where := parseCondition(t, w.comparisons(k.forPlan(), random, random.IntN(3)))
				value := argument()
				a := &Aggregation{
					Map: testRows, Applies: func(*Site) bool { return true }, Where: where,
					Keys: []expr.Term{argument()}, Value: &value, Sum: true,
				}
				_, keySize := a.KeyLayout()
				rows := w.addMap(testRows, false, keySize, a.ValueSize(), 10)
				counters := w.addMap(testCounters, true, 4, 8, int(CounterCount))
				plan := &Plan{
					Kernel: k.forPlan(), Filter: filter, Counters: testCounters,
					Aggregations: []*Aggregation{a},
					Events:       &Events{Ring: testRing, RingSize: 1 << 20},
				}
				block, err := plan.Block(&Site{Args: w.args})
				qt.Assert(t, qt.IsNil(err))
				holds := w.evaluate(plan.Kernel, filter)
				if block == nil {
					qt.Assert(t, qt.Not(qt.Equals(holds, isTrue)))
					continue
				}
				qt.Assert(t, qt.IsNil(w.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
					block.Instructions...))))
				comment := qt.Commentf("%v where %v of %v", filter, where, w.args)
				qt.Assert(t, qt.Equals(len(w.records) == 1, holds == isTrue), comment)
				if w.failed > 0 && holds != isUnknown {
					apart++
				}

				sum, ok := w.expect(plan.Kernel, value.Index)
				by, ok2 := w.expect(plan.Kernel, a.Keys[0].Index)
				wanted := holds == isTrue && w.evaluate(plan.Kernel, where) == isTrue
				// Of a condition that does not hold, another part may have been
				// looked at first.
				if unread := w.counter(counters, CounterUnreadable) == 1; holds != isFalse {
					qt.Assert(t, qt.Equals(unread, holds == isUnknown || wanted && !(ok && ok2)), comment)
				}
				qt.Assert(t, qt.Equals(len(rows.values) == 1, wanted && ok && ok2), comment)
				for key, row := range rows.values {
					qt.Assert(t, qt.Equals(w.load([]byte(key)[:8]), by), comment)
					qt.Assert(t, qt.Equals(w.load(row[8:16]), sum), comment)
					if w.failed > 0 {
						aggregated++
					}
				}
			}
			qt.Assert(t, qt.IsTrue(apart > 50 && aggregated > 4),
				qt.Commentf("%d %d", apart, aggregated))
		})
	}
}

// What is between neighbours may be too much for the stack: then they are read
// one by one.
func TestNeighboursAreReadApartWhereTheStackIsFull(t *testing.T) {
	var args, terms []string
	for i := range 12 {
		args = append(args, fmt.Sprintf("8@%d(%%rsp)", 56*i))
		terms = append(terms, fmt.Sprintf("arg%d == %d", i, 7*i+1))
	}
	text := strings.Repeat("x", 120)
	condition := strings.Join(terms, " && ") + ` && str(arg0, 120) != "` + text + `"`
	m := stackMachine(100)
	m.memory[1] = append([]byte(text[1:]), 0)
	plan := &Plan{Kernel: testKernels[0].forPlan(), Filter: parseCondition(t, condition),
		Events: &Events{Ring: testRing, RingSize: 1 << 20}}
	block, err := plan.Block(&Site{Args: argspec.Parse(elf.EM_X86_64, strings.Join(args, " "))})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(m.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
		block.Instructions...))))
	qt.Check(t, qt.HasLen(m.records, 1))
	qt.Check(t, qt.Equals(m.reads, 13))
}

// Of alternatives each takes one jump: to the end where it holds, and none
// where it does not.
func TestAlternativesJumpOnlyWhereOneHolds(t *testing.T) {
	plan := &Plan{
		Kernel: testKernels[0].forPlan(), Filter: parseCondition(t,
			"arg0 == 1 || arg0 < -5 || arg0 > 100"),
		Events: &Events{Ring: testRing, RingSize: 1 << 20},
	}
	block, err := plan.Block(&Site{Args: argspec.Parse(elf.EM_X86_64, "-8@%rax")})
	qt.Assert(t, qt.IsNil(err))
	var jumps []asm.JumpOp
	for _, ins := range block.Instructions {
		if class := ins.OpCode.Class(); class == asm.JumpClass {
			jumps = append(jumps, ins.OpCode.JumpOp())
		}
		if ins.IsBuiltinCall() {
			break
		}
	}
	qt.Assert(t, qt.DeepEquals(jumps, []asm.JumpOp{asm.JEq, asm.JSLT, asm.JSLE, asm.Call}))
}
