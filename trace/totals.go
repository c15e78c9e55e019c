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

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

type totals struct {
	rows     map[string]*total // by their keys, see identity
	other    total             // of keys for which there is no row
	dropped  bool              // rows have been added to other
	overflow uint64            // hits of other that the kernel had no room for
	owned    map[uint64]int    // the number of rows of each owner
}

type total struct {
	Row
	id    string // its identity among the rows
	owner uint64 // the control group or user whose hit has made the key in the kernel
	owned bool   // the owner is known
}

// index returns the index that ends a key: the bucket of a histogram, or the
// class of the value.
func index(key []byte) int { return int(binary.NativeEndian.Uint32(key[len(key)-4:])) }

// totalOf returns the total that a key's hits are added to. known has those of
// this round where several keys of the kernel are one row.
func (a *aggregation) totalOf(key []byte, known map[string]*total) *total {
	key = a.oneKey(key[:len(key)-4]) // all but the index
	if a.totals.rows == nil {
		a.totals.rows = make(map[string]*total)
	}
	several := a.normalize != nil || a.by(expr.Container) || a.by(expr.Stack) || a.by(expr.Site)
	if !several {
		known = a.totals.rows
	}
	if t := known[string(key)]; t != nil {
		return t
	}
	fresh := a.newTotal(key)
	identity := string(key)
	if several {
		identity = fresh.identity()
	}
	t := a.totals.rows[identity]
	if t == nil {
		// If there are far too many rows, those with the fewest hits are
		// dropped. As many more as the kernel has room for are kept until then:
		// only then is it known which are frequent.
		if len(a.totals.rows) >= a.maxKeys+max(a.maxKeys/4, a.room()+a.reserve()) {
			if a.dropRows(); several {
				clear(known)
			}
		}
		t, fresh.Partial = fresh, a.totals.dropped
		t.id = identity
		a.totals.rows[identity] = t
	}
	known[string(key)] = t
	return t
}

// give gives a row to the owner whose hit has made its key in the kernel, of
// two owners to the one with fewer rows: an owner that makes up the keys of
// others does not get these dropped.
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

func (all *totals) disown(t *total) {
	if all.owned[t.owner]--; all.owned[t.owner] == 0 {
		delete(all.owned, t.owner)
	}
	t.owned = false
}

// share returns the number of rows that each owner may have so that there are
// most of them at most, and the rows left over. Owners with fewer keep all of
// theirs, and the others have the rest in equal parts.
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

