// SPDX-License-Identifier: BSD-2-Clause

package trace

import "github.com/gousdt/gousdt/elfnote"

// Aggregation says what to compute in the kernel over many hits, so that a busy
// probe costs little more than being passed. [NewAggregator] makes of it what a
// session computes.
//
// The zero Aggregation counts the hits of all probes.
type Aggregation struct {
	// Probes are the probes whose hits are aggregated; none stands for all
	// probes of the session. Hits of probes without an argument that Value or
	// By name are not aggregated. Hits at which such an argument cannot be read
	// are counted in [Losses.Unreadable].
	Probes []elfnote.Pattern

	// Value is a term of the expression language that is a number, such as
	// "arg2" or "arg2 & 0xfff". It is what Sum, Min, Max and Histogram are
	// about.
	Value string

	// Latency, if set, makes the time between two probes the value, in
	// nanoseconds. Then Probes and Value are not used, and By and Where are
	// about the hit that ends the time. Aggregations with equal latencies share
	// the measurement.
	Latency *Latency

	// By are the keys. There is a row for each combination of their values. A
	// key is a term such as "arg0", "str(arg0)" (at most 64 bytes if it gives
	// no limit, or 128 with Normalize), "comm", "pid", "tid", "uid", "gid",
	// "cpu", "cgroup", "container" (see SessionOptions.Containers), "probe",
	// "provider", "site", "cookie" or "stack" (the user stack, with the process
	// whose addresses it has). There can be 15 keys, of 320 bytes together.
	//
	// The name of an argument that SessionOptions.Definitions say is a text
	// stands for the text: "query" is "str(query)". It is an error if they say
	// so of only some of the Probes that have an argument of that name.
	By []string

	// Where is a condition like SessionOptions.Filter, for this aggregation
	// alone.
	Where string

	// Normalize changes the texts of keys such as "str(arg0)". Texts that
	// become equal share a row: "WHERE id = 17" and "WHERE id = 18" can become
	// "WHERE id = ?". It is called while texts are taken from the kernel, never
	// by two goroutines at the same time.
	Normalize func(text string) string

	// Sum, Min and Max of the values are kept for each row beside the count.
	// Averages follow from the sum, see [Row.Average]. A sum that needs more
	// than 64 bits is a [Float] if there is a Histogram. Without one, what
	// comes between two snapshots is added up modulo 2^64.
	Sum, Min, Max bool

	// Histogram, if set, distributes the values over buckets, with a count and
	// a sum for each bucket.
	Histogram *Histogram

	// MaxKeys is how many rows there can be; 0 stands for 16,384. If there are
	// more keys, those with the fewest hits are added up in [Snapshot.Other]:
	// the total is always exact, and frequent keys have a row. [Row.Partial]
	// tells rows that may have had more hits.
	//
	// Rows are shared out between containers, or users where there are none. A
	// row belongs to the one whose hit has made it. Rows of those that have the
	// most are added up, until all of these have the same number. So one that
	// makes up keys without end leaves others their rows.
	//
	// The kernel has room for half as many keys, or for 4096 if that is more,
	// and for 65,536 at most. The session takes them from there before the room
	// is filled. If it is filled all the same, there is a reserve of a quarter
	// of it, of which each container or user can have a ninth. With a histogram
	// each bucket of a row is a key of its own there. A key takes 24 to 40
	// bytes for each processor, and its own size twice. If "stack" is a key the
	// kernel has room for as many different stacks between two snapshots, of
	// which each takes two kilobytes more. It keeps one of those with the same
	// hash; the others are [Unavailable].
	MaxKeys int
}

// Histogram says how values are distributed over buckets. The zero value means
// exponential buckets, as OpenTelemetry defines them. Their number does not
// depend on the values: each quantile is known with the same precision, see
// [Row.Quantile].
type Histogram struct {
	// PerDoubling is how many exponential buckets there are from a number to
	// its double: 1, 2, 4, 8 or 16. 0 stands for 8, which is a scale of 3: a
	// bucket's upper bound is 9.05 % above its lower bound.
	PerDoubling int

	// Step, if it is set, is the width of a bucket from Low up to High. What is
	// less than Low has a bucket, and so has what is not less than High. Step
	// must divide the distance from Low to High.
	Low, High int64
	Step      uint64
}
