// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// distributions are those of sizes and times as programs have them, and those
// that are hard for a histogram.
var distributions = map[string]func(*rand.Rand) float64{
	"uniform":     func(r *rand.Rand) float64 { return 1e6 * r.Float64() },
	"exponential": func(r *rand.Rand) float64 { return 50_000 * r.ExpFloat64() },
	"log-normal":  func(r *rand.Rand) float64 { return math.Exp(10 + 1.5*r.NormFloat64()) },
	"pareto":      func(r *rand.Rand) float64 { return 1000 * math.Pow(1-r.Float64(), -1/1.1) },
	"two modes": func(r *rand.Rand) float64 {
		if r.IntN(50) == 0 {
			return 5e9 + 1e8*r.NormFloat64()
		}
		return 3 + 2*math.Abs(r.NormFloat64())
	},
}

// Over ten million values, no quantile is further from the exact one than
// Row.Quantile says, whatever the distribution.
func TestQuantilesAreAsPreciseAsSaid(t *testing.T) {
	quantiles := []float64{0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1}
	limits := []float64{0.334, 0.172, 0.087, 0.0434, 0.0217} // by scale
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range distributions {
		values := make([]uint64, 2_000_000)
		for i := range values {
			values[i] = uint64(max(0, draw(random)))
		}
		slices.Sort(values)
		for scale, limit := range limits {
			row := rowOf(values, &bpfgen.Histogram{Scale: scale}, 1)
			worst := 0.0
			for _, q := range quantiles {
				exact := float64(values[max(0, int(math.Ceil(q*float64(len(values))))-1)])
				got := row.Quantile(q)
				distance := math.Abs(got - exact)
				if exact > 0 {
					distance /= exact
				}
				worst = max(worst, distance)
				qt.Check(t, qt.IsTrue(distance <= limit),
					qt.Commentf("%s, scale %d: quantile %g is %g, not %g", name, scale, q,
						got, exact))
			}
			t.Logf("%-12s scale %d: at most %.2f %%", name, scale, 100*worst)
		}
	}
}

// rowOf returns what programs keep of sorted values, or of their negatives.
func rowOf(values []uint64, h *bpfgen.Histogram, sign int) *Row {
	a := &aggregation{Aggregation: bpfgen.Aggregation{Histogram: h, Sum: true}}
	total := &total{Row: Row{histogram: h}}
	for bucket := h.Zero(); bucket < h.Buckets() && len(values) > 0; bucket++ {
		_, high, _, _ := h.Bounds(bucket)
		n := sort.Search(len(values), func(i int) bool { return values[i] > high })
		a.addTo(total, h.Zero()+sign*(bucket-h.Zero()), sums{count: uint64(n)})
		values = values[n:]
	}
	return &total.Row
}

// Also at the ends of the range, a value is within the bounds of its bucket.
func TestBucketsAtTheEndsOfTheRange(t *testing.T) {
	for _, unit := range []uint64{0, 3, 1000, 1_000_000, 1_000_000_000, 3 << 40} {
		for scale := range bpfgen.MaxScale + 1 {
			h := &bpfgen.Histogram{Scale: scale, Unit: unit}
			for _, test := range []struct {
				value uint64
				sign  int
			}{{math.MaxUint64, 1}, {1<<63 + 1, 1}, {1 << 63, 1}, {1<<63 - 1, 1}, {1, 1},
				{1 << 63, -1}, {1<<63 - 1, -1}, {1 << 62, -1}, {1, -1}} {
				row := rowOf([]uint64{test.value}, h, test.sign)
				value := floatValue(float64(test.sign) * float64(test.value))
				for coarse := 1; coarse <= 1<<scale; coarse *= 2 {
					for _, b := range row.Histogram(coarse) {
						qt.Check(t, qt.IsTrue(compareValues(b.Low, value) <= 0 &&
							compareValues(value, b.High) <= 0 || b.Count == 0),
							qt.Commentf("unit %d, scale %d of %d: %v is in %v", unit, coarse,
								1<<scale, value, b))
					}
				}
				distance := math.Abs(row.Quantile(0.5)/value.Float() - 1)
				qt.Check(t, qt.IsTrue(distance < 0.334), qt.Commentf("unit %d, scale %d: %v is %v",
					unit, scale, value, row.Quantile(0.5)))
			}
		}
	}
}

