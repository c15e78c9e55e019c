// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// totals are what has been taken from the kernel.
type totals struct {
	rows     map[string]*total // by what tells keys apart
	other    total             // of keys for which there is no row
	dropped  bool              // rows have been added to other
	overflow uint64            // hits of other that the kernel had no room for
	owned    map[uint64]int    // the number of rows of each owner
}

// total becomes a row.
type total struct {
	keys string // as in the kernel
	row  Row    // with its keys if several keys of the kernel are one row

	// owner is the control group or the user whose hit has made the key in the
	// kernel.
	owner uint64
	owned bool // the owner is known

	buckets tracing.Buckets // of a histogram of either kind, by their numbers
}

// index returns the index that ends a key: the bucket of a histogram, or the
// class of the value.
func index(key []byte) int { return int(binary.NativeEndian.Uint32(key[len(key)-4:])) }

// totalOf returns the total that a key's hits are added to; with an error it is
// other. known has those of this round where several keys are one row.
func (a *aggregation) totalOf(key []byte, known map[string]*total) (*total, error) {
	key = key[:len(key)-4] // all but the index
	// Several keys of the kernel become one of a row then.
	if a.normalize == nil && !a.by(expr.Container) && !a.by(expr.Stack) {
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

// newTotal makes a row. If there are far too many, those with the fewest hits
// are dropped, and known is emptied. There may be as many more as the kernel
// has room for: only then is it known which are frequent.
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

// give gives a row to the owner whose hit has made its key in the kernel. Of
// two owners it belongs to the one with fewer rows. So an owner that makes up
// the keys of others does not get these dropped.
func (all *totals) give(t *total, owner uint64) {
	switch {
	case t == &all.other || t.owned && all.owned[t.owner] <= all.owned[owner]:
		return
	case t.owned:
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

// share returns the number of rows that each owner may have so that there are
// most of them at most, and the number of rows left over. Owners with fewer
// rows keep all of theirs, and the others have the rest in equal parts.
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

// dropRows adds the rows that are too many to other: of the owners that have
// the most rows those with the fewest hits, and of these the latest.
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
		c := cmp.Compare(u.row.Count, t.row.Count)
		if c == 0 && t.row.Partial != u.row.Partial {
			if c = -1; t.row.Partial {
				c = 1
			}
		}
		return c
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
		for i, count := range t.buckets.Counts {
			a.totals.other.buckets.Add(t.buckets.Offset+i, count)
		}
	}
	a.totals.dropped = true
}

// addTo adds the hits of an accumulator.
func (a *aggregation) addTo(t *total, index int, added sums) {
	class := bpfgen.Class(index)
	within := bounds{high: math.MaxUint64}
	if class == bpfgen.ClassSigned {
		within = bounds{low: 1 << 63, high: math.MaxInt64, lowNegative: true}
	}
	if a.Histogram != nil {
		if index < 0 || index >= a.Histogram.Buckets() {
			return
		}
		t.buckets.Add(index, added.count)
		// Values of a bucket with a sign have a sum with a sign.
		class = bpfgen.ClassUnsigned
		within.low, within.high, within.lowNegative, within.highNegative = a.Histogram.Bounds(index)
		if within.lowNegative {
			class = bpfgen.ClassSigned
		}
	}
	t.row.Count += added.count
	switch {
	case a.Sum && class >= bpfgen.ClassFloat32:
		t.row.Sum = plus(t.row.Sum, floatValue(math.Float64frombits(added.sum)))
	case a.Sum:
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

// finished returns the row with its histogram. It shares nothing with the
// total, which changes.
func (a *aggregation) finished(t *total) (Row, error) {
	row := t.row
	if row.Keys == nil && t.keys != "" {
		keys, err := a.newRow([]byte(t.keys))
		if err != nil {
			return row, err
		}
		row.Keys, row.Stack, row.site = keys.Keys, keys.Stack, keys.site
	}
	switch {
	case a.Histogram == nil:
	case a.Histogram.IsExponential():
		zero, shift := a.Histogram.Zero(), a.Histogram.Shift()
		h := &tracing.Exponential{Scale: a.Histogram.Scale, Unit: a.Histogram.Unit}
		for i, count := range t.buckets.Counts {
			switch bucket := t.buckets.Offset + i; {
			case count == 0:
			case bucket == zero:
				h.Zero = count
			case bucket > zero:
				h.Positive.Add(bucket-zero-2-shift, count)
			default:
				h.Negative.Add(zero-bucket-2-shift, count)
			}
		}
		row.Exponential = h
	default:
		for i, count := range t.buckets.Counts {
			low, high, lowNegative, highNegative := a.Histogram.Bounds(t.buckets.Offset + i)
			row.buckets = append(row.buckets,
				Bucket{bound(low, lowNegative), bound(high, highNegative), count})
		}
	}
	return row, nil
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

// key returns one key of a row, from its part of the key in the kernel.
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
		if row.site = s.sites.get(uint32(bits)); row.site != nil {
			key.bits, key.state = row.site.Location, valuePresent
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

// Sums of integers that need more than 64 bits are floats. Programs add modulo
// 2^64, for each bucket of a histogram on its own. The bounds of the bucket and
// the count tell how often the sum has gone round.

// bounds are the least and the greatest of values that were added up.
type bounds struct {
	low, high                 uint64
	lowNegative, highNegative bool
}

// sumOf returns the sum of count numbers between the bounds, from that sum
// modulo 2^64. With bounds that are far apart and a large count it is only as
// exact as they are.
func (b *bounds) sumOf(sum, count uint64) Value {
	class := bpfgen.ClassUnsigned
	if b.lowNegative {
		class = bpfgen.ClassSigned
	}
	value := numberValue(class, sum)
	greatest := b.high
	if b.lowNegative {
		greatest = -b.low
		if !b.highNegative {
			greatest = max(greatest, b.high)
		}
	}
	over, product := bits.Mul64(greatest, count)
	if over == 0 && (!b.lowNegative || product <= math.MaxInt64) {
		return value // it has no more than 64 bits
	}
	low, high := float(b.low, b.lowNegative)*float64(count),
		float(b.high, b.highNegative)*float64(count)
	if known := value.Float(); known >= low && known <= high {
		return value
	}
	rounds := math.Round((low/2 + high/2 - value.Float()) / 0x1p64)
	return floatValue(min(max(value.Float()+rounds*0x1p64, low), high))
}

func float(number uint64, negative bool) float64 {
	if negative {
		return float64(int64(number))
	}
	return float64(number)
}

func floatValue(f float64) Value {
	return Value{bits: math.Float64bits(f),
		valueForm: valueForm{kind: Float, size: 8, state: valuePresent}}
}

// plus adds two sums. The result has a sign if one of them has.
func plus(a, b Value) Value {
	if a.state != valuePresent {
		return b
	}
	if a.kind == Float || b.kind == Float {
		return floatValue(a.Float() + b.Float())
	}
	// The numbers in 128 bits.
	low, carry := bits.Add64(a.bits, b.bits, 0)
	high, _ := bits.Add64(a.extension(), b.extension(), carry)
	kind := Unsigned
	if a.kind == Signed || b.kind == Signed {
		kind = Signed
	}
	switch {
	case high == 0 && (kind == Unsigned || low <= math.MaxInt64):
	case high == 0:
		kind = Unsigned // although one of them has a sign
	case high == math.MaxUint64 && low > math.MaxInt64:
		kind = Signed
	default:
		return floatValue(a.Float() + b.Float())
	}
	a.kind, a.bits = kind, low
	return a
}

// extension returns the upper 64 of the 128 bits of an integer.
func (v Value) extension() uint64 {
	if v.kind == Signed {
		return uint64(int64(v.bits) >> 63)
	}
	return 0
}

// Histogram returns the buckets of the histogram. Exponential ones can be fewer
// than were kept: perDoubling, 1, 2, 4, 8 or 16, is how many there are from a
// number to its double; 0 stands for all that were kept. They are in the order
// of their values, without the empty ones at either end. Each has the least and
// the greatest integer that belongs to it; exponential buckets without an
// integer are left out.
func (r *Row) Histogram(perDoubling int) []Bucket {
	h := r.Exponential
	if h == nil {
		return r.buckets
	}
	if perDoubling > 0 {
		h = h.Downscale(bits.Len(uint(perDoubling)) - 1)
	}
	b := &bpfgen.Histogram{Scale: h.Scale, Unit: h.Unit}
	zero, one := b.Zero(), b.Shift()+2
	first, last := zero, zero
	if h.Zero == 0 {
		first, last = b.Buckets(), -1
	}
	if n := len(h.Negative.Counts); n > 0 {
		first, last = zero-one-(h.Negative.Offset+n-1), max(last, zero-one-h.Negative.Offset)
	}
	if n := len(h.Positive.Counts); n > 0 {
		first, last = min(first, zero+one+h.Positive.Offset), zero+one+h.Positive.Offset+n-1
	}
	var all []Bucket
	for n := first; n <= last; n++ {
		low, high, lowNegative, highNegative := b.Bounds(n)
		bucket := Bucket{Low: bound(low, lowNegative), High: bound(high, highNegative)}
		switch {
		case n < zero:
			bucket.Count = h.Negative.At(zero - one - n)
		case n == zero:
			bucket.Count = h.Zero
		default:
			bucket.Count = h.Positive.At(n - zero - one)
		}
		if bucket.Count > 0 || compareValues(bucket.Low, bucket.High) <= 0 {
			all = append(all, bucket)
		}
	}
	return all
}
