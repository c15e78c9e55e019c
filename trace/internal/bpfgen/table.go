// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// TableMap stands for the descriptor of the table in the code of programs. The
// table is created when the program is loaded.
const TableMap = 0x7fff_fff0

// A Table is an array in which programs look up where the arguments of their
// site are. With it sites share their code whatever their arguments are: code
// that is specialised for each of 10,000 sites takes the kernel seconds to
// verify.
//
// A site has several elements of the array: the number of its block, then the
// place of each of its arguments, then other numbers of the site in the order
// in which the code asks for them. The low half of the BPF cookie is the index
// of the first one.
type Table struct {
	plan    *Plan
	known   map[tableKey]*Block
	codes   map[string]*Block // the first with each code
	entries []byte
}

// tableKey has all that the block of a site depends on.
type tableKey struct {
	provider, name string
	cookie         uint64
	arguments      int
	frame          Frame  // without its offset, which is looked up
	pairs          string // by the Latency: whether the site has a part in it, Framed, Names and Lone of Ends
	shape          string
}

// An element of a table says how to calculate a number or an address:
//
//	base = word of the context at offset base >> shift, without its upper cut bits
//	index = word of the context at offset index, extended as described << scale
//	result = base + index + value, without its upper wrap bits
//
// If there is a size, the value is as many bytes at that address. Otherwise it
// is the result without its upper unused bits. All but value, base and index
// are bytes.
const (
	// EntrySize is the size of an element.
	EntrySize = 24

	entryValue  = 0  // u64
	entryBase   = 8  // u16, entryNone for none
	entryIndex  = 10 // u16, entryNone for none
	entryShift  = 12
	entryCut    = 13
	entryZero   = 14 // upper bits of the index that become 0
	entrySign   = 15 // upper bits of the index that become its sign
	entryScale  = 16
	entryWrap   = 17
	entryUnused = 18
	entrySize   = 19

	entryNone = 0xffff
)

// maxLookedUp bounds the arguments of a site that is looked up: the code for
// each takes far more instructions than specialised code. Few sites of a file
// have more.
const maxLookedUp = 64

// NewTable returns an empty table for the sites of a file.
func (p *Plan) NewTable() *Table {
	return &Table{plan: p, known: make(map[tableKey]*Block), codes: make(map[string]*Block)}
}

// Block returns the code for a site, as [Plan.Block] does.
func (t *Table) Block(site *Site) (*Block, error) {
	if len(site.Args) > maxLookedUp || len(site.Members) > 0 {
		return t.plan.Block(site)
	}
	plan := t.plan
	site.machine = plan.Kernel.Machine
	if plan.Filter != nil {
		if c, err := site.resolve(plan.Filter, false); err != nil || c.kind == never {
			return plan.Block(site) // little code, if any
		}
	}
	here := plan.lookedUp(site)
	pairs := make([]byte, len(plan.Latencies))
	for i, l := range plan.Latencies {
		if ends, ok := site.Pairs[l]; ok {
			pairs[i] = 1
			if ends.Framed {
				pairs[i] = 2
			}
			if ends.Activation.Depth > 0 {
				pairs[i] = 3
			}
			if ends.Names[0] != 0 {
				pairs[i] |= 4
			}
			if ends.StacksIf != 0 {
				pairs[i] |= 16
			}
			if ends.Lone {
				pairs[i] |= 8
			}
		}
	}
	key := tableKey{site.Provider, site.Name, site.Cookie, len(site.Args), site.Frame, string(pairs),
		here.shape()}
	key.frame.Offset = 0
	block, known := t.known[key]
	if !known {
		var err error
		if block, err = plan.generate(here, true); err != nil {
			// Something can be decided, or fits on the stack, only if the
			// arguments are known.
			return plan.Block(site)
		}
		if block != nil {
			code := fingerprint(block.Instructions)
			first := t.codes[string(code)]
			if first == nil {
				first, block.code = block, string(code)
				t.codes[block.code] = first
			}
			block.Instructions, block.code = first.Instructions, first.code
		}
		t.known[key] = block
	}
	if block == nil {
		return nil, nil
	}
	own := *block
	own.Record = plan.Kernel.recordOf(block.Record, here, site)
	own.Saved = plan.Kernel.recordOf(block.Saved, here, site)
	return &own, nil
}