// An exporter takes the index of a bucket as it is.
func TestIndicesAreThoseOfOpenTelemetry(t *testing.T) {
	for _, unit := range []uint64{0, 1000} {
		for scale := range bpfgen.MaxScale + 1 {
			h := &bpfgen.Histogram{Scale: scale, Unit: unit}
			for _, sign := range []int{1, -1} {
				for _, value := range []uint64{1, 2, 3, 4, 5, 1000, 1_000_003, 2_000_000, 1<<40 + 1} {
					for coarse := 1; coarse <= 1<<scale; coarse *= 2 {
						row := rowOf([]uint64{0, value}, h, sign)
						buckets := slices.DeleteFunc(row.Histogram(coarse),
							func(b Bucket) bool { return b.Count == 0 })
						qt.Assert(t, qt.HasLen(buckets, 2))
						if sign < 0 {
							slices.Reverse(buckets)
						}
						qt.Check(t, qt.Equals(buckets[0].Index, 0)) // of 0, which has none
						quotient := float64(value) / float64(max(unit, 1))
						want := int(math.Ceil(math.Log2(quotient)*float64(coarse))) - 1
						qt.Check(t, qt.Equals(buckets[1].Index, want),
							qt.Commentf("%d of %d, %d to a doubling", value, unit, coarse))
						qt.Check(t, qt.Equals(buckets[1].High.Float() > 0, sign > 0))
					}
				}
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	h := &bpfgen.Histogram{Scale: bpfgen.DefaultScale}
	few := []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9} // each has a bucket
	row := rowOf(few, h, 1)
	negative := rowOf(few, h, -1)
	for i := range few {
		q := float64(i+1) / 10
		qt.Check(t, qt.Equals(row.Quantile(q), float64(i)))
		qt.Check(t, qt.Equals(row.Quantile(q-0.05), float64(i)))
		qt.Check(t, qt.Equals(negative.Quantile(q), float64(i-9)))
	}
	qt.Check(t, qt.Equals(row.Quantile(-1), 0))
	qt.Check(t, qt.Equals(row.Quantile(2), 9))
	qt.Check(t, qt.IsTrue(math.IsNaN(row.Quantile(math.NaN()))))
	qt.Check(t, qt.IsTrue(math.IsNaN((&Row{Count: 1}).Quantile(0.5))))

	one := rowOf([]uint64{1_000_003}, h, 1)
	qt.Check(t, qt.Not(qt.Equals(one.Quantile(0.5), 1_000_003)))
	one.Min, one.Max = numberValue(bpfgen.ClassUnsigned, 1_000_003),
		numberValue(bpfgen.ClassUnsigned, 1_000_003)
	qt.Check(t, qt.Equals(one.Quantile(0.5), 1_000_003))
	greatest := rowOf([]uint64{math.MaxUint64}, h, 1)
	qt.Check(t, qt.IsTrue(math.Abs(greatest.Quantile(1)/math.MaxUint64-1) < 0.0434))

	number := func(n int64) Value { return numberValue(bpfgen.ClassSigned, uint64(n)) }
	linear := Row{histogram: &bpfgen.Histogram{Low: 10, High: 21, Step: 11},
		buckets: tracing.Buckets{Counts: []uint64{1, 8, 1}}}
	qt.Check(t, qt.DeepEquals(fmt.Sprint(linear.Histogram(0)), fmt.Sprint([]Bucket{
		{Low: number(math.MinInt64), High: number(9), Count: 1},
		{Low: number(10), High: number(20), Count: 8},
		{Low: number(21), High: numberValue(bpfgen.ClassUnsigned, math.MaxUint64), Count: 1},
	})))
	qt.Check(t, qt.DeepEquals([]float64{linear.Quantile(0.1), linear.Quantile(0.5),
		linear.Quantile(1)}, []float64{10, 15, 21}))
}

// Histograms that are downscaled and added equal those that are counted at that
// scale.
func TestExponentialHistogramsAreDownscaledAndAdded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []uint64 {
		values := make([]uint64, n)
		for i := range values {
			// There are negatives of them, too.
			values[i] = random.Uint64() >> (1 + random.IntN(63))
		}
		slices.Sort(values)
		return values
	}
	for _, sign := range []int{1, -1} {
		for from := range bpfgen.MaxScale + 1 {
			a, b := draw(1000), draw(100)
			for _, unit := range []uint64{0, 1000, 3 << 40} {
				for to := range from + 1 {
					fine := rowOf(a, &bpfgen.Histogram{Scale: from, Unit: unit}, sign)
					coarse := rowOf(a, &bpfgen.Histogram{Scale: to, Unit: unit}, sign)
					qt.Assert(t, qt.Equals(fmt.Sprint(fine.Histogram(1<<to)),
						fmt.Sprint(coarse.Histogram(0))))
				}
			}
			both := slices.Concat(a, b)
			slices.Sort(both)
			h := &bpfgen.Histogram{Scale: from}
			sum := rowOf(a, h, sign).clone()
			sum.merge(rowOf(b, h, sign))
			qt.Assert(t, qt.Equals(fmt.Sprint(sum.Histogram(0)),
				fmt.Sprint(rowOf(both, h, sign).Histogram(0))))
			row := rowOf(a, &bpfgen.Histogram{Scale: from}, sign)
			var all uint64
			for i, bucket := range row.Histogram(0) {
				all += bucket.Count
				if i > 0 {
					before := row.Histogram(0)[i-1]
					qt.Assert(t, qt.Equals(compareValues(before.High, bucket.Low), -1),
						qt.Commentf("%v %v", before, bucket))
				}
			}
			qt.Assert(t, qt.Equals(all, 1000))
		}
	}
}
