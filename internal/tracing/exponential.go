// SPDX-License-Identifier: BSD-2-Clause

package tracing

import "slices"

// Exponential is a histogram with the buckets that OpenTelemetry and the
// Prometheus native histograms define. With base = 2^(2^-Scale), the bucket of
// index i has the values above base^i up to and including base^(i+1).
type Exponential struct {
	Scale int    // from 0 to 4
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

// Add adds a histogram of the same scale.
func (e *Exponential) Add(other *Exponential) {
	e.Zero += other.Zero
	e.Positive.AddAll(&other.Positive)
	e.Negative.AddAll(&other.Negative)
}

// AddAll adds the counts of other buckets.
func (b *Buckets) AddAll(other *Buckets) {
	for i, count := range other.Counts {
		b.Add(other.Offset+i, count)
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