// Add adds a site, given the number of its block, and returns the low half of
// its BPF cookie.
func (t *Table) Add(number int, block *Block, site *Site) uint32 {
	first := len(t.entries) / EntrySize
	order := t.plan.Kernel.Order
	add := func() []byte {
		t.entries = append(t.entries, make([]byte, EntrySize)...)
		return t.entries[len(t.entries)-EntrySize:]
	}
	order.PutUint64(add()[entryValue:], uint64(number))
	for i := range block.lookedUp {
		if e := add(); i < len(site.Args) {
			t.plan.Kernel.describe(e, &site.Args[i])
		}
	}
	for _, n := range block.numbers {
		order.PutUint64(add()[entryValue:], n)
	}
	return uint32(first)
}

// Entries returns the elements of the array, one after the other.
func (t *Table) Entries() []byte { return t.entries }

// WithTable returns the instructions with the descriptor of the table's map in
// place of TableMap.
func (p *Program) WithTable(fd int) asm.Instructions {
	ins := slices.Clone(p.Instructions)
	for i := range ins {
		if ins[i].IsLoadFromMap() && ins[i].Constant == TableMap {
			ins[i] = asm.LoadMapPtr(ins[i].Dst, fd)
		}
	}
	return ins
}

// describe writes an argument to an element of a table. Of an argument that
// cannot be read, the element is not asked for, or its value is ignored.
func (k Kernel) describe(e []byte, arg *argspec.Arg) {
	place := func(at int, r argspec.Register) {
		offset := uint16(entryNone)
		if slot, ok := r.Slot(k.Machine); ok {
			offset = uint16(slot * argcode.WordSize(k.Machine))
		}
		k.Order.PutUint16(e[at:], offset)
	}
	place(entryBase, argspec.Register{})
	place(entryIndex, argspec.Register{})
	if arg.Size < 8 && arg.Kind != argspec.Bytes { // of Bytes the code asks for the address
		e[entryUnused] = byte(64 - 8*arg.Size)
	}
	switch arg.Kind {
	case argspec.Constant:
		k.Order.PutUint64(e[entryValue:], arg.Constant)
	case argspec.InRegister:
		place(entryBase, arg.Register)
		e[entryShift] = arg.Register.Shift
		if arg.High.Name != "" {
			place(entryIndex, arg.High)
			e[entryCut], e[entryScale] = 32, 32
		}
	case argspec.Memory, argspec.Address, argspec.Bytes:
		k.Order.PutUint64(e[entryValue:], uint64(arg.Displacement))
		place(entryBase, arg.Base)
		place(entryIndex, arg.Index)
		switch arg.IndexSize {
		case 4:
			e[entryZero] = 32
		case -4:
			e[entrySign] = 32
		}
		e[entryScale] = byte(bits.TrailingZeros8(arg.Scale | 0x80))
		if arg.Address32 {
			e[entryWrap] = 32
		}
		if arg.Kind == argspec.Memory {
			e[entrySize] = byte(arg.Size)
		}
	}
}

// lookedUp returns a site for which the generated code looks the arguments up.
// It has only what the code depends on: whether arguments can be read, what
// their bits mean and how much room structures need. Arguments that are only
// sent are all alike.
func (p *Plan) lookedUp(site *Site) *Site {
	here := *site
	here.original = site
	if p.Events != nil && p.Events.Captures != nil {
		here.captures = site.capturesOf(p.Events, true)
	}
	named, count := p.named(&here), len(site.Args)
	// Sites with more or fewer arguments share their code too, unless an
	// expression names an argument that only some of them have.
	if rounded := 1 << bits.Len(uint(max(count, 1)-1)); slices.IndexFunc(named,
		func(i int) bool { return i >= count && i < rounded }) < 0 && count > 0 &&
		site.Globals == 0 {
		count = rounded
	}
	here.Args = make([]argspec.Arg, count)
	for i := range here.Args {
		here.Args[i] = argspec.Arg{Kind: argspec.Memory, Size: 8}
	}
	for i := range site.Args {
		arg, to := &site.Args[i], &here.Args[i]
		switch {
		case argcode.Addressable(arg, p.Kernel.Machine):
			*to = argspec.Arg{Kind: argspec.Bytes, Size: 8}
		case !slices.Contains(named, i):
		case !argcode.Readable(arg, p.Kernel.Machine):
			*to = argspec.Arg{}
		case arg.Signed || arg.Float:
			to.Size, to.Signed, to.Float = arg.Size, arg.Signed, arg.Float
		}
	}
	return &here
}

