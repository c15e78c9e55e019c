// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Aggregation says what to compute in the kernel over many hits.
//
// Its map holds accumulators: for each processor a count and, as wanted, a sum,
// the sum of the values' upper halves, a minimum and a maximum, in this order,
// 8 bytes each. The first sum wraps around, and the second says how often;
// floats have none. Without keys it is an array, with an accumulator for each
// bucket of a histogram, or for each class of the value. With keys it is a hash
// map, see KeyLayout, whose last word is the owner of the hit that has made the
// key, on the processor of that hit.
//
// There are two of each map, and arrays have two halves. Plan.Generations tells
// which of them a hit adds to. User space turns the bit over, waits until no
// program can have the others in hand, and empties these. Arrays of maps spare
// maps: the kernel refuses programs with more than 64.
type Aggregation struct {
	Map       int                      // descriptor: with keys of an array of the two hash maps
	Overflow  int                      // descriptor of an array as without keys, for hits whose key finds no room in the map
	Stacks    [2]int                   // descriptors of maps of stacks, for a key that is a user stack
	Bit       int                      // of Plan.Generations
	Room      *Room                    // how a map with keys is shared out; nil: not at all
	Applies   func(site *Site) bool    // whether a site is aggregated
	Where     *expr.Node               // nil: every hit
	Value     *expr.Term               // nil: hits are counted
	Latency   *Latency                 // if set, calls are aggregated; without Value it is their time
	Keys      []expr.Term              // of String with their limit
	Sum       bool                     // what is kept beside the count
	Min, Max  bool                     //
	Histogram *Histogram               // nil: none
	Names     func(name string) uint32 // gives providers and probes a number, for keys that are one
}

// KeyPart is a part of a key in a hash map.
type KeyPart struct {
	Offset, Size int
}

// KeyLayout returns the places of the keys, and the size of the whole key of
// the map. After the keys stand their classes and the index that an aggregation
// without keys would have, 4 bytes each. See KeyText for texts.
func (a *Aggregation) KeyLayout() (parts []KeyPart, size int) {
	for i := range a.Keys {
		part := KeyPart{Offset: size, Size: 8}
		switch k := &a.Keys[i]; k.Source {
		case expr.String:
			part.Size = align8(k.Max + 2)
		case expr.Command:
			part.Size = commandSize
		case expr.Stack:
			// The ID of the stack, or an error, and the process whose addresses
			// it has.
			part.Size = 16
		}
		parts = append(parts, part)
		size += part.Size
	}
	return parts, size + 8
}

// ValueSize returns the size of an accumulator.
func (a *Aggregation) ValueSize() int {
	size := 8
	// Twice for the sum, and the last for the owner.
	for _, wanted := range []bool{a.Sum, a.Sum, a.Min, a.Max, len(a.Keys) > 0} {
		if wanted {
			size += 8
		}
	}
	return size
}

// Entries returns how many accumulators half an array has.
func (a *Aggregation) Entries() int {
	if a.Histogram != nil {
		return a.Histogram.Buckets()
	}
	return int(ClassFloat64) + 1
}

// KeyClass returns the class of a key by its number.
func KeyClass(classes uint32, key int) Class { return Class(classes >> (2 * key) & 3) }

// MaxKeys is how many keys an aggregation can have: their classes share 32
// bits.
const MaxKeys = 16

// isOf reports whether hits of a site, or the calls that end there, are added.
func (a *Aggregation) isOf(site *Site) bool {
	if a.Latency == nil {
		return a.Applies(site)
	}
	pair, _ := site.Pairs[a.Latency].end()
	return pair != 0
}

func (a *Aggregation) terms() (terms []*expr.Term) {
	for i := range a.Keys {
		terms = append(terms, &a.Keys[i])
	}
	if a.Value != nil {
		terms = append(terms, a.Value)
	}
	return terms
}

