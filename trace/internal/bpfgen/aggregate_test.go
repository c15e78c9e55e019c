// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

const (
	testCounters = 70 + iota // descriptors
	testRows
	testCalls
	testZeros
	testSaved
)

// expected is what an accumulator should come to.
type expected struct {
	count, sum, upper uint64
	low, high         expr.Value
}

func (e *expected) add(bits uint64, v expr.Value) {
	if e.count++; e.count == 1 || v.Compare(e.low) < 0 {
		e.low = v
	}
	if e.count == 1 || v.Compare(e.high) > 0 {
		e.high = v
	}
	e.sum += bits
	if e.upper += bits >> 32; v.Negative {
		e.upper += 0xffffffff << 32
	}
}

func valueIn(c Class, bits uint64) expr.Value {
	switch c {
	case ClassSigned:
		return expr.Int(int64(bits))
	case ClassFloat32:
		return expr.Fraction(float64(math.Float32frombits(uint32(bits))))
	case ClassFloat64:
		return expr.Fraction(math.Float64frombits(bits))
	default:
		return expr.Uint(bits)
	}
}

// Hits with random arguments, aggregated by one of them and by the command,
// come to what they should.
func TestAccumulatorsHoldWhatHasBeenAdded(t *testing.T) {
	for _, k := range testKernels {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, 6))
			for range 100 {
				w := k.newWorld(random, 2)
				value, key := expr.Term{Source: expr.Argument},
					expr.Term{Source: expr.Argument, Index: 1}
				a := &Aggregation{
					Map: testRows, Applies: func(*Site) bool { return true }, Value: &value,
					Keys: []expr.Term{key, {Source: expr.Command}},
					Sum:  !w.args[0].Float, Min: random.IntN(2) == 0, Max: random.IntN(2) == 0,
				}
				if random.IntN(2) == 0 {
					a.Keys = nil
				}
				plan := &Plan{Kernel: k.forPlan(), Counters: testCounters,
					Aggregations: []*Aggregation{a}}
				block, err := plan.Block(&Site{Args: w.args})
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.IsFalse(block.UsesID))
				program := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
					block.Instructions...)

				parts, keySize := a.KeyLayout()
				rows := w.addMap(testRows, false, keySize, a.ValueSize(), 100)
				if a.Keys == nil {
					rows = w.addMap(testRows, true, 4, a.ValueSize(), a.Entries())
				}
				counters := w.addMap(testCounters, true, 4, 8, int(CounterCount))
				want := make(map[string]*expected)
				unreadable := uint64(0)
				valueClass, keyClass := classOf(&w.args[0]), classOf(&w.args[1])
				for range 20 {
					// Another hit: values change, what is pointed to stays.
					for i := range w.memory[userMemory] {
						w.memory[userMemory][i] = byte(random.Uint32() & 0x81)
					}
					w.command = []string{"a", "bb"}[random.IntN(2)]
					qt.Assert(t, qt.IsNil(w.run(program)))
					bits, ok := w.expect(plan.Kernel, 0)
					by, ok2 := w.expect(plan.Kernel, 1)
					if !ok || a.Keys != nil && !ok2 {
						unreadable++
						continue
					}
					v := valueIn(valueClass, bits)
					if v.IsFloat && math.IsNaN(v.Float) && (a.Min || a.Max) {
						unreadable++ // it is neither the least nor the greatest
						continue
					}
					row := ""
					if a.Keys != nil {
						row = fmt.Sprint(by, w.command)
					}
					if want[row] == nil {
						want[row] = &expected{}
					}
					want[row].add(bits, v)
				}

				qt.Assert(t, qt.Equals(w.counter(counters, CounterUnreadable), unreadable))
				found := 0
				for raw, value := range rows.values {
					count := w.load(value[:8])
					if count == 0 {
						continue
					}
					found++
					row := ""
					class := Class(w.load([]byte(raw)[:4]))
					if a.Keys != nil {
						part := []byte(raw)[parts[1].Offset:][:parts[1].Size]
						row = fmt.Sprint(w.load([]byte(raw)[:8]), string(part[:textEnd(part)]))
						classes := uint32(w.load([]byte(raw)[keySize-8:][:4]))
						class = Class(w.load([]byte(raw)[keySize-4:]))
						qt.Assert(t, qt.Equals(KeyClass(classes, 0), keyClass))
						qt.Assert(t, qt.Equals(KeyClass(classes, 1), ClassUnsigned))
					}
					qt.Assert(t, qt.Equals(class, valueClass))
					w.checkRow(t, a, class, want[row], value)
				}
				qt.Assert(t, qt.Equals(found, len(want)))
			}
		})
	}
}

