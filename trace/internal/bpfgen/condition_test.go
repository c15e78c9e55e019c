// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// truth is what is known of a condition whose values may not be readable.
type truth int

const (
	isFalse truth = iota
	isUnknown
	isTrue
)

// evaluate says what a condition is at a hit, by exact arithmetic and the rules
// of logic with three values.
func (w *world) evaluate(k Kernel, node *expr.Node) truth {
	switch node.Op {
	case expr.Not:
		return isTrue - w.evaluate(k, node.Nodes[0])
	case expr.And, expr.Or:
		result := w.evaluate(k, node.Nodes[0])
		for _, n := range node.Nodes[1:] {
			if node.Op == expr.And {
				result = min(result, w.evaluate(k, n))
			} else {
				result = max(result, w.evaluate(k, n))
			}
		}
		return result
	}
	if node.Left.IsText() || node.Right.IsText() {
		return w.evaluateText(k, node)
	}
	left, ok := w.number(k, node.Left, node.Right)
	right, ok2 := w.number(k, node.Right, node.Left)
	switch {
	case !ok || !ok2:
		return isUnknown
	case left == nil || right == nil: // NaN
		return truthOf(node.Op == expr.NotEqual)
	default:
		return truthOf(node.Op.Holds(left.Cmp(right)))
	}
}

func truthOf(holds bool) truth {
	if holds {
		return isTrue
	}
	return isFalse
}

// number returns the exact value of a term, nil for what is not a number. A
// literal is rounded to the precision of what it is compared with.
func (w *world) number(k Kernel, t, other expr.Term) (*big.Float, bool) {
	exact := func() *big.Float { return new(big.Float).SetPrec(500) }
	integer := func(v uint64) (*big.Float, bool) {
		if t.HasMask {
			v &= t.Mask
		}
		return exact().SetUint64(v), true
	}
	switch t.Source {
	case expr.PID:
		return integer(uint64(w.pid))
	case expr.TID:
		return integer(uint64(w.tid))
	case expr.UID:
		return integer(uint64(w.uid))
	case expr.GID:
		return integer(uint64(w.gid))
	case expr.CPU:
		return integer(uint64(w.cpu))
	case expr.Cgroup:
		return integer(w.cgroup)
	case expr.Number:
		switch v := t.Number; {
		case other.Source == expr.Argument && !other.HasMask && other.Index < len(w.args) &&
			w.args[other.Index].Float:
			f := v.AsFloat()
			if w.args[other.Index].Size == 4 {
				f = float64(float32(f))
			}
			if math.IsInf(f, 0) {
				return exact().SetInf(f < 0), true
			}
			return exact().SetFloat64(f), true
		case v.IsFloat:
			return exact().SetFloat64(v.Float), true
		case v.Negative:
			return exact().SetInt64(int64(v.Bits)), true
		default:
			return exact().SetUint64(v.Bits), true
		}
	}
	if t.Index >= len(w.args) {
		return nil, false
	}
	value, ok := w.expect(k, t.Index)
	if !ok {
		return nil, false
	}
	arg := &w.args[t.Index]
	switch {
	case t.HasMask:
		return integer(value)
	case arg.Float:
		f := math.Float64frombits(value)
		if arg.Size == 4 {
			f = float64(math.Float32frombits(uint32(value)))
		}
		if math.IsNaN(f) {
			return nil, true
		}
		if math.IsInf(f, 0) {
			return exact().SetInf(f < 0), true
		}
		return exact().SetFloat64(f), true
	case arg.Signed:
		return exact().SetInt64(int64(value)), true
	default:
		return exact().SetUint64(value), true
	}
}

func (w *world) evaluateText(k Kernel, node *expr.Node) truth {
	t, literal := node.Left, node.Right.Text
	if t.Source == expr.Text {
		t, literal = node.Right, node.Left.Text
	}
	text := []byte(w.command)
	if t.Source == expr.String {
		if t.Index >= len(w.args) {
			return isUnknown
		}
		address, ok := w.expect(k, t.Index)
		if !ok {
			return isUnknown
		}
		// As many bytes as can matter: those after them may not be readable.
		limit := len(literal) + 2
		if t.Max > 0 && t.Max <= len(literal) {
			limit = t.Max + 1
		}
		if text, ok = w.text(argcode.Truncate(address, w.args[t.Index].Size), limit); !ok {
			return isUnknown
		}
		if t.Max > 0 {
			text = text[:min(len(text), t.Max)]
		}
	}
	return truthOf((string(text) == literal) == (node.Op == expr.Equal))
}

// text returns the bytes up to the first zero, at most limit-1.
func (w *world) text(address uint64, limit int) ([]byte, bool) {
	var text []byte
	for len(text) < limit-1 {
		b := make([]byte, 1)
		if !w.user(b, address+uint64(len(text))) {
			return nil, false
		}
		if b[0] == 0 {
			break
		}
		text = append(text, b[0])
	}
	return text, true
}