func (b *builder) aggregate(a *Aggregation) {
	if a.Latency == nil && !a.Applies(b.site) {
		return
	}
	var arguments []int
	readable := true
	for _, term := range a.terms() {
		t := b.site.bound(*term)
		if t.Start {
			if !b.site.starts.has(t.AtStart) {
				return
			}
			continue
		}
		if !b.site.has(t) {
			return
		}
		readable = readable && b.site.canRead(t)
		arguments = append(arguments, t.Arguments()...)
	}
	where := condition{kind: always}
	if a.Where != nil {
		if where = b.resolve(a.Where, false); where.kind == never {
			return
		}
	}
	if readable && a.Value != nil && a.Histogram != nil && !a.Value.Start {
		if o, _ := b.site.operand(*a.Value); o.class >= ClassFloat32 {
			b.Fail(fmt.Errorf("%s is a float: it has no quantiles and no distribution",
				b.site.describe(*a.Value)))
			return
		}
	}
	b.block.Delivers = true
	b.apart(func() {
		done, unread := b.Label(), b.Label()
		if readable {
			b.together(where.arguments(slices.Clip(arguments)), func() {
				b.condition(&where, done)
				b.load(unread, arguments...)
			})
			b.Scratch(func() { b.accumulate(a, unread, done) })
		} else { // a key or the value cannot be fetched here
			b.unless(&where, done)
			b.Jump(unread)
		}
		b.Place(done)
		b.Aside(unread, done, func() { b.count(CounterUnreadable) })
	})
}

// accumulate finds the accumulator and adds the value to it. It goes to missing
// if the start of the call has no such key or value.
func (b *builder) accumulate(a *Aggregation, unread, missing argcode.Label) {
	parts, size := a.KeyLayout()
	key := b.Alloc(size)
	index := key + size - 4
	ofStart := slices.ContainsFunc(a.terms(), func(t *expr.Term) bool { return t.Start })
	if ofStart {
		b.findKept(unread)
		b.Emit(storeImm(r10, index-4, 0, asm.Word))
	}
	classes := uint32(0)
	for i, t := range a.Keys {
		at := key + parts[i].Offset
		if !t.Start {
			t = b.site.bound(t)
			classes |= uint32(b.key(a, &t, at, parts[i].Size, unread)) << (2 * i)
			continue
		}
		from := b.keptAt(&t, unread, missing)
		for n := 0; n < parts[i].Size; n += 8 {
			b.Emit(load(r2, r7, from+n), toStack(at+n, r2))
		}
		b.Emit(asm.Sub.Imm(r1, startNumber), asm.And.Imm(r1, 3), asm.LSh.Imm(r1, int32(2*i)),
			loadN(r2, r10, index-4, asm.Word), asm.Or.Reg(r2, r1),
			storeN(r10, index-4, r2, asm.Word))
	}
	switch {
	case len(a.Keys) == 0:
		key = index
	case ofStart:
		b.Emit(loadN(r2, r10, index-4, asm.Word), asm.Or.Imm(r2, int32(classes)),
			storeN(r10, index-4, r2, asm.Word))
	default:
		b.Emit(storeImm(r10, index-4, int64(int32(classes)), asm.Word))
	}
	switch {
	case a.Value != nil && a.Value.Source == expr.Self:
		unknown := b.Label()
		b.ownTime(unknown)
		b.Aside(unknown, missing, func() { b.count(CounterSelf) })
		b.add(a, key, index, ClassUnsigned, unread)
	case a.Value != nil && a.Value.Start:
		b.valueOfStart(a, key, index, unread, missing)
	case a.Value != nil:
		b.add(a, key, index, b.term(r9, a.Value), unread)
	default:
		if a.Latency != nil {
			b.Emit(fromStack(r9, b.ending.duration))
		}
		b.add(a, key, index, ClassUnsigned, unread)
	}
}

// add adds the value in R9 to the accumulator of a key. It goes to unread for a
// float that is NaN, and for one that is to be summed and is infinite.
func (b *builder) add(a *Aggregation, key, index int, c Class, unread argcode.Label) {
	hasSign := c == ClassSigned
	switch {
	case c < ClassFloat32:
	case a.Sum:
		b.toDouble(c, unread)
		c = ClassFloat64
	case a.Min || a.Max: // NaN is neither
		infinity, unused := uint64(endlessDouble)<<(mantissaBits+1), int32(0)
		if c == ClassFloat32 {
			infinity, unused = 0xff<<56, 32
		}
		b.Emit(mov(r1, r9), asm.LSh.Imm(r1, unused+1)) // without the sign
		b.JumpIfImm(asm.JGT, r1, infinity, r2, unread)
	}
	if a.Histogram != nil {
		b.bucket(r3, a.Histogram, c)
		// Buckets have no class: there is one row, whether an argument has a
		// sign or not, and the values of a bucket have the same sign.
		c = ClassUnsigned
	} else {
		b.Emit(set(r3, int32(c)))
	}
	b.Emit(storeN(r10, index, r3, asm.Word))
	none := b.find(a, key, index)
	b.addValue(a, c, hasSign)
	b.Place(none)
}

