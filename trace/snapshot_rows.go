// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"math"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// add adds an accumulator, as each processor has it, to a row.
func (a *aggregation) add(row *Row, bucket int, class bpfgen.Class, processors [][]byte) {
	var count, sum uint64
	for _, p := range processors {
		take := func() uint64 {
			word := binary.NativeEndian.Uint64(p)
			p = p[8:]
			return word
		}
		n := take()
		if n == 0 {
			continue // without a hit there is no minimum and no maximum
		}
		count += n
		if a.Sum {
			sum += take()
		}
		if a.Min {
			row.Min = extreme(row.Min, numberValue(class, bpfgen.Unsortable(class, take(), true)), -1)
		}
		if a.Max {
			row.Max = extreme(row.Max, numberValue(class, bpfgen.Unsortable(class, take(), false)), 1)
		}
	}
	if count == 0 {
		return
	}
	row.Count += count
	if a.Histogram != nil {
		a.addBucket(row, bucket, count, sum)
		return
	}
	if a.Sum {
		row.Sum = plus(row.Sum, numberValue(class, sum))
	}
}

// addBucket adds to a bucket of a row, and to the row's sum. The sum of a
// bucket has a sign if its values have one.
func (a *aggregation) addBucket(row *Row, bucket int, count, sum uint64) {
	if row.Buckets == nil {
		row.Buckets = make([]Bucket, a.Histogram.Buckets())
	}
	if bucket < 0 || bucket >= len(row.Buckets) {
		return
	}
	row.Buckets[bucket].Count += count
	class := bpfgen.ClassUnsigned
	if _, _, negative, _ := a.Histogram.Bounds(bucket); negative {
		class = bpfgen.ClassSigned
	}
	row.Sum = plus(row.Sum, numberValue(class, sum))
}

// trim removes the empty buckets at both ends, and sets the bounds of the
// others.
func (a *aggregation) trim(row *Row) {
	first, last := -1, 0
	for i := range row.Buckets {
		if row.Buckets[i].Count > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		row.Buckets = nil
		return
	}
	for i := first; i <= last; i++ {
		a.setBounds(&row.Buckets[i], i)
	}
	row.Buckets = row.Buckets[first : last+1]
}

func (a *aggregation) setBounds(b *Bucket, bucket int) {
	low, high, lowNegative, highNegative := a.Histogram.Bounds(bucket)
	b.Low, b.High = bound(low, lowNegative), bound(high, highNegative)
}

func bound(bits uint64, negative bool) Value {
	if negative {
		return numberValue(bpfgen.ClassSigned, bits)
	}
	return numberValue(bpfgen.ClassUnsigned, bits)
}

// plus adds numbers modulo 2^64. The sum has a sign if one of them has.
func plus(a, b Value) Value {
	if a.state != Present {
		return b
	}
	if b.kind == Signed {
		a.kind = Signed
	}
	a.bits += b.bits
	return a
}

// extreme returns the lesser of two numbers if sign is -1, and the greater if
// it is 1. A number that is not Present does not count.
func extreme(a, b Value, sign int) Value {
	if a.state != Present || number(b).Compare(number(a)) == sign {
		return b
	}
	return a
}

// presence is 1, or NaN for a value that is not Present.
func presence(v Value) float64 {
	if v.state != Present {
		return math.NaN()
	}
	return 1
}

// since returns what has been added to an earlier state of the row.
func (r Row) since(earlier *Row) Row {
	r.Count -= earlier.Count
	r.Sum.bits -= earlier.Sum.bits
	before := make(map[uint64]*Bucket)
	for i := range earlier.Buckets {
		before[earlier.Buckets[i].Low.bits] = &earlier.Buckets[i]
	}
	var changed []Bucket
	for _, b := range r.Buckets {
		if old := before[b.Low.bits]; old != nil {
			b.Count -= old.Count
		}
		changed = append(changed, b)
	}
	for len(changed) > 0 && changed[0].Count == 0 {
		changed = changed[1:]
	}
	for len(changed) > 0 && changed[len(changed)-1].Count == 0 {
		changed = changed[:len(changed)-1]
	}
	r.Buckets = changed
	return r
}
