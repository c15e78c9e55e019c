// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/gousdt/gousdt/trace"
)

// histograms draws one for each row.
func (p *textPrinter) histograms(b *strings.Builder, a *aggregation, s *trace.Snapshot) {
	for i, row := range rowsOf(s) {
		if i > 0 {
			b.WriteByte('\n')
		}
		for i, c := range columnsOf(a, s) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "%s %s", strings.ToLower(c.name), c.text(row))
		}
		fmt.Fprintf(b, "%s\n", p.keysText(s, row))
		p.stack(b, s, row)
		p.histogram(b, a, row)
	}
}

// maxEmpty is how many empty buckets in a row are drawn.
const maxEmpty = 3

// histogram draws the buckets of a row: exponential ones with bounds that are
// powers of two, which is what one can see.
func (p *textPrinter) histogram(b *strings.Builder, a *aggregation, row *trace.Row) {
	buckets, format := row.Buckets, plainBound
	switch {
	case row.Exponential != nil && a.duration:
		format = exponentialDuration
	case a.duration:
		format = durationBound
	}
	if row.Exponential != nil {
		buckets = row.Exponential.Downscale(0).Buckets()
	}
	var most uint64
	for i := range buckets {
		most = max(most, buckets[i].Count)
	}
	lines := [][]cell{{{"FROM", true}, {"TO", true}, {"COUNT", true}, {"%", true}}}
	for i := 0; i < len(buckets); i++ {
		if n := emptyFrom(buckets[i:]); n > maxEmpty {
			lines = append(lines, []cell{{"...", true}, {"...", true}, {"0", true}, {"0.0%", true}})
			i += n - 1
			continue
		}
		bucket := &buckets[i]
		lines = append(lines, []cell{
			{format(bucket.Low, false), true},
			{format(bucket.High, true), true},
			{fmt.Sprint(bucket.Count), true},
			{percent(float64(bucket.Count) / float64(row.Count)), true},
			{p.bar(float64(bucket.Count) / float64(most)), false},
		})
	}
	writeTable(b, lines)
}

// emptyFrom returns how many buckets are empty before the first that is not.
func emptyFrom(buckets []trace.Bucket) int {
	for i := range buckets {
		if buckets[i].Count > 0 {
			return i
		}
	}
	return len(buckets)
}

// plainBound shows an end of a bucket, inclusive. Buckets without an end are of
// linear histograms.
func plainBound(v trace.Value, high bool) string {
	switch {
	case high && isGreatest(v):
		return "more"
	case !high && isLeast(v):
		return "less"
	}
	return v.String()
}

// durationBound shows an end of a bucket in nanoseconds; the upper one is that
// of the next bucket.
func durationBound(v trace.Value, high bool) string {
	switch {
	case high && isGreatest(v):
		return "more"
	case !high && isLeast(v):
		return "less"
	case high:
		return formatDuration(v.Float() + 1)
	}
	return formatDuration(v.Float())
}

// exponentialDuration shows an end of an exponential bucket in nanoseconds, of
// which the lower one is not in the bucket.
func exponentialDuration(v trace.Value, high bool) string {
	if high || v.Float() == 0 {
		return formatDuration(v.Float())
	}
	return formatDuration(v.Float() - 1)
}

func isGreatest(v trace.Value) bool {
	return v.Kind() == trace.Signed && v.Int() == math.MaxInt64 ||
		v.Kind() != trace.Signed && v.Uint() >= math.MaxInt64
}

func isLeast(v trace.Value) bool { return v.Kind() == trace.Signed && v.Int() == math.MinInt64 }
