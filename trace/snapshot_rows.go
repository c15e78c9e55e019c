// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Average returns the sum divided by the count, or NaN if there is no sum.
func (r *Row) Average() float64 {
	average := r.Sum.Float() / float64(r.Count) * presence(r.Sum)
	if r.Sum.kind == Float && r.Min.state == valuePresent && r.Max.state == valuePresent {
		average = min(max(average, r.Min.Float()), r.Max.Float()) // it is not exact
	}
	return average
}

// Quantile returns a number near the value that the given part of all hits does
// not exceed: near the median for 0.5, near the greatest value for 1. It
// returns NaN if there is no histogram or no hit.
//
// With exponential buckets, the result differs from that value, which is one of
// the hits', by at most 4.34 % of the value: for other numbers of buckets by
// 33.4 % (1), 17.2 % (2), 8.7 % (4) or 2.17 % (16). With a Step it differs by
// at most half of it, unless the value is outside of Low and High: then the
// result is the nearer of these. Where Min and Max are kept, it is between
// them.
func (r *Row) Quantile(q float64) float64 {
	buckets := r.Buckets
	if r.Exponential != nil {
		buckets = r.Exponential.Buckets()
	}
	var all uint64
	for i := range buckets {
		all += buckets[i].Count
	}
	if all == 0 || math.IsNaN(q) {
		return math.NaN()
	}
	// Of the value that is searched, as many hits do not exceed it. The product
	// may be a little too large: 0.07*100 is more than 7.
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(all) * (1 - 0x1p-50)))
	rank = min(max(rank, 1), all)
	i := 0
	for ; rank > buckets[i].Count; i++ {
		rank -= buckets[i].Count
	}
	value := buckets[i].middle(r.Exponential != nil)
	if r.Min.state == valuePresent {
		value = max(value, r.Min.Float())
	}
	if r.Max.state == valuePresent {
		value = min(value, r.Max.Float())
	}
	return value
}

// middle returns the number whose greatest distance from a value in the bucket
// is the least: relative to the value if its width grows with it.
func (b *Bucket) middle(exponential bool) float64 {
	low, high := b.Low.Float(), b.High.Float()
	switch {
	case low == high:
		return low
	case exponential:
		return 2 * low * (high / (low + high))
	case isLeast(b.Low):
		return high + 1
	case isGreatest(b.High):
		return low
	default:
		return low + (high-low)/2
	}
}

// isLeast and isGreatest report whether a bound is that of the numbers
// themselves.
func isLeast(v Value) bool { return v.kind == Signed && v.Int() == math.MinInt64 }

func isGreatest(v Value) bool { return v.kind == Unsigned && v.bits == math.MaxUint64 }

func bound(bits uint64, negative bool) Value {
	if negative {
		return numberValue(bpfgen.ClassSigned, bits)
	}
	return numberValue(bpfgen.ClassUnsigned, bits)
}

// extreme returns the lesser of two numbers if sign is -1, and the greater if
// it is 1. A number that is not present does not count.
func extreme(a, b Value, sign int) Value {
	if a.state != valuePresent || number(b).Compare(number(a)) == sign {
		return b
	}
	return a
}

// presence is 1, or NaN for a value that is not present.
func presence(v Value) float64 {
	if v.state != valuePresent {
		return math.NaN()
	}
	return 1
}
