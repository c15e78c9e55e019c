// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// A Snapshot is what an [Aggregator] has computed up to a moment.
type Snapshot struct {
	// Time is when it was read.
	Time time.Time
	// By names the keys, as Aggregation.By does.
	By []string
	// Rows are sorted by their count, the greatest first, and rows with equal
	// counts by their keys. Without keys there is one row, or none if there was
	// no hit.
	Rows []Row
}

// A Row is the result for one combination of keys.
type Row struct {
	// Keys are the values of the keys.
	Keys []Value

	// Stack is set if "stack" is a key: the addresses, the innermost first. The
	// key's value is then the process whose addresses they are, and Present if
	// the kernel could walk the stack.
	Stack []uint64

	// Site is set if "site" is a key. The key's value is then the site's
	// location in its file.
	Site *Site

	// Count is the number of hits.
	Count uint64

	// Sum, Min and Max are Present if the aggregation keeps them. A histogram
	// has a Sum, too.
	Sum, Min, Max Value

	// Buckets are the buckets of a histogram, in order, without the empty ones
	// at either end.
	Buckets []Bucket
}

// Average returns the sum divided by the count, or NaN if there is no sum.
func (r *Row) Average() float64 {
	return r.Sum.Float() / float64(r.Count) * presence(r.Sum)
}

// A Bucket of a histogram has the hits whose value is from Low to High, both
// inclusive.
type Bucket struct {
	Low, High Value
	Count     uint64
}

// Snapshot reads what has been computed so far. Hits go on meanwhile: one that
// happens while it is read may be in its count and not yet in its sum. Snapshot
// works until the session is closed; then it returns os.ErrClosed.
//
// To see what has come between two moments, take the difference of two
// snapshots ([Snapshot.Since]), or call [Aggregator.Clear] after reading.
func (a *Aggregator) Snapshot() (*Snapshot, error) {
	bound, err := a.aggregation()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return bound.snapshot()
}

func (a *aggregation) snapshot() (*Snapshot, error) {
	s := a.session
	snapshot := &Snapshot{Time: time.Now(), By: a.names}
	collected := make(map[string]*Row)
	err := s.use(func() error {
		return a.each(func(key []byte, processors [][]byte) error {
			return s.collect(a, collected, key, processors)
		})
	})
	if err != nil {
		return nil, explain("reading an aggregation", err)
	}
	for _, row := range collected {
		a.trim(row)
		if row.Count > 0 {
			snapshot.Rows = append(snapshot.Rows, *row)
		}
	}
	slices.SortFunc(snapshot.Rows, compareRows)
	return snapshot, nil
}

// Clear forgets what has been computed so far, which makes room for other keys.
// A hit that happens at the same moment may be forgotten too.
func (a *Aggregator) Clear() error {
	bound, err := a.aggregation()
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return bound.clearAll()
}

