// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"slices"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// An ExponentialHistogram has the buckets that OpenTelemetry and the Prometheus
// native histograms define, as the kernel has kept them. With base =
// 2^(2^-Scale), the bucket of index i has the values above base^i up to and
// including base^(i+1).
type ExponentialHistogram struct {
	// Scale is from 0 to 4. It is 3 unless Histogram.PerDoubling says
	// otherwise.
	Scale int

	// Zero is how many hits had the value 0.
	Zero uint64

	// Positive are the buckets of values above 0, Negative those of values
	// below 0, by their absolute value.
	Positive, Negative ExponentialBuckets
}

// ExponentialBuckets are the counts of buckets whose indices follow each other.
// The first and the last count are not 0.
type ExponentialBuckets struct {
	// Offset is the index of the first bucket. The value 1 has the index -1.
	Offset int
	Counts []uint64
}

// Downscale returns the histogram with a lower scale: each bucket has those of
// 2^(difference) buckets, so that nothing is lost but precision. It returns a
// copy if the scale is not lower.
func (h *ExponentialHistogram) Downscale(scale int) *ExponentialHistogram {
	scale = max(scale, 0)
	if scale >= h.Scale {
		return h.clone()
	}
	d := &ExponentialHistogram{Scale: scale, Zero: h.Zero}
	for _, side := range []struct{ from, to *ExponentialBuckets }{{&h.Positive, &d.Positive},
		{&h.Negative, &d.Negative}} {
		for i, count := range side.from.Counts {
			side.to.add((side.from.Offset+i)>>(h.Scale-scale), count)
		}
	}
	return d
}

// Buckets returns the buckets in the order of their values, with the least and
// the greatest integer of each, without the empty ones at either end. Buckets
// in which there is no integer are left out.
func (h *ExponentialHistogram) Buckets() []Bucket {
	b := &bpfgen.Histogram{Scale: h.Scale}
	zero := b.Zero()
	first, last := zero, zero
	if h.Zero == 0 {
		first, last = b.Buckets(), -1
	}
	if n := len(h.Negative.Counts); n > 0 {
		first, last = zero-2-(h.Negative.Offset+n-1), max(last, zero-2-h.Negative.Offset)
	}
	if n := len(h.Positive.Counts); n > 0 {
		first, last = min(first, zero+2+h.Positive.Offset), zero+2+h.Positive.Offset+n-1
	}
	var all []Bucket
	for n := first; n <= last; n++ {
		low, high, lowNegative, highNegative := b.Bounds(n)
		bucket := Bucket{Low: bound(low, lowNegative), High: bound(high, highNegative)}
		switch {
		case n < zero:
			bucket.Count = h.Negative.at(zero - 2 - n)
		case n == zero:
			bucket.Count = h.Zero
		default:
			bucket.Count = h.Positive.at(n - zero - 2)
		}
		if bucket.Count > 0 || compareValues(bucket.Low, bucket.High) <= 0 {
			all = append(all, bucket)
		}
	}
	return all
}

// at returns the count of an index.
func (b *ExponentialBuckets) at(index int) uint64 {
	if i := index - b.Offset; i >= 0 && i < len(b.Counts) {
		return b.Counts[i]
	}
	return 0
}

func (h *ExponentialHistogram) clone() *ExponentialHistogram {
	c := *h
	c.Positive.Counts, c.Negative.Counts = slices.Clone(c.Positive.Counts),
		slices.Clone(c.Negative.Counts)
	return &c
}

// add adds another histogram. The scale becomes the lower one.
func (h *ExponentialHistogram) add(other *ExponentialHistogram) {
	scale := min(h.Scale, other.Scale)
	*h = *h.Downscale(scale)
	other = other.Downscale(scale)
	h.Zero += other.Zero
	for i, count := range other.Positive.Counts {
		h.Positive.add(other.Positive.Offset+i, count)
	}
	for i, count := range other.Negative.Counts {
		h.Negative.add(other.Negative.Offset+i, count)
	}
}

// add adds to the bucket of an index.
func (b *ExponentialBuckets) add(index int, count uint64) {
	switch {
	case count == 0:
		return
	case len(b.Counts) == 0:
		b.Offset = index
	case index < b.Offset:
		b.Counts = slices.Concat(make([]uint64, b.Offset-index), b.Counts)
		b.Offset = index
	}
	if missing := index - b.Offset - len(b.Counts) + 1; missing > 0 {
		b.Counts = append(b.Counts, make([]uint64, missing)...)
	}
	b.Counts[index-b.Offset] += count
}