// keptAt sets R1 to the class of a value of the start, plus startNumber, and
// returns the offset of the value. R7 points to the kept values. It goes to
// unread or missing if the value is not there.
func (b *builder) keptAt(t *expr.Term, unread, missing argcode.Label) (at int) {
	at = b.ending.Values[t.AtStart].offset
	b.Emit(load(r1, r7, at))
	b.JumpIfImm(asm.JEq, r1, startUnreadable, r2, unread)
	b.JumpIfImm(asm.JEq, r1, startMissing, r2, missing)
	return at + 8
}

// valueOfStart adds a value of the start. Its class is known only now.
func (b *builder) valueOfStart(a *Aggregation, key, index int, unread, missing argcode.Label) {
	done := b.Label()
	from := b.keptAt(a.Value, unread, missing)
	b.Emit(load(r9, r7, from))
	for c := ClassUnsigned; c <= ClassFloat64; c++ {
		b.If(asm.JEq, r1, uint64(startNumber+c), r2, func() {
			if c >= ClassFloat32 && a.Histogram != nil {
				b.Jump(unread)
				return
			}
			b.Scratch(func() { b.add(a, key, index, c, unread) })
			b.Jump(done)
		})
	}
	b.Place(done)
}

// find sets R7 to the accumulator of a key, and makes one where there is none.
// Without room for it, R7 is the accumulator of the overflow, whose key is the
// index alone. none is for a failed look-up, which the verifier wants checked.
func (b *builder) find(a *Aggregation, key, index int) (none argcode.Label) {
	missing, found := b.Label(), b.Label()
	none = b.Label()
	fresh := b.Alloc(a.ValueSize())
	if len(a.Keys) == 0 {
		b.half(a, index)
		b.LookUp(a.Map, key, none)
		b.Emit(mov(r7, r0))
		return none
	}
	var of any = argcode.Map(a.Map)
	if b.generations != 0 {
		b.bit(r1, a)
		b.Emit(storeN(r10, fresh, r1, asm.Word))
		b.LookUp(a.Map, fresh, none)
		b.Emit(mov(r7, r0))
		of = r7
	}
	b.Call(asm.FnMapLookupElem, of, onStack(key))
	b.JumpIfImm(asm.JEq, r0, 0, r1, missing)
	b.Place(found)
	b.Emit(mov(r7, r0))
	b.Aside(missing, none, func() {
		refused := b.Label()
		owner := fresh + a.ValueSize() - 8
		b.zero(r10, fresh, a.ValueSize()-8)
		b.ownerID()
		b.Emit(toStack(owner, r0))
		if a.Room != nil {
			b.takeRoom(a.Room, owner, fresh, refused)
		}
		b.Call(asm.FnMapUpdateElem, of, onStack(key), onStack(fresh), updateNoExist)
		b.Call(asm.FnMapLookupElem, of, onStack(key))
		// Another processor may have made it: then the update failed and the
		// look-up does not.
		b.JumpIfImm(asm.JNE, r0, 0, r1, found)
		b.Place(refused)
		b.half(a, index)
		b.Element(a.Overflow, index)
		b.JumpIfImm(asm.JNE, r0, 0, r1, found)
	})
	return none
}

// generation keeps the word of Plan.Generations, if the hit may be aggregated.
// It is read once: the hit is of one generation in all aggregations. It goes to
// none if there is no word, which the verifier wants checked.
func (b *builder) generation(none argcode.Label) {
	if b.plan.Generations == 0 || !slices.ContainsFunc(b.plan.Aggregations,
		func(a *Aggregation) bool { return a.isOf(b.site) }) {
		return
	}
	b.generations = b.Alloc(8)
	b.LookUpIndex(b.plan.Generations, b.generations, 0, none)
	b.Call(asm.FnMapLookupElem, r0, onStack(b.generations))
	b.JumpIfImm(asm.JEq, r0, 0, r1, none)
	b.Emit(load(r1, r0, 0), toStack(b.generations, r1))
}