func (w *world) checkRow(t *testing.T, a *Aggregation, c Class, want *expected, value []byte) {
	t.Helper()
	qt.Assert(t, qt.IsNotNil(want))
	words := func() uint64 {
		word := w.load(value[:8])
		value = value[8:]
		return word
	}
	qt.Assert(t, qt.Equals(words(), want.count))
	if a.Sum {
		qt.Assert(t, qt.Equals(words(), want.sum))
		qt.Assert(t, qt.Equals(words(), want.upper))
	}
	for _, extreme := range []struct {
		wanted, min bool
		value       expr.Value
	}{{a.Min, true, want.low}, {a.Max, false, want.high}} {
		if extreme.wanted {
			got := valueIn(c, Unsortable(c, words(), extreme.min))
			qt.Assert(t, qt.Equals(got.Compare(extreme.value), 0),
				qt.Commentf("got %v want %v", got, extreme.value))
		}
	}
}

func (m *bpfMachine) counter(counters *bpfMap, c Counter) uint64 {
	key := make([]byte, 4)
	m.order.PutUint32(key, uint32(c))
	return m.load(counters.values[string(key)])
}

func textEnd(b []byte) int {
	for i, c := range b {
		if c == 0 {
			return i
		}
	}
	return len(b)
}

// Every value lands in the bucket whose bounds it is between.
func TestValuesLandBetweenTheBoundsOfTheirBucket(t *testing.T) {
	k := testKernels[0]
	random := rand.New(rand.NewPCG(7, 8))
	for _, h := range []Histogram{
		{}, {Scale: 3}, {Low: 0, High: 100, Step: 10}, {Low: -50, High: 50, Step: 1},
		{Low: 7, High: 10, Step: 3},
		{Low: -20, High: -10, Step: 5},
		{Low: math.MinInt64, High: math.MaxInt64, Step: math.MaxUint64 / 5},
		{Low: math.MinInt64 + 1, High: math.MaxInt64, Step: 1<<63 - 1},
		{Low: 1 << 40, High: 1<<40 + 1<<45, Step: 1 << 35},
		{Scale: 3, Unit: 1e9}, {Limits: []int64{0}}, {Limits: []int64{-1, 10, 100, 1000, 1 << 40}},
		{Limits: []int64{math.MinInt64, -3, -1, 0, 1, 2, math.MaxInt64 - 1}},
	} {
		for _, size := range []string{"-8", "8"} {
			program, a := histogramOf(t, k, size, &h)
			for i := range 1000 {
				value := random.Uint64() >> random.IntN(64)
				if i%3 == 0 {
					value = -value
				}
				if i%5 == 0 {
					value = uint64(h.Low) + uint64(random.IntN(200)-100)
				}
				if i < 130 {
					value = 1<<(i/2) - uint64(i%2)
				}
				bucket, sum := bucketOf(t, k, program, a, value)
				v := valueIn(map[string]Class{"-8": ClassSigned, "8": ClassUnsigned}[size], value)
				low, high, lowNegative, highNegative := h.Bounds(bucket)
				least, greatest := expr.Value{Bits: low, Negative: lowNegative},
					expr.Value{Bits: high, Negative: highNegative}
				qt.Assert(t, qt.IsTrue(least.Compare(v) <= 0 && v.Compare(greatest) <= 0),
					qt.Commentf("%+v of %+v is not between %+v and %+v", v, h, least, greatest))
				qt.Assert(t, qt.Equals(sum, value))
			}
		}
	}
}

func TestBucketsFollowEachOther(t *testing.T) {
	for _, h := range []Histogram{{Low: 0, High: 100, Step: 10}, {Low: -50, High: 50, Step: 5},
		{Low: -20, High: -10, Step: 5},
		{}, {Scale: 1}, {Scale: 2}, {Scale: 3}, {Scale: 4}, {Scale: 4, Unit: 1e6},
		{Limits: []int64{-100, -1, 0, 5, 1e9}}} {
		for bucket := 1; bucket < h.Buckets(); bucket++ {
			_, before, _, beforeNegative := h.Bounds(bucket - 1)
			low, high, lowNegative, highNegative := h.Bounds(bucket)
			if beforeNegative && before == 1<<63 {
				continue // with a unit, no number is in the first buckets
			}
			qt.Check(t, qt.Equals(low, before+1), qt.Commentf("bucket %d of %+v", bucket, h))
			if h.IsExponential() {
				qt.Check(t, qt.IsTrue(lowNegative || high+1 >= low || high == math.MaxUint64))
				continue
			}
			qt.Check(t,
				qt.IsTrue(expr.Value{Bits: before,
					Negative: beforeNegative}.Compare(expr.Value{Bits: low,
					Negative: lowNegative}) < 0))
			qt.Check(t,
				qt.IsTrue(expr.Value{Bits: low,
					Negative: lowNegative}.Compare(expr.Value{Bits: high,
					Negative: highNegative}) <= 0))
		}
	}
}