// dropRows adds the rows that are too many to other: of the owners with the
// most rows those with the fewest hits, and of these the latest.
func (a *aggregation) dropRows() {
	if len(a.totals.rows) <= a.maxKeys {
		return
	}
	rows := slices.SortedFunc(maps.Values(a.totals.rows), func(t, u *total) int {
		switch {
		case t.Count != u.Count || t.Partial == u.Partial:
			// Other tables of the same keys keep the same of those that are
			// equal.
			return cmp.Or(cmp.Compare(u.Count, t.Count), cmp.Compare(t.id, u.id))
		case t.Partial:
			return 1
		}
		return -1
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
		delete(a.totals.rows, t.id)
		a.totals.disown(t)
		a.totals.other.merge(&t.Row)
	}
	a.totals.dropped = true
}

func (a *aggregation) addTo(t *total, index int, added sums) {
	class, kept := bpfgen.Class(index), bpfgen.Class(index)
	more := Row{Count: added.count}
	if a.Histogram != nil {
		if index < 0 || index >= a.Histogram.Buckets() {
			return
		}
		t.buckets.Add(index, added.count)
		// Values of a bucket with a sign have a sum with a sign.
		class, kept = bpfgen.ClassUnsigned, bpfgen.ClassUnsigned
		if _, _, negative, _ := a.Histogram.Bounds(index); negative {
			class = bpfgen.ClassSigned
		}
	}
	switch {
	case a.Sum && class >= bpfgen.ClassFloat32:
		more.Sum = floatValue(math.Float64frombits(added.sum))
	case a.Sum:
		more.Sum = added.total(class == bpfgen.ClassSigned)
	}
	if a.Min {
		more.Min = numberValue(class, bpfgen.Unsortable(kept, added.min, true))
	}
	if a.Max {
		more.Max = numberValue(class, bpfgen.Unsortable(kept, added.max, false))
	}
	t.merge(&more)
}

// oneKey returns the key of all hits that are shown with equal keys: its texts
// were not cut within a character, and its integers have a sign only if they
// are negative, because the sites of a probe encode them as the compiler likes.
func (a *aggregation) oneKey(key []byte) []byte {
	if len(a.Keys) == 0 {
		return key
	}
	isOwn := false
	change := func() {
		if !isOwn {
			key, isOwn = bytes.Clone(key), true
		}
	}
	for i := range a.Keys {
		if k := &a.Keys[i]; k.Source == expr.String {
			at := a.parts[i].Offset
			text, cut := bpfgen.KeyText(key[at:], k.Max)
			if whole := wholeText(text); cut && len(whole) < len(text) {
				change()
				bpfgen.SetKeyText(key[at:], k.Max, len(whole))
			}
		}
	}
	classes := binary.NativeEndian.Uint32(key[len(key)-4:])
	if classes == 0 {
		return key // as most
	}
	for i, p := range a.parts {
		negative := int64(binary.NativeEndian.Uint64(key[p.Offset:])) < 0
		if bpfgen.KeyClass(classes, i) == bpfgen.ClassSigned && !negative {
			change()
			classes ^= uint32(bpfgen.ClassSigned) << (2 * i)
		}
	}
	if isOwn {
		binary.NativeEndian.PutUint32(key[len(key)-4:], classes)
	}
	return key
}

// newTotal returns a total with the keys that the kernel has, without the
// index.
func (a *aggregation) newTotal(raw []byte) *total {
	t := &total{Row: Row{histogram: a.Histogram}}
	if len(a.Keys) == 0 {
		return t
	}
	classes := binary.NativeEndian.Uint32(raw[len(raw)-4:])
	t.Keys = make([]Value, len(a.Keys))
	for i := range a.Keys {
		t.Keys[i] = a.key(&t.Row, i, raw[a.parts[i].Offset:][:a.parts[i].Size],
			bpfgen.KeyClass(classes, i))
	}
	return t
}

// key returns one key of a row, from its part of the key in the kernel.
func (a *aggregation) key(row *Row, i int, part []byte, class bpfgen.Class) Value {
	s, term := a.session, &a.Keys[i]
	bits := binary.NativeEndian.Uint64(part)
	switch term.Source {
	case expr.Command:
		text, _, _ := bytes.Cut(part, []byte{0})
		return textValue(bytes.Clone(text), false)
	case expr.String:
		text, cut := bpfgen.KeyText(part, term.Max)
		if a.normalize != nil {
			text = []byte(a.normalize(a.names[i], string(text)))
			if shown := a.shown[i]; len(text) > shown {
				text, cut = wholeText(text[:shown]), true
			}
		}
		return textValue(bytes.Clone(text), cut)
	case expr.Calls:
		return textValue([]byte(a.latency.pathText(bits, a.paths)), false)
	case expr.Container:
		return textValue([]byte(s.opts.Containers.Name(bits)), false)
	case expr.Provider, expr.Probe:
		return textValue([]byte(s.names.name(bits)), false)
	case expr.Site:
		if row.Site = s.sites.get(uint32(bits)); row.Site != nil {
			return ValueOf(row.Site.Location)
		}
		return Value{valueForm: valueForm{size: 8}}
	case expr.Stack:
		key := Value{bits: binary.NativeEndian.Uint64(part[8:]),
			valueForm: valueForm{kind: Unsigned, size: 4}}
		if int64(bits) >= 0 {
			row.Stack, key.state = a.removed[uint32(bits)], valuePresent
		}
		return key
	default:
		return numberValue(class, bits)
	}
}

// total returns the sum of integers. The values' lower halves add up to less
// than 2^64, as far as there are fewer than 2^32 values, so there is one number
// that is equal to the sum modulo 2^64: the nearest to what the lower halves
// come to on average.
func (s *sums) total(hasSign bool) Value {
	low, high := s.upper<<32, s.upper>>32
	kind := Unsigned
	if hasSign {
		high, kind = uint64(int64(s.upper)>>32), Signed
	}
	low, carry := bits.Add64(low, s.count<<31, 0)
	high, _ = bits.Add64(high, s.count>>33, carry)
	off := s.sum - low
	low, carry = bits.Add64(low, off, 0)
	high, _ = bits.Add64(high, uint64(int64(off)>>63), carry)
	return wideValue(high, low, kind)
}

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
	return wideValue(high, low, kind)
}

// wideValue returns an integer of 128 bits, as a float if it needs more than
// 64.
func wideValue(high, low uint64, kind Kind) Value {
	switch {
	case high == 0 && low > math.MaxInt64:
		kind = Unsigned
	case high == 0:
	case high == math.MaxUint64 && low > math.MaxInt64:
		kind = Signed
	default:
		return floatValue(float64(int64(high))*0x1p64 + float64(low))
	}
	return Value{bits: low, valueForm: valueForm{kind: kind, size: 8, state: valuePresent}}
}

// extension returns the upper 64 of the 128 bits of an integer.
func (v Value) extension() uint64 {
	if v.kind == Signed {
		return uint64(int64(v.bits) >> 63)
	}
	return 0
}
