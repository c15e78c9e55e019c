// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Histogram distributes values over buckets. The zero value has exponential
// buckets, as OpenTelemetry defines them, which give each quantile with the
// same precision, see [Row.Quantile].
type Histogram struct {
	buckets *bpfgen.Histogram // nil for the zero value
	err     error             // the error that New returns
}

const (
	// maxBuckets bounds a linear histogram, because people will read it.
	maxBuckets = 1 << 16

	// maxLimits bounds the comparisons of a program: OpenTelemetry recommends
	// 160 buckets at most.
	maxLimits = 160
)

// Exponential returns a histogram with 1, 2, 4, 8 or 16 buckets from a number
// to its double. 0 stands for 8, a scale of 3: a bucket's upper bound is 9.05 %
// above its lower bound. Values are divided by the unit, unless it is 0: the
// buckets are exactly those of the quotients. A unit of 1e9 makes nanoseconds
// seconds.
func Exponential(perDoubling int, unit uint64) *Histogram {
	perDoubling = cmp.Or(perDoubling, 1<<bpfgen.DefaultScale)
	scale := bits.TrailingZeros(uint(perDoubling))
	h := &Histogram{buckets: &bpfgen.Histogram{Scale: scale, Unit: unit}}
	if perDoubling < 0 || perDoubling > 1<<bpfgen.MaxScale || bits.OnesCount(uint(perDoubling)) > 1 {
		h.err = errors.New("there can be 1, 2, 4, 8 or 16 buckets for a doubling")
	}
	return h
}

// Limits returns a histogram whose buckets end at the limits, with one more for
// greater values. A bucket with both negative and other values becomes two.
// Limits ascend, and there are 160 at most.
func Limits(limits ...int64) *Histogram {
	h := &Histogram{}
	ascending := slices.Compact(slices.Sorted(slices.Values(limits)))
	switch n := len(limits); {
	case n == 0:
		return h
	case n > maxLimits:
		h.err = fmt.Errorf("there are more than %d limits", maxLimits)
	case !slices.Equal(limits, ascending) || limits[n-1] == math.MaxInt64:
		h.err = errors.New("the limits must ascend, and be less than 2^63-1")
	}
	// A bucket has one minimum and one maximum, as numbers without a sign.
	if at, found := slices.BinarySearch(ascending, -1); !found {
		ascending = slices.Insert(ascending, at, -1)
	}
	h.buckets = &bpfgen.Histogram{Limits: ascending}
	return h
}

// Linear returns a histogram with buckets from low up to high whose width is
// step, which divides the distance, and two more for values outside.
func Linear(low, high int64, step uint64) *Histogram {
	h := &Histogram{buckets: &bpfgen.Histogram{Low: low, High: high, Step: step}}
	width := uint64(high) - uint64(low)
	switch {
	case step == 0 || high <= low || step > math.MaxInt64 || width%step != 0:
		h.err = errors.New("the distance from low up to high must be a multiple of the step")
	case width/step > maxBuckets:
		h.err = fmt.Errorf("there are more than %d buckets: take a larger step", maxBuckets)
	}
	return h
}

// A Bucket of a histogram has the hits whose value is from Low to High, both
// inclusive.
type Bucket struct {
	Low, High Value
	Count     uint64

	// Index is the index of an exponential bucket in OpenTelemetry and in
	// Prometheus' native histograms. With N buckets to a doubling and the base
	// 2^(1/N), the index i is that of values above base^i up to and including
	// base^(i+1): 1 has the index -1. Low and High are below 0 in buckets of
	// values below 0, which have the index of their absolute values. The bucket
	// of 0, with Low and High 0, has none.
	Index int
}

// Histogram returns the buckets of the histogram. Exponential buckets can be
// fewer than were kept: perDoubling, 1, 2, 4, 8 or 16, is their number from a
// number to its double; 0 stands for all that were kept. They are in the order
// of their values, without the empty ones at either end. Each has the least and
// the greatest integer that belongs to it; exponential buckets without an
// integer are left out.
func (r *Row) Histogram(perDoubling int) (all []Bucket) {
	if r.histogram == nil {
		return nil
	}
	h, counts := *r.histogram, r.buckets
	isExponential := h.IsExponential()
	if less := h.Scale + 1 - bits.Len(uint(perDoubling)); perDoubling > 0 && isExponential &&
		less > 0 {
		fine := h
		h.Scale, counts = h.Scale-less, tracing.Buckets{}
		// By OpenTelemetry's indices, the bucket of 2^less others has their
		// index >> less.
		one, coarseOne := 2+fine.Shift(), 2+h.Shift()
		for i, count := range r.buckets.Counts {
			n := r.buckets.Offset + i - fine.Zero()
			switch {
			case n > 0:
				n = (n-one)>>less + coarseOne
			case n < 0:
				n = -((-n-one)>>less + coarseOne)
			}
			counts.Add(h.Zero()+n, count)
		}
	}
	for i, count := range counts.Counts {
		low, high, lowNegative, highNegative := h.Bounds(counts.Offset + i)
		b := Bucket{Low: bound(low, lowNegative), High: bound(high, highNegative), Count: count}
		if n := counts.Offset + i - h.Zero(); isExponential && n != 0 {
			b.Index = max(n, -n) - 2 - h.Shift()
		}
		if !isExponential || count > 0 || compareValues(b.Low, b.High) <= 0 {
			all = append(all, b)
		}
	}
	return all
}

func bound(bits uint64, negative bool) Value {
	if negative {
		return numberValue(bpfgen.ClassSigned, bits)
	}
	return numberValue(bpfgen.ClassUnsigned, bits)
}

// Quantile returns a number near the value that the given part of all hits does
// not exceed: near the median for 0.5, near the greatest value for 1. It is NaN
// if there is no histogram or no hit.
//
// With exponential buckets, the result differs from the value of a hit by at
// most 4.34 % of it: for other numbers of buckets by 33.4 % (1), 17.2 % (2),
// 8.7 % (4) or 2.17 % (16). With linear ones it differs by at most half a step,
// but is never outside of their range. Where Min and Max are kept, it is
// between them.
func (r *Row) Quantile(q float64) float64 {
	buckets := r.Histogram(0)
	var all uint64
	for i := range buckets {
		all += buckets[i].Count
	}
	if all == 0 || math.IsNaN(q) {
		return math.NaN()
	}
	// The rank of the value among all hits. The product may be a little too
	// large: 0.07*100 is more than 7.
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(all) * (1 - 0x1p-50)))
	rank = min(max(rank, 1), all)
	i := 0
	for ; rank > buckets[i].Count; i++ {
		rank -= buckets[i].Count
	}
	value := buckets[i].middle(r.histogram.IsExponential())
	return r.within(value)
}

// middle returns the number whose greatest distance from a value in the bucket
// is the least, relative to the value in exponential buckets.
func (b *Bucket) middle(exponential bool) float64 {
	low, high := b.Low.Float(), b.High.Float()
	switch {
	case low == high:
		return low
	case exponential:
		return 2 * low * (high / (low + high))
	case b.Low.kind == Signed && b.Low.Int() == math.MinInt64: // there is no lower bound
		return high + 1
	case b.High.kind == Unsigned && b.High.bits == math.MaxUint64: // there is no upper bound
		return low
	default:
		return low + (high-low)/2
	}
}
