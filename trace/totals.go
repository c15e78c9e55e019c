// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// totals are what has been taken from the kernel.
type totals struct {
	rows     map[string]*total // by what tells keys apart
	other    total             // of keys for which there is no row
	dropped  bool              // rows have been added to other
	overflow uint64            // hits of other that the kernel had no room for
	owned    map[uint64]int    // how many rows each owner has
}

// total is what will be a row.
type total struct {
	keys string // as in the kernel
	row  Row    // has its keys already if texts are normalized

	// owner is whose hit has made the key in the kernel: a control group or a
	// user.
	owner uint64
	owned bool // the owner is known

	// counts are those of the buckets of a histogram, from the first one on
	// that is known.
	first  int
	counts []uint64
}

// index returns the index that an accumulator has in an array, or would have
// without its keys: the bucket of a histogram, or the class of the value.
func index(key []byte) int { return int(binary.NativeEndian.Uint32(key[len(key)-4:])) }

// totalOf returns what a key's hits are added to. known has what it has
// returned in the same round where texts are normalized. With an error it is
// what has no row.
func (a *aggregation) totalOf(key []byte, known map[string]*total) (*total, error) {
	key = key[:len(key)-4] // all but the index
	if !a.translates() {
		if t := a.totals.rows[string(key)]; t != nil {
			return t, nil
		}
		return a.newTotal(string(key), total{keys: string(key)}, known), nil
	}
	if t := known[string(key)]; t != nil {
		return t, nil
	}
	row, err := a.newRow(key)
	if err != nil {
		return &a.totals.other, err
	}
	identity := row.identity()
	t := a.totals.rows[identity]
	if t == nil {
		t = a.newTotal(identity, total{row: row}, known)
	}
	known[string(key)] = t
	return t, nil
}

// translates reports whether keys of rows are made from keys of the kernel such
// that several become one.
func (a *aggregation) translates() bool {
	return a.normalize != nil || a.by(expr.Container) || a.by(expr.Stack)
}

// newTotal makes a row. Should there be many more than there may be, those with
// the fewest hits go, and known is emptied. Before that there can be as many
// more as the kernel has room for: what is frequent is seen only when all of
// that has been taken.
func (a *aggregation) newTotal(identity string, fresh total, known map[string]*total) *total {
	if len(a.totals.rows) >= a.maxKeys+max(a.maxKeys/4, a.room()+a.reserve()) {
		a.dropRows()
		clear(known)
	}
	if a.totals.rows == nil {
		a.totals.rows = make(map[string]*total)
	}
	fresh.row.Partial = a.totals.dropped
	a.totals.rows[identity] = &fresh
	return &fresh
}

// give gives a row to the owner whose hit has made its key in the kernel. If it
// has been given to another one before, it belongs to the one that has fewer
// rows: who passes the keys of others does not have them dropped with its own.
func (all *totals) give(t *total, owner uint64) {
	if t == &all.other {
		return
	}
	if t.owned {
		if t.owner == owner || all.owned[t.owner] <= all.owned[owner] {
			return
		}
		all.disown(t)
	}
	if all.owned == nil {
		all.owned = make(map[uint64]int)
	}
	t.owner, t.owned = owner, true
	all.owned[owner]++
}

// disown takes a row from its owner.
func (all *totals) disown(t *total) {
	if all.owned[t.owner]--; all.owned[t.owner] == 0 {
		delete(all.owned, t.owner)
	}
	t.owned = false
}

// share returns how many rows an owner may have if there are to be no more than
// most of them, and how many rows are left over: owners with fewer rows keep
// all of theirs, and the others have the rest in equal parts.
func (all *totals) share(most int) (each, over int) {
	counts := slices.Sorted(maps.Values(all.owned))
	for i, count := range counts {
		owners := len(counts) - i
		if each = most / owners; count > each {
			return each, most % owners
		}
		most -= count
	}
	return math.MaxInt, 0
}

// dropRows adds the rows that are too many to the others: of the owners that
// have the most rows those with the fewest hits, and of these the latest. So a
// key that is frequent keeps its row however many others its owner has, and an
// owner with few keys has all of its rows however many others have.
func (a *aggregation) dropRows() {
	if len(a.totals.rows) <= a.maxKeys {
		return
	}
	type candidate struct {
		identity string
		*total
	}
	rows := make([]candidate, 0, len(a.totals.rows))
	for identity, t := range a.totals.rows {
		rows = append(rows, candidate{identity, t})
	}
	slices.SortFunc(rows, func(t, u candidate) int {
		switch {
		case t.row.Count != u.row.Count:
			return cmp.Compare(u.row.Count, t.row.Count)
		case t.row.Partial == u.row.Partial:
			return 0
		case t.row.Partial:
			return 1
		default:
			return -1
		}
	})
	each, over := a.totals.share(a.maxKeys)
	kept := make(map[uint64]int)
	for _, t := range rows {
		switch {
		case kept[t.owner] < each:
			kept[t.owner]++
			continue
		case over > 0:
			over--
			continue
		}
		delete(a.totals.rows, t.identity)
		a.totals.disown(t.total)
		a.totals.other.row.merge(&t.row)
		for i, count := range t.counts {
			a.totals.other.addBucket(t.first+i, count)
		}
	}
	a.totals.dropped = true
}

