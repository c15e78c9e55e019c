// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Aggregation says what to compute in the kernel over many hits.
//
// Its map holds accumulators: for each processor a count and, as wanted, a sum,
// a minimum and a maximum, in this order, 8 bytes each. Without keys it is an
// array, with an accumulator for each bucket of a histogram, or for each class
// of the value. With keys it is a hash map, see KeyLayout, whose last word is
// the owner of the hit that has made the key, on the processor of that hit.
//
// User space exchanges the map for an empty one, waits until no program can
// have the old one in hand, and empties that.
type Aggregation struct {
	Map       int                      // descriptor
	Exchanged bool                     // Map is an array of maps, whose only element is the map
	Overflow  int                      // descriptor of an array as without keys, for what the map has no room for
	Room      *Room                    // how a map with keys is shared out; nil: not at all
	Applies   func(site *Site) bool    // whether it is about a site
	Where     *expr.Node               // nil: every hit
	Value     *expr.Term               // nil: hits are counted
	Latency   *Latency                 // if set, calls are aggregated; without Value it is their time
	Keys      []expr.Term              // of String with their limit
	Sum       bool                     // what is kept beside the count
	Min, Max  bool                     //
	Histogram *Histogram               // nil: none
	Stacks    *Stacks                  // for a key that is a user stack
	Names     func(name string) uint32 // gives providers and probes a number, for keys that are one
}

// Stacks are descriptors of where user stacks are kept. Keys have the number of
// their generation above that of the stack: user space begins a new one to
// empty the map of the one before.
type Stacks struct {
	Present   int // an array of a u64: the generation, of 31 bits
	Even, Odd int // maps of stacks, for such generations
}

// KeyPart is a part of a key in a hash map.
type KeyPart struct {
	Offset, Size int
}

