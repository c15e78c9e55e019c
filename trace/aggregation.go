// SPDX-License-Identifier: BSD-2-Clause

package trace

// Aggregation is computed in the kernel over many hits, so that a busy probe
// costs little more than being passed. Session.Snapshot reads it.
type Aggregation struct {
	// Probes is a pattern as in Open; empty for all probes of the session. Hits
	// of probes that lack an argument which Value or By name are not
	// aggregated; those at which it cannot be read are counted in
	// Losses.Unreadable.
	Probes string

	// Value is a term of the expression language that is a number: "arg2",
	// "arg2 & 0xfff". Empty: hits are counted.
	Value string

	// Latency, if set, makes the time between two probes the value, in
	// nanoseconds. Then Probes and Value are not looked at; By and Where are
	// about the hit that ends it, and SessionOptions.Filter about the one that
	// starts it. Aggregations with equal latencies share the measurement.
	Latency *Latency

	// By are the keys, for each combination of which there is a row: terms such
	// as "arg0", "str(arg0)" (at most 64 bytes if it says no limit), "comm",
	// "pid", "tid", "uid", "cpu", "probe", "provider", "site", "cookie",
	// "stack" (the user stack, with the process whose addresses it has). At
	// most 15, and what fits together into the 512 bytes of a BPF program's
	// stack.
	By []string

	// Where is a condition as SessionOptions.Filter, for this aggregation
	// alone.
	Where string

	// Functions are kept for each row beside the count.
	Functions Functions

	// Histogram, if set, distributes the values, keeping a count and a sum for
	// each bucket. Then Functions must be 0.
	Histogram *Histogram

	// MaxKeys bounds the rows, with a histogram the buckets of all rows; 0
	// stands for 4096. Hits for which there is no room are counted in
	// Losses.Keys. Each takes 16 to 40 bytes and its key, for each processor.
	MaxKeys int

	// MaxStacks bounds the different stacks if "stack" is a key; 0 stands for
	// 4096. Each takes a kilobyte.
	MaxStacks int
}

// Functions are what an Aggregation computes.
type Functions uint8

// The functions. The count is always there. An average is the sum divided by
// it, see Row.Average. Sums are modulo 2^64.
const (
	Sum Functions = 1 << iota
	Min
	Max

	Average = Sum
)

// Histogram says how values are distributed. The zero value means powers of
// two: a bucket for 0, one for 1, for 2 to 3, for 4 to 7 and so on, and the
// same below 0.
type Histogram struct {
	// Step is the width of a bucket from Low on up to High; what is less and
	// what is not less than High has a bucket each. 0 means powers of two.
	Low, High int64
	Step      uint64
}

// Latency says which probes start and end what is measured.
//
// A start that comes again before its end replaces the first one. An end
// without a start is counted in Losses.Unmatched.
type Latency struct {
	// Start and Done are patterns as in Open. The session must watch the probes
	// of both: Open sees to that, but with Attach they may come one after the
	// other.
	Start, Done string

	// By is what is the same at both: "tid", which stands for empty too, or an
	// argument such as "arg0" that says what is started and ended. DoneBy is
	// what it is at the end if that is another argument than at the start.
	By, DoneBy string

	// AnyProcess: the end may be in another process than the start. Otherwise
	// equal arguments in two processes are two things.
	AnyProcess bool

	// MaxStarts bounds what can have started at a time; 0 stands for 10,240. If
	// there are more the oldest are forgotten, and their ends are counted as
	// unmatched.
	MaxStarts int
}