// bit sets a register to the aggregation's bit of the hit's generation.
func (b *builder) bit(dst asm.Register, a *Aggregation) {
	b.Emit(fromStack(dst, b.generations), asm.RSh.Imm(dst, int32(a.Bit)), asm.And.Imm(dst, 1))
}

// half moves an index on the stack to the half of an array that is of the hit's
// generation.
func (b *builder) half(a *Aggregation, index int) {
	if b.generations == 0 {
		return
	}
	b.bit(r1, a)
	b.Emit(asm.Mul.Imm(r1, int32(a.Entries())), loadN(r2, r10, index, asm.Word),
		asm.Add.Reg(r1, r2), storeN(r10, index, r1, asm.Word))
}

// addValue adds R9 to the accumulator in R7. c is the class of its minimum and
// maximum.
func (b *builder) addValue(a *Aggregation, c Class, hasSign bool) {
	b.Increment(r7, 0)
	at := 8
	if a.Sum {
		if c >= ClassFloat32 {
			b.addFloat(at)
		} else {
			half := asm.RSh
			if hasSign {
				half = asm.ArSh
			}
			b.Emit(asm.AddAtomic.Mem(r7, r9, asm.DWord, int16(at)), mov(r1, r9), half.Imm(r1, 32))
			b.If(asm.JNE, r1, 0, r2, func() { // most are 0
				b.Emit(asm.AddAtomic.Mem(r7, r1, asm.DWord, int16(at+8)))
			})
		}
		at += 16
	}
	if a.Min || a.Max {
		b.sortable(c)
	}
	if a.Max && a.Min {
		b.Emit(mov(r1, r2))
	}
	if a.Min {
		// A minimum is the maximum of the complements, so that 0 is what a new
		// accumulator begins with.
		b.Emit(asm.Xor.Imm(r2, -1))
		b.raise(at)
		at += 8
	}
	if a.Max {
		if a.Min {
			b.Emit(mov(r2, r1))
		}
		b.raise(at)
	}
}

// sortable sets R2 to R9 changed so that unsigned comparison orders it.
func (b *builder) sortable(c Class) {
	b.Emit(mov(r2, r9))
	switch c {
	case ClassSigned:
		b.Emit(asm.LoadImm(r3, math.MinInt64, asm.DWord), asm.Xor.Reg(r2, r3))
	case ClassFloat32, ClassFloat64:
		if c == ClassFloat32 {
			b.Emit(asm.LSh.Imm(r2, 32))
		}
		// Of a negative number all bits are turned over, of another one the
		// sign.
		b.Emit(mov(r4, r2), asm.ArSh.Imm(r4, 63), asm.LoadImm(r3, math.MinInt64, asm.DWord),
			asm.Or.Reg(r4, r3), asm.Xor.Reg(r2, r4))
	}
}

// Unsortable undoes for a number of the given class what accumulators keep of a
// maximum, or with min of a minimum.
func Unsortable(c Class, kept uint64, min bool) uint64 {
	if min {
		kept = ^kept
	}
	switch c {
	case ClassUnsigned:
		return kept
	case ClassFloat32, ClassFloat64:
		if kept>>63 == 0 {
			kept = ^kept ^ 1<<63
		}
	}
	kept ^= 1 << 63
	if c == ClassFloat32 {
		kept >>= 32
	}
	return kept
}

// exchanges is how often raise tries. A try fails only where this hit was
// preempted, within three instructions, by another one that raised the same
// number.
const exchanges = 4

// raise sets a word of the accumulator to R2 if that is greater.
func (b *builder) raise(at int) {
	done := b.Label()
	b.Emit(load(r0, r7, at))
	if b.plan.Kernel.CompareExchange {
		for range exchanges {
			b.JumpIf(asm.JGE, r0, r2, done)
			b.Emit(mov(r3, r0))
			b.CompareExchange(r7, at, r2)
			b.JumpIf(asm.JEq, r0, r3, done)
		}
	}
	b.JumpIf(asm.JGE, r0, r2, done)
	b.Emit(store(r7, at, r2))
	b.Place(done)
}