// KeyLayout returns where the keys lie, and the size of all. After them stand
// the classes of the keys, and what would be the index without keys, each in 4
// bytes. The byte after the zero that ends a text is 1 if the text was cut.
func (a *Aggregation) KeyLayout() (parts []KeyPart, size int) {
	for i := range a.Keys {
		part := KeyPart{Offset: size, Size: 8}
		switch k := &a.Keys[i]; k.Source {
		case expr.String:
			part.Size = align8(k.Max + 2)
		case expr.Command:
			part.Size = commandSize
		case expr.Stack:
			// The generation and ID of the stack, and the process whose
			// addresses it has.
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
	for _, wanted := range []bool{a.Sum, a.Min, a.Max} {
		if wanted {
			size += 8
		}
	}
	if len(a.Keys) > 0 {
		size += 8 // the owner
	}
	return size
}

// Entries returns how many accumulators an array has, where there are no keys.
func (a *Aggregation) Entries() int {
	if a.Histogram != nil {
		return a.Histogram.Buckets()
	}
	return int(float64bits) + 1
}

// Class says how a number in a key or an accumulator is to be understood.
type Class = class

// The classes.
const (
	ClassUnsigned = unsigned
	ClassSigned   = signed
	ClassFloat32  = float32bits
	ClassFloat64  = float64bits
)

// KeyClass returns the class of a key by its number.
func KeyClass(classes uint32, key int) Class { return class(classes >> (2 * key) & 3) }

// MaxKeys is how many keys an aggregation can have: their classes share 32
// bits.
const MaxKeys = 16

// role is what a site has to do with an aggregation.
type role uint8

const (
	unconcerned role = iota
	concerned
	unreadable // it should be aggregated, but what is needed cannot be fetched at this site
)

func (a *Aggregation) role(kernel Kernel, site *Site) (role, error) {
	if a.Latency == nil && !a.Applies(site) {
		return unconcerned, nil
	}
	r := concerned
	terms := a.Keys
	if a.Value != nil {
		terms = append(terms[:len(terms):len(terms)], *a.Value)
	}
	for _, t := range terms {
		if t.Start {
			continue
		}
		for _, index := range t.Arguments() {
			if index >= len(site.Args) {
				return unconcerned, nil
			}
			if !site.readable(kernel, index) {
				r = unreadable
			}
		}
	}
	if a.Where != nil {
		c, err := site.resolve(kernel, a.Where, false)
		if err != nil || c.kind == never {
			return unconcerned, err
		}
	}
	if r == concerned && a.Value != nil && a.Histogram != nil && !a.Value.Start {
		if o, _ := site.operand(kernel, *a.Value); o.class >= float32bits {
			return r, fmt.Errorf("%s is a float: it can be added up, but not be distributed",
				site.describe(*a.Value))
		}
	}
	return r, nil
}

// aggregate emits an aggregation of this hit.
func (b *builder) aggregate(a *Aggregation, r role) error {
	done, unread := b.Label(), b.Label()
	where := condition{kind: always}
	if a.Where != nil {
		var err error
		if where, err = b.site.resolve(b.plan.Kernel, a.Where, false); err != nil {
			return err
		}
	}
	if r == unreadable {
		b.together(where.arguments(nil), func() { b.condition(&where, done) })
		b.Jump(unread)
	} else {
		terms := a.arguments()
		b.together(where.arguments(terms), func() {
			b.condition(&where, done)
			b.load(unread, terms...)
		})
		b.Scratch(func() { b.accumulate(a, unread, done) })
	}
	b.Place(done)
	b.Later(func() {
		b.Place(unread)
		b.count(CounterUnreadable)
		b.Jump(done)
	})
	return nil
}

// arguments returns the indices of the arguments that are keys and value.
func (a *Aggregation) arguments() (indices []int) {
	terms := a.Keys
	if a.Value != nil {
		terms = append(terms[:len(terms):len(terms)], *a.Value)
	}
	for _, t := range terms {
		if t.Start {
			continue
		}
		indices = append(indices, t.Arguments()...)
	}
	return indices[:len(indices):len(indices)]
}

// accumulate finds the accumulator and adds the value to it. It goes to missing
// if a call has started without what is a key or the value.
func (b *builder) accumulate(a *Aggregation, unread, missing argcode.Label) {
	parts, size := a.KeyLayout()
	key := b.Alloc(size)
	index := key + size - 4
	ofStart := a.Value != nil && a.Value.Start
	for i := range a.Keys {
		ofStart = ofStart || a.Keys[i].Start
	}
	if ofStart {
		b.findKept(unread)
		b.Emit(asm.StoreImm(asm.R10, int16(index-4), 0, asm.Word))
	}
	classes := uint32(0)
	for i := range a.Keys {
		at, t := key+parts[i].Offset, &a.Keys[i]
		if t.Start {
			b.keyOfStart(t, at, parts[i].Size, unread, missing)
			b.Emit(asm.LSh.Imm(asm.R1, int32(2*i)), asm.LoadMem(asm.R2, asm.R10, int16(index-4), asm.Word),
				asm.Or.Reg(asm.R2, asm.R1), asm.StoreMem(asm.R10, int16(index-4), asm.R2, asm.Word))
			continue
		}
		classes |= uint32(b.key(a, t, at, parts[i].Size, unread)) << (2 * i)
	}
	switch {
	case len(a.Keys) == 0:
		key = index
	case ofStart:
		b.Emit(asm.LoadMem(asm.R2, asm.R10, int16(index-4), asm.Word),
			asm.Or.Imm(asm.R2, int32(classes)), asm.StoreMem(asm.R10, int16(index-4), asm.R2, asm.Word))
	default:
		b.Emit(asm.StoreImm(asm.R10, int16(index-4), int64(int32(classes)), asm.Word))
	}
	switch {
	case ofStart && a.Value != nil && a.Value.Start:
		b.valueOfStart(a, key, index, unread, missing)
	case a.Value != nil:
		b.add(a, key, index, b.term(asm.R9, a.Value), unread)
	case a.Latency != nil:
		b.Emit(fromStack(asm.R9, b.ending.duration))
		b.add(a, key, index, unsigned, unread)
	default:
		b.add(a, key, index, unsigned, unread)
	}
}

// add adds the value in R9 to the accumulator of a key. It goes to unread if
// that is to be summed and is no number.
func (b *builder) add(a *Aggregation, key, index int, c class, unread argcode.Label) {
	if a.Sum && c >= float32bits {
		b.toDouble(c, unread)
		c = float64bits
	}
	if a.Histogram != nil {
		b.bucket(asm.R3, a.Histogram, c)
		// Buckets have no class: there is one row, whether an argument has a
		// sign or not, and the values of a bucket have the same sign.
		c = unsigned
	} else {
		b.Emit(asm.Mov.Imm(asm.R3, int32(c)))
	}
	b.Emit(asm.StoreMem(asm.R10, int16(index), asm.R3, asm.Word))
	none := b.find(a, key, index)
	b.addValue(a, c)
	b.Place(none)
}

// keptAt sets R1 to the way to understand a value of the start, in what is kept
// at R7. It goes elsewhere if the value is not there, and returns its offset.
func (b *builder) keptAt(t *expr.Term, unread, missing argcode.Label) (at int) {
	at = b.ending.Values[t.AtStart].offset
	b.Emit(asm.LoadMem(asm.R1, asm.R7, int16(at), asm.DWord))
	b.JumpIfImm(asm.JEq, asm.R1, startUnreadable, asm.R2, unread)
	b.JumpIfImm(asm.JEq, asm.R1, startMissing, asm.R2, missing)
	return at + 8
}

// keyOfStart emits a part of a key that is a value of the start, and sets R1 to
// its class.
func (b *builder) keyOfStart(t *expr.Term, at, size int, unread, missing argcode.Label) {
	from := b.keptAt(t, unread, missing)
	for i := 0; i < size; i += 8 {
		b.Emit(asm.LoadMem(asm.R2, asm.R7, int16(from+i), asm.DWord), toStack(at+i, asm.R2))
	}
	b.Emit(asm.Sub.Imm(asm.R1, startNumber), asm.And.Imm(asm.R1, 3))
}

// valueOfStart adds a value of the start. Its class is known only now.
func (b *builder) valueOfStart(a *Aggregation, key, index int, unread, missing argcode.Label) {
	done := b.Label()
	from := b.keptAt(a.Value, unread, missing)
	b.Emit(asm.LoadMem(asm.R9, asm.R7, int16(from), asm.DWord))
	for c := unsigned; c <= float64bits; c++ {
		next := b.Label()
		b.JumpIfImm(asm.JNE, asm.R1, uint64(startNumber+c), asm.R2, next)
		if c >= float32bits && a.Histogram != nil {
			b.Jump(unread)
		} else {
			b.Scratch(func() { b.add(a, key, index, c, unread) })
			b.Jump(done)
		}
		b.Place(next)
	}
	b.Place(done)
}

// find sets R7 to the accumulator, and makes one where there is none. Where
// there is no room it is that of the overflow, whose key is the index alone. It
// returns where it goes if there is none, which the kernel
// wants to be checked.
func (b *builder) find(a *Aggregation, key, index int) (none argcode.Label) {
	missing, found := b.Label(), b.Label()
	none = b.Label()
	fresh := b.Alloc(a.ValueSize())
	if a.Exchanged {
		b.Emit(asm.StoreImm(asm.R10, int16(fresh), 0, asm.Word))
		b.lookUp(a.Map, fresh, none)
		b.Emit(asm.Mov.Reg(asm.R7, asm.R0))
	}
	setMap := func() {
		if a.Exchanged {
			b.Emit(asm.Mov.Reg(asm.R1, asm.R7))
		} else {
			b.Emit(asm.LoadMapPtr(asm.R1, a.Map))
		}
	}
	look := func() {
		b.AddressOf(asm.R2, asm.R10, key)
		setMap()
		b.Call(asm.FnMapLookupElem)
	}
	look()
	if len(a.Keys) == 0 {
		b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
		b.Emit(asm.Mov.Reg(asm.R7, asm.R0))
		return none
	}
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, missing)
	b.Place(found)
	b.Emit(asm.Mov.Reg(asm.R7, asm.R0))
	b.Later(func() {
		b.Place(missing)
		refused := b.Label()
		owner := fresh + a.ValueSize() - 8
		b.zero(asm.R10, fresh, a.ValueSize()-8)
		b.ownerID()
		b.Emit(toStack(owner, asm.R0))
		if a.Room != nil {
			b.takeRoom(a.Room, owner, fresh, refused)
		}
		b.AddressOf(asm.R2, asm.R10, key)
		b.AddressOf(asm.R3, asm.R10, fresh)
		setMap()
		b.Emit(asm.Mov.Imm(asm.R4, updateNoExist))
		b.Call(asm.FnMapUpdateElem)
		look()
		// Another processor may have made it: then the update failed and the
		// look-up does not.
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, found)
		b.Place(refused)
		element(b.Assembler, a.Overflow, index)
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, found)
		b.Jump(none)
	})
	return none
}