// addTo adds the hits of an accumulator.
func (a *aggregation) addTo(t *total, index int, added sums) {
	class := bpfgen.Class(index)
	within := anyNumber(class)
	if a.Histogram != nil {
		if index < 0 || index >= a.Histogram.Buckets() {
			return
		}
		t.addBucket(index, added.count)
		// Values of a bucket with a sign have a sum with a sign.
		class = bpfgen.ClassUnsigned
		within.low, within.high, within.lowNegative, within.highNegative = a.Histogram.Bounds(index)
		if within.lowNegative {
			class = bpfgen.ClassSigned
		}
	}
	t.row.Count += added.count
	if a.Sum {
		t.row.Sum = plus(t.row.Sum, within.sumOf(added.sum, added.count))
	}
	if added.count == 0 {
		return // a sum that has come after its count
	}
	kept := class
	if a.Histogram != nil {
		kept = bpfgen.ClassUnsigned
	}
	if a.Min {
		t.row.Min = extreme(t.row.Min,
			numberValue(class, bpfgen.Unsortable(kept, added.min, true)), -1)
	}
	if a.Max {
		t.row.Max = extreme(t.row.Max,
			numberValue(class, bpfgen.Unsortable(kept, added.max, false)), 1)
	}
}

// addBucket adds to a bucket of a histogram.
func (t *total) addBucket(bucket int, count uint64) {
	switch {
	case len(t.counts) == 0:
		t.first, t.counts = bucket, []uint64{0}
	case bucket < t.first:
		t.counts = slices.Concat(make([]uint64, t.first-bucket), t.counts)
		t.first = bucket
	case bucket >= t.first+len(t.counts):
		t.counts = append(t.counts, make([]uint64, bucket-t.first-len(t.counts)+1)...)
	}
	t.counts[bucket-t.first] += count
}

// finished returns the row with its histogram, which shares nothing with the
// total that changes.
func (a *aggregation) finished(t *total) (Row, error) {
	row := t.row
	if row.Keys == nil && t.keys != "" {
		keys, err := a.newRow([]byte(t.keys))
		if err != nil {
			return row, err
		}
		row.Keys, row.Stack, row.Site = keys.Keys, keys.Stack, keys.Site
	}
	switch {
	case a.Histogram == nil:
	case a.Histogram.Step == 0:
		row.Exponential = a.exponential(t)
	default:
		for i, count := range t.counts {
			low, high, lowNegative, highNegative := a.Histogram.Bounds(t.first + i)
			row.Buckets = append(row.Buckets,
				Bucket{bound(low, lowNegative), bound(high, highNegative), count})
		}
	}
	return row, nil
}

func (a *aggregation) exponential(t *total) *ExponentialHistogram {
	zero := a.Histogram.Zero()
	h := &ExponentialHistogram{Scale: a.Histogram.Scale}
	for i, count := range t.counts {
		switch bucket := t.first + i; {
		case count == 0:
		case bucket == zero:
			h.Zero = count
		case bucket > zero:
			h.Positive.add(bucket-zero-2, count)
		default:
			h.Negative.add(zero-bucket-2, count)
		}
	}
	return h
}

// newRow returns a row with the keys that the kernel has, without the index.
func (a *aggregation) newRow(raw []byte) (row Row, err error) {
	if len(a.Keys) == 0 {
		return row, nil
	}
	parts, _ := a.KeyLayout()
	classes := binary.NativeEndian.Uint32(raw[len(raw)-4:])
	for i := range a.Keys {
		key, err := a.key(&row, &a.Keys[i], raw[parts[i].Offset:][:parts[i].Size],
			bpfgen.KeyClass(classes, i))
		if err != nil {
			return row, err
		}
		row.Keys = append(row.Keys, key)
	}
	return row, nil
}

// key returns a key of a row, from its part of the key in the kernel.
func (a *aggregation) key(
	row *Row, term *expr.Term, part []byte, class bpfgen.Class,
) (Value, error) {
	s := a.session
	bits := binary.NativeEndian.Uint64(part)
	switch term.Source {
	case expr.Command:
		return textValue(textOf(part), false), nil
	case expr.String:
		text := textOf(part)
		if a.normalize != nil {
			text = []byte(a.normalize(string(text)))
		}
		return textValue(text, part[term.Max+1] != 0), nil
	case expr.Container:
		return textValue([]byte(s.opts.Containers.Name(bits)), false), nil
	case expr.Provider, expr.Probe:
		return textValue([]byte(s.names.name(bits)), false), nil
	case expr.Site:
		key := Value{valueForm: valueForm{kind: Unsigned, size: 8}}
		if row.Site = s.sites.get(uint32(bits)); row.Site != nil {
			key.bits, key.state = row.Site.Location, valuePresent
		}
		return key, nil
	case expr.Stack:
		key := Value{bits: binary.NativeEndian.Uint64(part[8:]),
			valueForm: valueForm{kind: Unsigned, size: 4}}
		if int64(bits) >= 0 {
			stack, err := a.stacks.of(bits)
			if err != nil {
				return key, err
			}
			row.Stack, key.state = stack, valuePresent
		}
		return key, nil
	default:
		return numberValue(class, bits), nil
	}
}

// textOf returns a copy of a text that ends with a zero.
func textOf(part []byte) []byte {
	text, _, _ := bytes.Cut(part, []byte{0})
	return bytes.Clone(text)
}