// key emits a part of a key to the stack and returns its class.
func (b *builder) key(a *Aggregation, t *expr.Term, at, size int, unread argcode.Label) Class {
	switch t.Source {
	case expr.Command:
		b.zero(r10, at, size)
		b.command(r10, at)
		return ClassUnsigned
	case expr.String:
		b.keyText(t, r10, at, unread)
		return ClassUnsigned
	case expr.Stack:
		b.stackID(a)
		b.Emit(toStack(at, r0))
		b.numbers()
		b.Emit(asm.RSh.Imm(r0, 32), toStack(at+8, r0))
		return ClassUnsigned
	case expr.Provider:
		b.siteNumber(r1, uint64(a.Names(b.site.Provider)))
	case expr.Probe:
		b.siteNumber(r1, uint64(a.Names(b.site.Provider+":"+b.site.Name)))
	case expr.Site:
		b.siteID(r1)
	case expr.Calls:
		b.Emit(fromStack(r1, b.ending.path))
	default:
		c := b.term(r9, t)
		b.Emit(toStack(at, r9))
		return c
	}
	b.Emit(toStack(at, r1))
	return ClassUnsigned
}

// stackID sets R0 to the number of the user stack, or to the error of the
// helper.
func (b *builder) stackID(a *Aggregation) {
	b.Emit(asm.LoadMapPtr(r2, a.Stacks[0]))
	if b.generations != 0 {
		b.bit(r1, a)
		b.If(asm.JNE, r1, 0, r3, func() { b.Emit(asm.LoadMapPtr(r2, a.Stacks[1])) })
	}
	b.Call(asm.FnGetStackid, r6, nil, userStack)
}

// Two bytes after the room for a text, which may contain zeros, have its
// length, the lower byte first, and whether it was cut.
const textCut = 1 << 15

// KeyText returns a text of at most max bytes from its part of a key.
func KeyText(part []byte, max int) (text []byte, cut bool) {
	mark := int(part[max]) | int(part[max+1])<<8
	return part[:min(mark&^textCut, max)], mark&textCut != 0
}

// SetKeyText makes a text shorter that was cut.
func SetKeyText(part []byte, max, length int) {
	clear(part[length:max])
	part[max], part[max+1] = byte(length), byte((length|textCut)>>8)
}

// keyText emits code that reads a text to a place relative to a register, as
// KeyText finds it.
func (b *builder) keyText(t *expr.Term, base asm.Register, at int, unread argcode.Label) {
	done := b.Label()
	b.zero(base, at, align8(t.Max+2))
	// R2 is the length, and R4 the mark.
	if t.HasLength {
		b.value(r2, t.Length)
		b.JumpIfImm(asm.JSLT, r2, 0, r1, unread)
	} else {
		b.readText(t.Index, base, at, t.Max+2, func(dst asm.Register) { b.raw(dst, t.Index) })
		b.JumpIfImm(asm.JSLT, r0, 0, r1, unread)
		b.JumpIfImm(asm.JEq, r0, 0, r1, done) // see Capture: an empty text may have no length
		b.Emit(mov(r2, r0), asm.Sub.Imm(r2, 1))
	}
	b.Emit(set(r4, 0))
	b.If(asm.JGT, r2, uint64(t.Max), r1, func() {
		b.Emit(set(r2, int32(t.Max)), set(r4, textCut))
	})
	b.Emit(asm.Or.Reg(r4, r2), storeN(base, at+t.Max, r4, asm.Byte), asm.RSh.Imm(r4, 8),
		storeN(base, at+t.Max+1, r4, asm.Byte))
	if t.HasLength {
		b.raw(r3, t.Index)
		b.CallOr(unread, asm.FnProbeReadUser, placeAt(base, at))
	}
	b.Place(done)
}

// zero clears memory: bytes after the end of a text would tell equal texts
// apart.
func (b *builder) zero(base asm.Register, at, size int) {
	b.Emit(set(r1, 0))
	for i := 0; i < size; i += 8 {
		b.Emit(store(base, at+i, r1))
	}
}