// addValue adds R9 to the accumulator in R7.
func (b *builder) addValue(a *Aggregation, c class) {
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R7, asm.R1, asm.DWord, 0))
	at := int16(8)
	if a.Sum && c >= float32bits {
		b.addFloat(at)
		at += 8
	} else if a.Sum {
		b.Emit(asm.AddAtomic.Mem(asm.R7, asm.R9, asm.DWord, at))
		at += 8
	}
	if a.Min || a.Max {
		b.sortable(c)
	}
	if a.Max && a.Min {
		b.Emit(asm.Mov.Reg(asm.R1, asm.R2))
	}
	if a.Min {
		// A minimum is the maximum of the complements, so that 0 is what a new
		// accumulator begins with.
		b.Emit(asm.Xor.Imm(asm.R2, -1))
		b.raise(at)
		at += 8
	}
	if a.Max {
		if a.Min {
			b.Emit(asm.Mov.Reg(asm.R2, asm.R1))
		}
		b.raise(at)
	}
}

// sortable sets R2 to R9 changed so that unsigned comparison orders it.
func (b *builder) sortable(c class) {
	b.Emit(asm.Mov.Reg(asm.R2, asm.R9))
	switch c {
	case signed:
		b.Emit(asm.LoadImm(asm.R3, math.MinInt64, asm.DWord), asm.Xor.Reg(asm.R2, asm.R3))
	case float32bits, float64bits:
		if c == float32bits {
			b.Emit(asm.LSh.Imm(asm.R2, 32))
		}
		// Of a negative number all bits are turned over, of another one the
		// sign.
		b.Emit(asm.Mov.Reg(asm.R4, asm.R2), asm.ArSh.Imm(asm.R4, 63),
			asm.LoadImm(asm.R3, math.MinInt64, asm.DWord),
			asm.Or.Reg(asm.R4, asm.R3), asm.Xor.Reg(asm.R2, asm.R4))
	}
}