// exactIndex returns the index that OpenTelemetry gives a value above 0 that is
// divided by a unit: the greatest i for which the quotient is above base^i. It
// multiplies instead of taking roots.
func exactIndex(value, unit uint64, scale int) int {
	per := big.NewInt(1 << scale)
	// value/unit > 2^(i/per) is value^per > unit^per * 2^i.
	power := new(big.Int).Exp(new(big.Int).SetUint64(value), per, nil)
	one := new(big.Int).Exp(new(big.Int).SetUint64(unit), per, nil)
	i := power.BitLen() - one.BitLen()
	for ; ; i-- {
		left, right := power, one
		if i >= 0 {
			right = new(big.Int).Lsh(one, uint(i))
		} else {
			left = new(big.Int).Lsh(power, uint(-i))
		}
		if left.Cmp(right) > 0 {
			return i
		}
	}
}

// The programs put every value at, next to and between the bounds of all
// buckets where OpenTelemetry puts it.
func TestExponentialBucketsAreThoseOfOpenTelemetry(t *testing.T) {
	k := testKernels[0]
	random := rand.New(rand.NewPCG(17, 18))
	for _, unit := range []uint64{1, 1e9, 7, 3 << 60} {
		for scale := range MaxScale + 1 {
			h := &Histogram{Scale: scale, Unit: unit}
			values := []uint64{0, 1, 2, 3, unit, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
			for i := range 64 << scale {
				_, bound, _, _ := h.Bounds(h.Zero() + 1 + i)
				values = append(values, bound-1, bound, bound+1, random.Uint64()>>random.IntN(64))
			}
			for _, size := range []string{"-8", "8"} {
				program, a := histogramOf(t, k, size, h)
				for _, value := range values {
					got, _ := bucketOf(t, k, program, a, value)
					want := h.Zero()
					switch {
					case size == "-8" && int64(value) < 0:
						want -= 2 + h.Shift() + exactIndex(-value, unit, scale)
					case value > 0:
						want += 2 + h.Shift() + exactIndex(value, unit, scale)
					}
					if got != want {
						t.Fatalf("unit %d, scale %d: %#x of %s bytes is in bucket %d, not in %d",
							unit, scale, value, size, got-h.Zero(), want-h.Zero())
					}
				}
			}
		}
	}
}

// histogramOf returns a program that distributes an argument of the given size.
func histogramOf(
	t *testing.T, k testKernel, size string, h *Histogram,
) (asm.Instructions, *Aggregation) {
	t.Helper()
	a := &Aggregation{
		Map:       testRows,
		Applies:   func(*Site) bool { return true },
		Value:     &expr.Term{Source: expr.Argument},
		Sum:       true,
		Histogram: h,
	}
	plan := &Plan{Kernel: k.forPlan(), Counters: testCounters, Aggregations: []*Aggregation{a}}
	block, err := plan.Block(&Site{Args: argspec.Parse(k.program, size+"@%rax")})
	qt.Assert(t, qt.IsNil(err))
	return append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, block.Instructions...), a
}

// bucketOf returns where a program puts a value, and the sum there.
func bucketOf(
	t *testing.T, k testKernel, program asm.Instructions, a *Aggregation, value uint64,
) (bucket int, sum uint64) {
	t.Helper()
	m := newBPFMachine(k.order)
	k.setRegister(m, "%rax", value)
	rows := m.addMap(testRows, true, 4, a.ValueSize(), 0)
	rows.all = true
	qt.Assert(t, qt.IsNil(m.run(program)))
	qt.Assert(t, qt.HasLen(rows.values, 1))
	for key, accumulator := range rows.values {
		bucket, sum = int(m.load([]byte(key))), m.load(accumulator[8:])
		qt.Assert(t, qt.Equals(m.load(accumulator[:8]), 1))
	}
	return bucket, sum
}