func (a *aggregation) clearAll() error {
	err := a.session.use(func() error {
		var keys [][]byte
		err := a.each(func(key []byte, _ [][]byte) error {
			keys = append(keys, key)
			return nil
		})
		for _, key := range keys {
			err = errors.Join(err, a.clear(key))
		}
		return err
	})
	if err != nil {
		return explain("clearing an aggregation", err)
	}
	return nil
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
		return bytes.Compare(a.data, b.data)
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

// each calls a function for every accumulator that is in use, with the bytes of
// its key and the bytes of each processor's value.
func (a *aggregation) each(do func(key []byte, processors [][]byte) error) error {
	var key []byte
	var processors [][]byte
	seen := make(map[string]bool)
	iterator := a.accumulators.Iterate()
	for iterator.Next(&key, &processors) {
		// An iteration starts again if a key is removed meanwhile.
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		if err := do(key, processors); err != nil {
			return err
		}
	}
	return iterator.Err()
}

func (a *aggregation) clear(key []byte) error {
	if len(a.Keys) > 0 {
		return ignoreMissing(a.accumulators.Delete(key))
	}
	zeros := make([][]byte, ebpf.MustPossibleCPU())
	for i := range zeros {
		zeros[i] = make([]byte, a.ValueSize())
	}
	return a.accumulators.Put(key, zeros)
}

// collect adds an accumulator to the row that it belongs to.
func (s *Session) collect(a *aggregation, rows map[string]*Row, key []byte, processors [][]byte) error {
	order := binary.NativeEndian
	bucket, classes, identity := 0, uint32(0), ""
	switch {
	case len(a.Keys) > 0:
		tail := key[len(key)-8:]
		bucket, classes = int(order.Uint32(tail)), order.Uint32(tail[4:])
		identity = string(order.AppendUint32(bytes.Clone(key[:len(key)-8]), classes>>2))
	case a.Histogram != nil:
		bucket = int(order.Uint32(key))
	default:
		classes = order.Uint32(key)
	}

	row := rows[identity]
	if row == nil {
		row = &Row{}
		if err := s.keys(a, row, key, classes); err != nil {
			return err
		}
		rows[identity] = row
	}
	a.add(row, bucket, bpfgen.ValueClass(classes), processors)
	return nil
}

// keys sets the keys of a row.
func (s *Session) keys(a *aggregation, row *Row, raw []byte, classes uint32) error {
	parts, _ := a.KeyLayout()
	for i := range a.Keys {
		part := raw[parts[i].Offset:][:parts[i].Size]
		bits := binary.NativeEndian.Uint64(part)
		switch a.Keys[i].Source {
		case expr.Command, expr.String:
			text, _, _ := bytes.Cut(part, []byte{0})
			row.Keys = append(row.Keys, textValue(bytes.Clone(text)))
		case expr.Provider, expr.Probe:
			row.Keys = append(row.Keys, textValue([]byte(s.names.name(bits))))
		case expr.Site:
			key := Value{kind: Unsigned, size: 8}
			if row.Site = s.sites.get(uint32(bits)); row.Site != nil {
				key.bits, key.state = row.Site.Location, Present
			}
			row.Keys = append(row.Keys, key)
		case expr.Stack:
			key := Value{kind: Unsigned, size: 4, bits: binary.NativeEndian.Uint64(part[8:])}
			if int64(bits) >= 0 {
				stack, err := a.stack(uint32(bits))
				if err != nil {
					return err
				}
				row.Stack, key.state = stack, Present
			}
			row.Keys = append(row.Keys, key)
		default:
			row.Keys = append(row.Keys, numberValue(bpfgen.KeyClass(classes, i), bits))
		}
	}
	return nil
}

func (a *aggregation) stack(id uint32) ([]uint64, error) {
	var addresses [maxStackDepth]uint64
	if err := ignoreMissing(a.stacks.Lookup(id, &addresses)); err != nil {
		return nil, err
	}
	end := slices.Index(addresses[:], 0)
	if end < 0 {
		end = len(addresses)
	}
	return slices.Clone(addresses[:end]), nil
}

func textValue(text []byte) Value {
	return Value{kind: Text, state: Present, data: text, dataState: dataComplete, text: true}
}

func numberValue(c bpfgen.Class, bits uint64) Value {
	v := Value{state: Present, size: 8, bits: bits}
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

// Since returns what has been computed since an earlier snapshot of the same
// aggregator. Counts, sums and buckets are subtracted, and rows that have not
// changed are left out. Minima and maxima remain those of all time. There must
// be no [Aggregator.Clear] between the two snapshots.
func (s *Snapshot) Since(earlier *Snapshot) *Snapshot {
	before := make(map[string]*Row)
	for i := range earlier.Rows {
		before[earlier.Rows[i].identity()] = &earlier.Rows[i]
	}
	difference := &Snapshot{Time: s.Time, By: s.By}
	for _, row := range s.Rows {
		if old := before[row.identity()]; old != nil {
			row = row.since(old)
		}
		if row.Count > 0 {
			difference.Rows = append(difference.Rows, row)
		}
	}
	slices.SortFunc(difference.Rows, compareRows)
	return difference
}

// identity is equal for rows with equal keys.
func (r *Row) identity() string {
	var b strings.Builder
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "%d %d %q\x00", k.kind, k.bits, k.data)
	}
	fmt.Fprintf(&b, "%v %p", r.Stack, r.Site)
	return b.String()
}