// Unsortable undoes for a number of the given class what accumulators keep of a
// maximum, or with min of a minimum.
func Unsortable(c Class, kept uint64, min bool) uint64 {
	if min {
		kept = ^kept
	}
	switch c {
	case signed:
		return kept ^ 1<<63
	case float32bits, float64bits:
		if kept>>63 == 1 {
			kept ^= 1 << 63
		} else {
			kept = ^kept
		}
		if c == float32bits {
			kept >>= 32
		}
	}
	return kept
}

// exchanges is how often raise tries. A try fails only where this hit was
// preempted, within three instructions, by another one that raised the same
// number.
const exchanges = 4

// raise sets a word of the accumulator to R2 if that is greater.
func (b *builder) raise(at int16) {
	done := b.Label()
	b.Emit(asm.LoadMem(asm.R0, asm.R7, at, asm.DWord))
	if b.plan.Kernel.CompareExchange {
		for range exchanges {
			b.JumpIf(asm.JGE, asm.R0, asm.R2, done)
			b.Emit(asm.Mov.Reg(asm.R3, asm.R0))
			b.CompareExchange(asm.R7, at, asm.R2)
			b.JumpIf(asm.JEq, asm.R0, asm.R3, done)
		}
	}
	b.JumpIf(asm.JGE, asm.R0, asm.R2, done)
	b.Emit(asm.StoreMem(asm.R7, at, asm.R2, asm.DWord))
	b.Place(done)
}