func TestProcessesOfOtherNamespacesHaveNoNumber(t *testing.T) {
	for _, k := range testKernels {
		kernel := k.forPlan()
		w := k.newWorld(rand.New(rand.NewPCG(15, 16)), 0)
		a := &Aggregation{
			Map:     testRows,
			Applies: func(*Site) bool { return true },
			Keys:    []expr.Term{{Source: expr.PID}, {Source: expr.TID}},
		}
		plan := &Plan{Kernel: kernel, Counters: testCounters, Aggregations: []*Aggregation{a}}
		block, err := plan.Block(&Site{})
		qt.Assert(t, qt.IsNil(err))
		parts, size := a.KeyLayout()
		rows := w.addMap(testRows, false, size, a.ValueSize(), 3)
		w.addMap(testCounters, true, 4, 8, int(CounterCount))
		hit := func(foreign bool) {
			w.pid, w.tid, w.foreign = 7, 8, foreign
			qt.Assert(t, qt.IsNil(w.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
				block.Instructions...))))
		}
		hit(false)
		hit(true)
		var got [][2]uint64
		for key := range rows.values {
			number := func(part int) uint64 { return w.load([]byte(key[parts[part].Offset:][:8])) }
			got = append(got, [2]uint64{number(0), number(1)})
		}
		want := [][2]uint64{{7, 8}}
		if kernel.PIDs != nil {
			want = append(want, [2]uint64{0, 0})
		}
		qt.Check(t, qt.ContentEquals(got, want), qt.Commentf("%s", k.name))
	}
}

// Programs add floats as the processor does, but for the last bit.
func TestFloatsAreAddedUp(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	number := func(size int) float64 {
		switch random.IntN(4) {
		case 0:
			return float64(random.IntN(7) - 3)
		case 1:
			return math.Ldexp(random.Float64()-0.5, random.IntN(120)-60)
		case 2:
			return math.Float64frombits(random.Uint64())
		default:
			return random.NormFloat64()
		}
	}
	for _, size := range []int{4, 8} {
		for _, exchange := range []bool{false, true} {
			k := testKernels[0]
			w := k.newWorld(random, 0)
			args := argspec.Parse(k.program, fmt.Sprintf("%df@%s", size, k.registers[0]))
			kernel := k.forPlan()
			kernel.CompareExchange = exchange
			plan := &Plan{Kernel: kernel, Counters: testCounters, Aggregations: []*Aggregation{{
				Map: testRows, Applies: func(*Site) bool { return true }, Sum: true,
				Value: &expr.Term{Source: expr.Argument}}}}
			block, err := plan.Block(&Site{Args: args})
			qt.Assert(t, qt.IsNil(err))
			program := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, block.Instructions...)
			a := plan.Aggregations[0]
			rows := w.addMap(testRows, true, 4, a.ValueSize(), a.Entries())
			counters := w.addMap(testCounters, true, 4, 8, int(CounterCount))
			slot, _ := args[0].Register.Slot(k.kernel)
			sum, unreadable, infinite := 0.0, uint64(0), 0
			for i := range 20000 {
				v := number(size)
				if i%100 < 3 && size == 8 {
					v = math.Copysign(1.6e308, sum) // of three, the sum overflows
				}
				bits := math.Float64bits(v)
				if size == 4 {
					bits = uint64(math.Float32bits(float32(v)))
					v = float64(float32(v))
				}
				w.store(w.context[8*slot:][:8], bits)
				qt.Assert(t, qt.IsNil(w.run(program)))
				if math.IsNaN(v) || math.IsInf(v, 0) {
					unreadable++
					continue
				}
				var got float64
				for key, value := range rows.values {
					if w.load([]byte(key)) == uint64(ClassFloat64) {
						got = math.Float64frombits(w.load(value[8:][:8]))
					}
				}
				want := sum + v
				if math.IsInf(want, 0) { // and begins anew
					qt.Assert(t, qt.Equals(got, want))
					infinite++
					for _, value := range rows.values {
						clear(value)
					}
					sum = 0
					continue
				}
				tolerance := math.Abs(want)*0x1p-51 + 0x1p-1021
				qt.Assert(t, qt.IsTrue(math.Abs(got-want) <= tolerance),
					qt.Commentf("%d: %g + %g = %g, not %g", i, sum, v, want, got))
				sum = got
			}
			qt.Check(t, qt.Equals(w.counter(counters, CounterUnreadable), unreadable))
			qt.Check(t, qt.IsTrue(infinite > 0 || size == 4))
		}
	}
}