// named returns the numbers of the arguments that the plan's expressions and
// captures need.
func (p *Plan) named(site *Site) (indices []int) {
	add := func(t *expr.Term) {
		bound := site.bound(*t)
		indices = append(indices, bound.Arguments()...)
	}
	p.Terms(add)
	for _, l := range p.Latencies {
		add(&site.startBy(l).Start)
		add(&site.doneBy(l).Done)
		if compared := site.Pairs[l].Compared; compared > 0 {
			indices = append(indices, compared-1)
		}
	}
	for _, c := range site.captures {
		indices = append(indices, c.Arg)
		if c.Length != None {
			indices = append(indices, c.Length)
		}
	}
	return indices
}

// shape returns all that the block of a site depends on of its arguments, which
// have no places, and of its captures. The sizes of structures are not in the
// code, but are numbers that it asks for.
func (s *Site) shape() string {
	shape := make([]byte, 0, 2*len(s.Args))
	for i := range s.Args {
		arg := &s.Args[i]
		kind := byte(arg.Kind) << 2
		if arg.Signed {
			kind |= 1
		}
		if arg.Float {
			kind |= 2
		}
		shape = append(shape, kind, byte(arg.Size))
		if arg.Kind == argspec.Bytes {
			shape = binary.NativeEndian.AppendUint64(shape, uint64(s.original.Args[i].Size))
		}
	}
	if len(s.captures) > 0 {
		shape = fmt.Append(shape, s.captures)
	}
	return string(shape)
}

// recordOf returns the layout of a record for one of the sites that share its
// code. It may have more arguments than the site.
func (k Kernel) recordOf(shared *Record, here, site *Site) *Record {
	if shared == nil {
		return nil
	}
	own := *shared
	own.Args = slices.Clone(shared.Args[:len(site.Args)])
	for i := range own.Args {
		arg, p := &site.Args[i], &own.Args[i]
		switch {
		case p.Value == None:
		case arg.Kind == argspec.Constant || !argcode.Readable(arg, k.Machine):
			*p = Place{Value: None, Failed: None}
		case k.bigEndian():
			width := 8
			if p.Failed == None {
				width = here.Args[i].Size
			}
			p.Value += width - arg.Size
		}
	}
	own.Captures = slices.Clone(shared.Captures)
	for i := range own.Captures {
		if c := &own.Captures[i]; site.Args[c.Arg].Kind == argspec.Bytes {
			c.Max = min(c.Max, site.Args[c.Arg].Size)
		}
	}
	if slices.Equal(own.Args, shared.Args[:len(own.Args)]) && slices.Equal(own.Captures, shared.Captures) {
		return shared
	}
	return &own
}

// lookUpEntry sets R0 to an element of the site in the table. further counts
// from the site's first one.
func (b *builder) lookUpEntry(further int, none argcode.Label) {
	key := b.Temporary(8)
	b.Emit(mov(r1, r8), asm.Add.Imm(r1, int32(further)), storeN(r10, key, r1, asm.Word))
	b.LookUp(TableMap, key, none)
}

// word sets a register to the word of the context at the offset in R1, or to 0
// where there is none. The kernel wants each offset to be a constant.
func (b *builder) word(dst asm.Register) {
	done := b.Label()
	size := argcode.WordSize(b.Machine)
	offsets := make([]uint64, savedRegisters[b.Machine].words)
	for i := range offsets {
		offsets[i] = uint64(i * size)
	}
	b.Emit(set(dst, 0))
	b.JumpIfImm(asm.JGE, r1, uint64(len(offsets)*size), r2, done)
	b.Search(asm.JGE, r1, offsets, r2, func(i int) {
		b.Emit(loadN(dst, r6, i*size, argcode.SizeOf(size)))
		b.Jump(done)
	})
	b.Place(done)
}