// term emits the value of a term that is a number, and returns its class. An
// argument in memory must be on the stack.
func (b *builder) term(dst asm.Register, t *expr.Term) Class {
	o, _ := b.site.operand(*t)
	switch {
	case o.known && o.value.IsFloat:
		b.Set(dst, b.Args[o.term.Index].Constant)
	case o.known:
		b.Set(dst, o.value.Bits)
	default:
		b.operand(dst, &o)
	}
	return o.class
}

// Room shares out the room for an aggregation's keys. User space takes the keys
// before the room is full. If it is late, only a reserve is left, of which each
// owner has a share until keys are taken again. Before that nothing is counted
// by owner. A hit whose key is there already never costs anything.
type Room struct {
	State  int    // descriptor of an array of RoomState, two elements for each aggregation
	Index  uint32 // of the aggregation
	Signal int    // descriptor of a ring buffer, to which the index is sent, as a u32 and four zero bytes; 0: nobody takes keys

	// The signal is sent from Filled keys on. From Size keys on only the
	// reserve is left, of which an owner may have Share keys. Owners is the
	// descriptor of an LRU hash map from an owner (u64) to two u32: the round,
	// and its keys of the reserve in that round.
	Filled, Size, Share uint32
	Owners              int
}

// RoomState is an element of Room.State. Programs write only the first of an
// aggregation, user space only the second.
type RoomState struct {
	Keys  uint64 // that programs have made, or had made when keys were last taken
	Round uint32 // goes up whenever keys are taken
	_     uint32
}

// Made returns the number of the element that programs write.
func (r *Room) Made() uint32 { return 2 * r.Index }

// Taken returns the number of the element that user space writes.
func (r *Room) Taken() uint32 { return 2*r.Index + 1 }

// The sizes and offsets of a RoomState, and of a value of Room.Owners.
const (
	RoomStateSize = 16
	roomKeys      = 0
	roomRound     = 8

	// OwnerKeysSize is the size of a value of Room.Owners.
	OwnerKeysSize = 8
	keysRound     = 0
	keysCount     = 4
)

// takeRoom counts a new key. It goes to refused if its owner, which is on the
// stack, may not make one. There are 8 bytes of zeros on the stack.
func (b *builder) takeRoom(r *Room, owner, zeros int, refused argcode.Label) {
	enough, same, little := b.Label(), b.Label(), b.Label()
	key := b.Temporary(32)
	round, made, index := key+8, key+16, key+24
	b.LookUpIndex(r.State, key, r.Taken(), enough)
	b.Emit(loadN(r1, r0, roomRound, asm.Word), toStack(round, r1), load(r1, r0, roomKeys),
		toStack(made, r1))
	b.LookUpIndex(r.State, key, r.Made(), enough)
	b.Emit(load(r1, r0, roomKeys), fromStack(r2, made), asm.Sub.Reg(r1, r2), toStack(made, r1))
	b.JumpIfImm(asm.JGE, r1, uint64(r.Size), r2, little)
	b.Emit(set(r2, 1), asm.AddAtomic.Mem(r0, r2, asm.DWord, roomKeys))
	b.JumpIfImm(asm.JLT, r1, uint64(r.Filled-1), r2, enough)
	b.Place(little)
	if r.Signal != 0 {
		// The signal is repeated for each key from now on: one may be sent
		// before the reader is ready to see it.
		b.Emit(storeImm(r10, index, int64(r.Index), asm.Word), storeImm(r10, index+4, 0, asm.Word))
		b.Call(asm.FnRingbufOutput, argcode.Map(r.Signal), onStack(index), 8, 0)
	}
	b.Emit(fromStack(r1, made))
	b.JumpIfImm(asm.JLT, r1, uint64(r.Size), r2, enough)

	b.lookUpOrAdd(r.Owners, owner, zeros, enough)
	b.Emit(loadN(r1, r0, keysRound, asm.Word), fromStack(r2, round))
	b.JumpIf(asm.JEq, r1, r2, same)
	b.Emit(storeN(r0, keysRound, r2, asm.Word), storeImm(r0, keysCount, 0, asm.Word))
	b.Place(same)
	b.Emit(loadN(r1, r0, keysCount, asm.Word))
	b.JumpIfImm(asm.JGE, r1, uint64(r.Share), r2, refused)
	b.Emit(set(r1, 1), asm.AddAtomic.Mem(r0, r1, asm.Word, keysCount))
	b.Place(enough)
}