// key emits a part of a key to the stack and returns its class.
func (b *builder) key(a *Aggregation, t *expr.Term, at, size int, unread argcode.Label) class {
	switch t.Source {
	case expr.Command:
		b.zero(asm.R10, at, size)
		b.command(asm.R10, at)
	case expr.String:
		b.keyText(t, asm.R10, at, unread)
	case expr.Stack:
		b.stackKey(a.Stacks, at, unread)
		b.numbers()
		b.Emit(asm.RSh.Imm(asm.R0, 32), toStack(at+8, asm.R0))
	case expr.Provider:
		b.siteNumber(asm.R1, uint64(a.Names(b.site.Provider)))
		b.Emit(toStack(at, asm.R1))
	case expr.Probe:
		b.siteNumber(asm.R1, uint64(a.Names(b.site.Provider+":"+b.site.Name)))
		b.Emit(toStack(at, asm.R1))
	case expr.Site:
		b.siteID(asm.R1)
		b.Emit(toStack(at, asm.R1))
	default:
		c := b.term(asm.R9, t)
		b.Emit(toStack(at, asm.R9))
		return c
	}
	return unsigned
}

// stackKey emits the number of the user stack to a key, with that of the
// generation if it is not an error.
func (b *builder) stackKey(s *Stacks, at int, none argcode.Label) {
	odd, chosen, failed := b.Label(), b.Label(), b.Label()
	b.Emit(asm.StoreImm(asm.R10, int16(at), 0, asm.Word))
	b.lookUp(s.Present, at, none) // it is there
	b.Emit(asm.LoadMem(asm.R9, asm.R0, 0, asm.DWord))
	b.JumpIfImm(asm.JSet, asm.R9, 1, asm.R1, odd)
	b.Emit(asm.LoadMapPtr(asm.R2, s.Even))
	b.Jump(chosen)
	b.Place(odd)
	b.Emit(asm.LoadMapPtr(asm.R2, s.Odd))
	b.Place(chosen)
	b.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R3, userStack))
	b.Call(asm.FnGetStackid)
	b.JumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, failed)
	b.Emit(asm.LSh.Imm(asm.R9, 32), asm.Or.Reg(asm.R0, asm.R9))
	b.Place(failed)
	b.Emit(toStack(at, asm.R0))
}

// keyText brings a text to where a register points, and marks it if it is cut:
// see KeyLayout.
func (b *builder) keyText(t *expr.Term, base asm.Register, at int, unread argcode.Label) {
	whole := b.Label()
	b.zero(base, at, align8(t.Max+2))
	if t.HasLength {
		b.value(asm.R2, t.Length)
		b.JumpIfImm(asm.JSLT, asm.R2, 0, asm.R1, unread)
		b.JumpIfImm(asm.JLE, asm.R2, uint64(t.Max), asm.R1, whole)
		b.Emit(asm.Mov.Imm(asm.R2, int32(t.Max)), asm.StoreImm(base, int16(at+t.Max+1), 1, asm.Byte))
		b.Place(whole)
		b.raw(asm.R3, t.Index)
		b.AddressOf(asm.R1, base, at)
		b.Call(asm.FnProbeReadUser)
		b.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, unread)
		return
	}
	b.readText(t.Index, base, at, t.Max+2, func(dst asm.Register) { b.raw(dst, t.Index) })
	b.JumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, unread)
	b.JumpIfImm(asm.JSLT, asm.R0, uint64(t.Max+2), asm.R1, whole)
	b.Emit(asm.StoreImm(base, int16(at+t.Max), 0, asm.Byte),
		asm.StoreImm(base, int16(at+t.Max+1), 1, asm.Byte))
	b.Place(whole)
}

// zero clears memory: bytes behind the end of a text would tell
// equal texts apart.
func (b *builder) zero(base asm.Register, at, size int) {
	b.Emit(asm.Mov.Imm(asm.R1, 0))
	for i := 0; i < size; i += 8 {
		b.Emit(asm.StoreMem(base, int16(at+i), asm.R1, asm.DWord))
	}
}

// term emits the value of a term that is a number, and returns its class. An
// argument in memory must be on the stack.
func (b *builder) term(dst asm.Register, t *expr.Term) class {
	o, _ := b.site.operand(b.plan.Kernel, *t)
	switch {
	case o.known && o.value.IsFloat:
		b.Set(dst, b.Args[t.Index].Constant)
	case o.known:
		b.Set(dst, o.value.Bits)
	default:
		b.operand(dst, &o)
	}
	return o.class
}