// randomCondition makes up a condition over the arguments of a hit, with
// numbers that are close to them.
func (w *world) randomCondition(k Kernel, random *rand.Rand, depth int) string {
	if depth > 0 {
		switch a, b := w.randomCondition(k, random, depth-1),
			w.randomCondition(k, random, depth-1); random.IntN(5) {
		case 0:
			return "(" + a + " && " + b + ")"
		case 1:
			return "(" + a + " || " + b + ")"
		case 2:
			return "!" + "(" + a + ")"
		case 3:
			return a + " && " + b
		}
	}
	index := random.IntN(len(w.args) + 1)
	ops := []string{"==", "!=", "<", "<=", ">", ">="}
	op := ops[random.IntN(len(ops))]
	argument := fmt.Sprintf("arg%d", index)
	switch random.IntN(12) {
	case 0:
		return argument
	case 1:
		return fmt.Sprintf("%s & %#x %s arg%d", argument, random.Uint64()>>random.IntN(64), op,
			random.IntN(len(w.args)))
	case 2:
		return fmt.Sprintf("%s %s arg%d", argument, op, random.IntN(len(w.args)))
	case 3:
		words := []string{"pid", "tid", "uid", "gid", "cpu", "cgroup"}
		return fmt.Sprintf("%s %s %s", words[random.IntN(len(words))], op, argument)
	case 4:
		return fmt.Sprintf("%s %s pid & 0xff", argument, op)
	case 5:
		return fmt.Sprintf(`comm %s "%s"`, ops[random.IntN(2)],
			[]string{"worker", "worke", "workers", ""}[random.IntN(4)])
	case 6:
		return w.randomText(k, random, index, ops[random.IntN(2)])
	}
	return fmt.Sprintf("%s %s %s", argument, op, w.randomNumber(k, random, index))
}

// randomNumber returns a number that an argument is likely to be equal to, or
// close.
func (w *world) randomNumber(k Kernel, random *rand.Rand, index int) string {
	if index >= len(w.args) {
		return "1"
	}
	value, _ := w.expect(k, index)
	value += uint64(random.IntN(3) - 1)
	switch arg := &w.args[index]; {
	case random.IntN(10) == 0:
		return strconv.FormatInt(random.Int64()>>random.IntN(64), 10)
	case arg.Float && arg.Size == 4:
		return notNaN(float64(math.Float32frombits(uint32(value))))
	case arg.Float:
		return notNaN(math.Float64frombits(value))
	case random.IntN(10) == 0:
		return strconv.FormatFloat(float64(int32(value))+0.5, 'f', 1, 64)
	case arg.Signed:
		return strconv.FormatInt(int64(value), 10)
	default:
		return strconv.FormatUint(value, 10)
	}
}

func notNaN(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}

func (w *world) randomText(k Kernel, random *rand.Rand, index int, op string) string {
	literal := []byte("text")
	if index < len(w.args) {
		address, _ := w.expect(k, index)
		if found, ok := w.text(argcode.Truncate(address, w.args[index].Size),
			2+random.IntN(30)); ok {
			literal = bytes.Clone(found)
		}
		switch n := len(literal); {
		case random.IntN(4) == 0 && n > 0:
			literal = literal[:n-1]
		case random.IntN(4) == 0 && n > 0:
			literal[random.IntN(n)] ^= 4
			literal = bytes.ReplaceAll(literal, []byte{0}, []byte{1})
		}
	}
	term := fmt.Sprintf("arg%d", index)
	if random.IntN(2) == 0 {
		term = fmt.Sprintf("str(arg%d, %d)", index, max(1, len(literal)+random.IntN(3)))
	}
	return term + " " + op + " " + strconv.Quote(string(literal))
}

// Whatever the condition and the arguments, the program finds what exact
// arithmetic finds.
func TestConditionsHoldWhereTheyShould(t *testing.T) {
	for _, k := range testKernels {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			var outcomes [3]int
			for range 2000 {
				w := k.newWorld(random, 1+random.IntN(6))
				w.pointIntoMemory(&k, random)
				w.oldText = random.IntN(2) == 0
				source := w.randomCondition(k.forPlan(), random, random.IntN(4))
				node, err := expr.ParseCondition(source, nil, nil)
				if err != nil && strings.Contains(err.Error(), "text") {
					continue // a text that cannot be written
				}
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", source))
				w.addMap(testCounters, true, 4, 8, int(CounterCount))
				plan := &Plan{Kernel: k.forPlan(), Filter: node, Counters: testCounters,
					Events: &Events{Ring: testRing, RingSize: 1 << 20}}
				block, err := plan.Block(&Site{Args: w.args})
				if err != nil {
					qt.Assert(t, qt.ErrorMatches(err,
						".*a float can only be compared.*|.*it cannot be compared with.*"))
					continue
				}
				want := w.evaluate(plan.Kernel, node)
				outcomes[want]++
				if block != nil {
					qt.Assert(t, qt.IsNil(w.run(append(asm.Instructions{asm.Mov.Reg(asm.R6,
						asm.R1)}, block.Instructions...))))
				}
				qt.Assert(t, qt.Equals(len(w.records) == 1, want == isTrue),
					qt.Commentf("%s of %v", source, w.args))
			}
			for _, n := range outcomes {
				qt.Assert(t, qt.IsTrue(n > 80), qt.Commentf("%v", outcomes))
			}
		})
	}
}

// pointIntoMemory has some registers point to texts.
func (w *world) pointIntoMemory(k *testKernel, random *rand.Rand) {
	for i := range w.args {
		arg := &w.args[i]
		if arg.Kind != argspec.InRegister || random.IntN(2) == 0 {
			continue
		}
		at := random.IntN(userMemorySize)
		memory := w.memory[userMemory]
		for n := at; n < min(at+random.IntN(20), len(memory)); n++ {
			memory[n] = byte('a' + random.IntN(3))
		}
		memory[min(at+random.IntN(20), len(memory)-1)] = 0
		slot, _ := arg.Register.Slot(k.kernel)
		word := argcode.WordSize(k.kernel)
		w.store(w.context[slot*word:][:word], userMemory+uint64(at))
	}
}
