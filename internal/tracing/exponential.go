// SPDX-License-Identifier: BSD-2-Clause

package tracing

import "slices"

// Exponential is a histogram with the buckets that OpenTelemetry and the
// Prometheus native histograms define, as the kernel has kept them. With base =
// 2^(2^-Scale), the bucket of index i has the values above base^i up to and
// including base^(i+1).
type Exponential struct {
	Scale int    // from 0 to 4
	Unit  uint64 // trace.Histogram.Unit
	Zero  uint64 // hits with the value 0

	// Positive are the buckets of values above 0, Negative those of values
	// below 0, by their absolute value.
	Positive, Negative Buckets
}

// Buckets are the counts of buckets whose indices follow each other. The first
// and the last count are not 0.
type Buckets struct {
	Offset int // index of the first bucket; the value 1 has the index -1
	Counts []uint64
}

// Downscale returns the histogram with a lower scale: each bucket has those of
// 2^(difference) buckets, so that nothing is lost but precision. It returns a
// copy if the scale is not lower.
func (h *Exponential) Downscale(scale int) *Exponential {
	scale = min(max(scale, 0), h.Scale)
	d := &Exponential{Scale: scale, Zero: h.Zero, Unit: h.Unit}
	d.Positive.addAll(&h.Positive, h.Scale-scale)
	d.Negative.addAll(&h.Negative, h.Scale-scale)
	return d
}

// Add adds another histogram. The scale becomes the lower one.
func (h *Exponential) Add(other *Exponential) {
	scale := min(h.Scale, other.Scale)
	*h = *h.Downscale(scale)
	h.Zero += other.Zero
	h.Positive.addAll(&other.Positive, other.Scale-scale)
	h.Negative.addAll(&other.Negative, other.Scale-scale)
}

// addAll adds other buckets, of a scale that is higher by shift.
func (b *Buckets) addAll(other *Buckets, shift int) {
	for i, count := range other.Counts {
		b.Add((other.Offset+i)>>shift, count)
	}
}

// Add adds to the bucket of an index.
func (b *Buckets) Add(index int, count uint64) {
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

// At returns the count of an index.
func (b *Buckets) At(index int) uint64 {
	if i := index - b.Offset; i >= 0 && i < len(b.Counts) {
		return b.Counts[i]
	}
	return 0
}