// readLookedUp reads an argument to eight bytes, extended by zeros. Of a
// structure it reads the address. It goes to fail if that cannot be read.
func (b *builder) readLookedUp(index int, base asm.Register, offset int, fail argcode.Label) {
	inMemory, done := b.Label(), b.Label()
	cut := func(up, down asm.ALUOp, dst asm.Register, by int) {
		b.Emit(loadN(r1, r0, by, asm.Byte), up.Reg(dst, r1), down.Reg(dst, r1))
	}
	b.lookUpEntry(1+index, fail)
	b.Emit(loadN(r1, r0, entryBase, asm.Half))
	b.word(r3)
	b.Emit(loadN(r1, r0, entryShift, asm.Byte), asm.RSh.Reg(r3, r1))
	cut(asm.LSh, asm.RSh, r3, entryCut)
	b.Emit(loadN(r1, r0, entryIndex, asm.Half))
	b.word(r4)
	cut(asm.LSh, asm.RSh, r4, entryZero)
	cut(asm.LSh, asm.ArSh, r4, entrySign)
	b.Emit(loadN(r1, r0, entryScale, asm.Byte), asm.LSh.Reg(r4, r1), asm.Add.Reg(r3, r4),
		load(r1, r0, entryValue), asm.Add.Reg(r3, r1))
	cut(asm.LSh, asm.RSh, r3, entryWrap)
	if offset != int(int16(offset)) {
		b.AddressOf(r5, base, offset)
		base, offset = r5, 0
	}
	b.Emit(loadN(r2, r0, entrySize, asm.Byte))
	b.JumpIfImm(asm.JNE, r2, 0, r1, inMemory)
	cut(asm.LSh, asm.RSh, r3, entryUnused)
	b.Emit(store(base, offset, r3))
	b.Place(done)
	b.Aside(inMemory, done, func() {
		unused := b.Temporary(16)
		address := unused + 8
		b.Emit(loadN(r1, r0, entryUnused, asm.Byte), toStack(unused, r1), set(r1, 0),
			store(base, offset, r1))
		b.JumpIfImm(asm.JGT, r2, 8, r1, fail) // never: the verifier wants the check
		b.AddressOf(r1, base, offset)
		if b.kernel.bigEndian() {
			b.Emit(toStack(address, r1))
		}
		b.Call(asm.FnProbeReadUser)
		b.JumpIfImm(asm.JNE, r0, 0, r1, fail)
		if b.kernel.bigEndian() {
			// What has been read are the upper bytes.
			b.Emit(fromStack(r1, address), fromStack(r2, unused), load(r3, r1, 0),
				asm.RSh.Reg(r3, r2), store(r1, 0, r3))
		}
	})
}

// siteNumber sets a register to a number of the site: a constant, or a number
// in the table. It may change R0 to R5.
func (b *builder) siteNumber(dst asm.Register, number uint64) {
	if !b.lookedUp() {
		b.Set(dst, number)
		return
	}
	none := b.Label()
	b.lookUpEntry(1+len(b.Args)+len(b.block.numbers), none)
	b.block.numbers = append(b.block.numbers, number)
	b.Emit(load(r0, r0, entryValue))
	b.Place(none) // never: the verifier wants the check
	b.Emit(mov(dst, r0))
}

// groups puts arguments in memory together, unless they are looked up.
func (b *builder) groups(indices []int) (groups []argcode.Group) {
	var together []int
	for _, i := range indices {
		if b.isMember(i) || b.lookedUp() {
			groups = append(groups, argcode.NewGroup(i, &argspec.Arg{Size: b.width(i).Sizeof()}))
		} else {
			together = append(together, i)
		}
	}
	return append(groups, b.Groups(together)...)
}

// read is Read of a group that groups has returned.
func (b *builder) read(g *argcode.Group, base asm.Register, offset int, failed func(index int)) {
	member, ok := b.site.Members[g.Args[0]]
	if !ok && !b.lookedUp() {
		b.Read(g, base, offset, failed)
		return
	}
	fail, done := b.Label(), b.Label()
	if ok {
		b.readMember(&member, g.Span(), base, offset, fail)
	} else {
		b.readLookedUp(g.Args[0], base, offset, fail)
	}
	b.Place(done)
	b.Aside(fail, done, func() { failed(g.Args[0]) })
}

// width returns the size, on the stack or in a record, of an argument that has
// been read from memory.
func (b *builder) width(index int) asm.Size {
	if b.lookedUp() {
		return asm.DWord
	}
	return argcode.SizeOf(b.Args[index].Size)
}
