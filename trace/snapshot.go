// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// A Snapshot is what an [Aggregator] has computed from one moment to another.
type Snapshot struct {
	// Start is when the session was made or the rows were last taken, and Time
	// when the snapshot was made.
	Start, Time time.Time

	// By names the keys, as Aggregation.By does.
	By []string

	// Rows are sorted by their count, the greatest first, and rows with equal
	// counts by their keys. Without keys there is one row, or none if there was
	// no hit.
	Rows []Row

	// Other has the hits of all keys that have no row, because there are more
	// keys than Aggregation.MaxKeys: those with the fewest hits. It has no
	// Keys. The rows and Other together are all hits.
	Other Row

	// Overflow is how many hits of Other came while the kernel had no room for
	// keys, because more new keys came than could be taken from it. They may be
	// of keys that have a row.
	Overflow uint64
}

// A Row is the result for one combination of keys.
type Row struct {
	// Keys are the values of the keys. The text of a key that is longer than
	// the key's limit is cut, see [Value.Data].
	Keys []Value

	// Stack is set if "stack" is a key: the addresses, the innermost first. The
	// key's value is then the process whose addresses they are, and present if
	// the kernel could walk the stack.
	Stack []uint64

	// Site is set if "site" is a key. The key's value is then the site's
	// location in its file.
	Site *Site

	// Count is the number of hits.
	Count uint64

	// Partial means that there may have been more hits: earlier ones, or some
	// among others, are in Snapshot.Other. It is set only if there were more
	// keys than Aggregation.MaxKeys, or than the kernel had room for.
	Partial bool

	// Sum, Min and Max are present if the aggregation keeps them. A histogram
	// has a Sum, too.
	Sum, Min, Max Value

	// Exponential is the histogram if it has exponential buckets.
	Exponential *ExponentialHistogram

	// Buckets are the buckets of a histogram with a Step, in order, without the
	// empty ones at either end.
	Buckets []Bucket
}

// A Bucket of a histogram has the hits whose value is from Low to High, both
// inclusive.
type Bucket struct {
	Low, High Value
	Count     uint64
}

// Snapshot returns what has been computed since the session was made, or since
// the last [Aggregator.Take].
//
// With keys, and with minima or maxima, a hit is in a snapshot as a whole or
// not at all. It takes some milliseconds, in which the kernel waits until no
// program is at work on what is read. Otherwise a hit that happens at the same
// moment may be in the count and not yet in the sum.
//
// Snapshot works until the session is closed; then it returns os.ErrClosed.
func (a *Aggregator) Snapshot() (*Snapshot, error) { return a.read(false) }

// Take returns what [Aggregator.Snapshot] does, and begins again: each hit is
// in one of the snapshots that Take returns, and there is room for other keys.
// Minima and maxima of what came while the kernel had no room for keys, see
// [Snapshot.Overflow], are those since the session was made.
func (a *Aggregator) Take() (*Snapshot, error) { return a.read(true) }

func (a *Aggregator) read(anew bool) (*Snapshot, error) {
	bound, err := a.aggregation()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var snapshot *Snapshot
	err = bound.session.use(func() error {
		snapshot, err = bound.snapshot(anew)
		return err
	})
	if err != nil {
		return nil, explain("reading an aggregation", err)
	}
	return snapshot, nil
}

func (a *aggregation) snapshot(anew bool) (*Snapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, err := a.take()
	if err == nil {
		err, a.failed = a.failed, nil
	}
	if err != nil {
		return nil, err
	}
	a.dropRows()
	s := &Snapshot{Start: a.started, Time: now, By: a.names, Overflow: a.totals.overflow}
	if s.Other, err = a.finished(&a.totals.other); err != nil {
		return nil, err
	}
	for _, t := range a.totals.rows {
		if t.row.Count == 0 {
			continue // a sum that has come after its count
		}
		row, err := a.finished(t)
		if err != nil {
			return nil, err
		}
		row.Partial = row.Partial || s.Overflow > 0
		s.Rows = append(s.Rows, row)
	}
	slices.SortFunc(s.Rows, compareRows)
	if anew {
		a.totals, a.started = totals{}, now
	}
	return s, nil
}

// compareRows orders rows by count, then by key.
func compareRows(a, b Row) int {
	if c := cmp.Compare(b.Count, a.Count); c != 0 {
		return c
	}
	for i := range min(len(a.Keys), len(b.Keys)) {
		if c := compareValues(a.Keys[i], b.Keys[i]); c != 0 {
			return c
		}
	}
	return slices.Compare(a.Stack, b.Stack)
}

func compareValues(a, b Value) int {
	if a.kind == Text && b.kind == Text {
		return strings.Compare(a.data, b.data)
	}
	return number(a).Compare(number(b))
}

func number(v Value) expr.Value {
	switch v.kind {
	case Float:
		return expr.Fraction(v.Float())
	case Signed:
		return expr.Int(v.Int())
	default:
		return expr.Uint(v.Uint())
	}
}

func textValue(text []byte, cut bool) Value {
	v := Value{valueForm: valueForm{kind: Text, state: valuePresent}, text: true}
	v.setData(text, dataComplete)
	if cut {
		v.dataState = dataTruncated
	}
	return v
}

func numberValue(c bpfgen.Class, bits uint64) Value {
	v := Value{bits: bits, valueForm: valueForm{size: 8, state: valuePresent}}
	switch c {
	case bpfgen.ClassSigned:
		v.kind = Signed
	case bpfgen.ClassFloat32:
		v.kind, v.size = Float, 4
	case bpfgen.ClassFloat64:
		v.kind = Float
	}
	return v
}

// identity is equal for rows with equal keys.
func (r *Row) identity() string {
	var b strings.Builder
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "%d %d %d %q\x00", k.kind, k.dataState, k.bits, k.data)
	}
	fmt.Fprintf(&b, "%v %p", r.Stack, r.Site)
	return b.String()
}