// Room says how the room for an aggregation's keys is shared out. User space
// takes the keys before the room is full. What is left in reserve then is for
// owners that have made few keys since. Until then nothing is counted by owner,
// and hits of keys that are there already never cost anything.
type Room struct {
	State  int    // descriptor of an array, of which an aggregation has two elements: RoomState
	Index  uint32 // of the aggregation
	Signal int    // descriptor of a ring buffer, to which the index is sent, as a u32 and four zero bytes; 0: nobody takes keys

	// Filled is how many keys there are before the signal, and Size before only
	// the reserve is left. Of that an owner may have Share keys. Owners is the
	// descriptor of an LRU hash map, u64: two u32, for what each has.
	Filled, Size, Share uint32
	Owners              int
}

// RoomState is an element of Room.State. Programs write only the first of an
// aggregation, user space only the second.
type RoomState struct {
	Keys  uint64 // that programs have made, or had made when the room became empty
	Round uint32 // goes up whenever keys are taken
	_     uint32
}

// Made returns the number of the element that programs write.
func (r *Room) Made() uint32 { return 2 * r.Index }

// Taken returns the number of the element that user space writes.
func (r *Room) Taken() uint32 { return 2*r.Index + 1 }

// Of RoomState, and of what an owner has.
const (
	RoomStateSize = 16
	roomKeys      = 0
	roomRound     = 8

	// OwnerKeysSize is the size of what an owner has.
	OwnerKeysSize = 8
	keysRound     = 0
	keysCount     = 4
)

// takeRoom emits what is to be done for a new key. It goes to refused if its
// owner, which is on the stack, may not make one. There are 8 bytes of zeros on
// the stack.
func (b *builder) takeRoom(r *Room, owner, zeros int, refused argcode.Label) {
	enough, same, little := b.Label(), b.Label(), b.Label()
	key := b.Temporary(32)
	round, made, index := key+8, key+16, key+24
	b.Emit(asm.StoreImm(asm.R10, int16(key), int64(r.Taken()), asm.Word))
	b.lookUp(r.State, key, enough)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomRound, asm.Word), toStack(round, asm.R1))
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomKeys, asm.DWord), toStack(made, asm.R1))
	b.Emit(asm.StoreImm(asm.R10, int16(key), int64(r.Made()), asm.Word))
	b.lookUp(r.State, key, enough)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, roomKeys, asm.DWord), fromStack(asm.R2, made),
		asm.Sub.Reg(asm.R1, asm.R2), toStack(made, asm.R1))
	b.JumpIfImm(asm.JGE, asm.R1, uint64(r.Size), asm.R2, little)
	b.Emit(asm.Mov.Imm(asm.R2, 1), asm.AddAtomic.Mem(asm.R0, asm.R2, asm.DWord, roomKeys))
	b.JumpIfImm(asm.JLT, asm.R1, uint64(r.Filled-1), asm.R2, enough)
	b.Place(little)
	if r.Signal != 0 {
		// The signal is repeated for each key from now on: one may be sent
		// before the reader is ready to see it.
		b.Emit(asm.StoreImm(asm.R10, int16(index), int64(r.Index), asm.Word),
			asm.StoreImm(asm.R10, int16(index+4), 0, asm.Word))
		b.Emit(asm.LoadMapPtr(asm.R1, r.Signal))
		b.AddressOf(asm.R2, asm.R10, index)
		b.Emit(asm.Mov.Imm(asm.R3, 8), asm.Mov.Imm(asm.R4, 0))
		b.Call(asm.FnRingbufOutput)
	}
	b.Emit(fromStack(asm.R1, made))
	b.JumpIfImm(asm.JLT, asm.R1, uint64(r.Size), asm.R2, enough)

	b.lookUpOrAdd(r.Owners, owner, zeros, enough)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysRound, asm.Word), fromStack(asm.R2, round))
	b.JumpIf(asm.JEq, asm.R1, asm.R2, same)
	b.Emit(asm.StoreMem(asm.R0, keysRound, asm.R2, asm.Word),
		asm.StoreImm(asm.R0, keysCount, 0, asm.Word))
	b.Place(same)
	b.Emit(asm.LoadMem(asm.R1, asm.R0, keysCount, asm.Word))
	b.JumpIfImm(asm.JGE, asm.R1, uint64(r.Share), asm.R2, refused)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.Word, keysCount))
	b.Place(enough)
}
