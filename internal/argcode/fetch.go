// SPDX-License-Identifier: BSD-2-Clause

package argcode

import (
	"cmp"
	"debug/elf"
	"math"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
)

// A Fetcher emits code that loads the arguments of a site into registers.
type Fetcher struct {
	*Assembler

	Machine   elf.Machine // of the kernel: it lays out the registers in the context
	BigEndian bool
	Args      []argspec.Arg
	Context   asm.Register // that points to the saved registers
}

// Readable reports whether this kernel can fetch an argument.
func (f *Fetcher) Readable(index int) bool {
	return index < len(f.Args) && Readable(&f.Args[index], f.Machine)
}

// Readable reports whether a BPF program on a kernel of the given machine can
// fetch an argument. The argument may be of another machine: x86-64 kernels run
// programs of i386, arm64 kernels those of arm.
func Readable(a *argspec.Arg, kernel elf.Machine) bool {
	return a.Kind != argspec.Unavailable && a.Kind != argspec.Bytes && isSaved(a, kernel)
}

// Addressable reports whether such a program can read the memory of an argument
// of kind Bytes.
func Addressable(a *argspec.Arg, kernel elf.Machine) bool {
	return a.Kind == argspec.Bytes && isSaved(a, kernel)
}

// isSaved reports whether the kernel saves the registers of an argument.
func isSaved(a *argspec.Arg, kernel elf.Machine) bool {
	for _, r := range []*argspec.Register{&a.Register, &a.Base, &a.Index} {
		if _, ok := r.Slot(kernel); !ok && r.Name != "" {
			return false
		}
	}
	return true
}

// Raw emits the value of an argument that is not in memory, extended by zeros.
// It may change R0, which must not be dst.
func (f *Fetcher) Raw(dst asm.Register, index int) {
	arg := &f.Args[index]
	switch arg.Kind {
	case argspec.Constant:
		f.Set(dst, Truncate(arg.Constant, arg.Size))
	case argspec.InRegister:
		if arg.High.Name == "" {
			f.Register(dst, arg.Register, arg.Size)
			break
		}
		f.Register(dst, arg.High, 4)
		f.Register(asm.R0, arg.Register, 4)
		f.Emit(asm.LSh.Imm(dst, 32), asm.Or.Reg(dst, asm.R0))
	case argspec.Address:
		f.Address(dst, arg, arg.Displacement, asm.R0)
		f.Truncate(dst, arg.Size)
	}
}

// Value is Raw, but the value is extended as the argument's description says.
func (f *Fetcher) Value(dst asm.Register, index int) {
	arg := &f.Args[index]
	if arg.Kind == argspec.Constant {
		f.Set(dst, arg.Constant)
	} else {
		f.Raw(dst, index)
		f.Extend(dst, arg)
	}
}

// Extend emits code that extends a zero-extended value by its sign, if the
// argument is signed.
func (f *Fetcher) Extend(dst asm.Register, arg *argspec.Arg) {
	if unused := int32(64 - 8*arg.Size); arg.Signed && unused > 0 {
		f.Emit(asm.LSh.Imm(dst, unused), asm.ArSh.Imm(dst, unused))
	}
}

// Register emits the low bytes of a saved register.
func (f *Fetcher) Register(dst asm.Register, r argspec.Register, size int) {
	slot, _ := r.Slot(f.Machine)
	word := WordSize(f.Machine)
	size = min(size, word)
	at := int(r.Shift) / 8
	if f.BigEndian {
		at = word - at - size
	}
	if at >= 0 && at%size == 0 {
		f.Emit(asm.LoadMem(dst, f.Context, int16(slot*word+at), SizeOf(size)))
		return
	}
	// The kernel allows aligned loads only.
	f.Emit(asm.LoadMem(dst, f.Context, int16(slot*word), SizeOf(word)),
		asm.RSh.Imm(dst, int32(r.Shift)))
	f.Truncate(dst, size)
}

// Truncate emits code that keeps the low size bytes of a register.
func (f *Fetcher) Truncate(dst asm.Register, size int) {
	if unused := int32(64 - 8*size); unused > 0 {
		f.Emit(asm.LSh.Imm(dst, unused), asm.RSh.Imm(dst, unused))
	}
}

// Address emits the address of an argument in memory, with the given
// displacement in place of its own.
func (f *Fetcher) Address(
	dst asm.Register, arg *argspec.Arg, displacement int64, scratch asm.Register,
) {
	word := WordSize(f.Machine)
	switch {
	case arg.Base.Name == "" && arg.Index.Name == "":
		if arg.Address32 {
			displacement &= math.MaxUint32
		}
		f.Set(dst, uint64(displacement))
		return
	case arg.Index.Name == "":
		f.Register(dst, arg.Base, word)
	default:
		size := word
		if arg.IndexSize != 0 {
			size = 4
		}
		f.Register(dst, arg.Index, size)
		if arg.IndexSize < 0 {
			f.Emit(asm.LSh.Imm(dst, 32), asm.ArSh.Imm(dst, 32))
		}
		if shift := bits.TrailingZeros8(arg.Scale | 0x80); shift > 0 {
			f.Emit(asm.LSh.Imm(dst, int32(shift)))
		}
		if arg.Base.Name != "" {
			f.Register(scratch, arg.Base, word)
			f.Emit(asm.Add.Reg(dst, scratch))
		}
	}
	if displacement != 0 {
		f.Compute(asm.Add, dst, uint64(displacement), scratch)
	}
	if arg.Address32 {
		f.Emit(asm.Mov.Reg32(dst, dst))
	}
}

// Read reads the arguments of a group to a place relative to a register, their
// bytes as they lie in the traced process. If that fails it reads them one by
// one, and calls failed to emit code for each that still cannot be read.
func (f *Fetcher) Read(g *Group, base asm.Register, offset int, failed func(index int)) {
	apart, done := f.Label(), f.Label()
	f.ReadTogether(g, base, offset, apart)
	f.Place(done)
	f.Aside(apart, done, func() {
		if len(g.Args) == 1 {
			failed(g.Args[0])
			return
		}
		for _, i := range g.Args {
			next := f.Label()
			f.Address(asm.R3, g.first, f.Args[i].Displacement, asm.R4)
			f.Call(asm.FnProbeReadUser, At{base, offset + g.Distance(f.Args, i)}, f.Args[i].Size)
			f.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, next)
			failed(i)
			f.Place(next)
		}
	})
}

// ReadTogether reads the arguments of a group by one call, and goes to fail if
// that fails.
func (f *Fetcher) ReadTogether(g *Group, base asm.Register, offset int, fail Label) {
	f.Address(asm.R3, g.first, g.low, asm.R4)
	if len(g.Args) > 1 && g.first.Address32 {
		// The bytes of one read do not wrap, so it must not cross the end of
		// the 32-bit addresses.
		f.JumpIfImm(asm.JGT, asm.R3, 1<<32-uint64(g.Span()), asm.R4, fail)
	}
	f.CallOr(fail, asm.FnProbeReadUser, At{base, offset}, g.Span())
}

// Truncate keeps the low bytes of a value.
func Truncate(value uint64, size int) uint64 {
	if size >= 8 {
		return value
	}
	return value & (1<<(8*size) - 1)
}

// WordSize returns the size in bytes of a register that a kernel saves.
func WordSize(kernel elf.Machine) int {
	if kernel == elf.EM_ARM {
		return 4
	}
	return 8
}

// SizeOf returns the assembler's name of a size in bytes.
func SizeOf(bytes int) asm.Size {
	switch bytes {
	case 1:
		return asm.Byte
	case 2:
		return asm.Half
	case 4:
		return asm.Word
	}
	return asm.DWord
}

const (
	// maxSpan bounds the bytes that one read brings for several arguments. A
	// read costs the same for any size up to about this one, and the bytes
	// between the arguments take room in the record or on the stack.
	maxSpan = 128

	// maxGap bounds the bytes between two arguments that are read together:
	// more of them cost more, in room and in copying, than the call that is
	// saved.
	maxGap = 48
)

// A Group is arguments in memory that lie close together, at constant distances
// from the same base and index.
type Group struct {
	Args []int // their indices

	first     *argspec.Arg
	low, high int64 // displacement of the first byte and of the one after the last
}

// NewGroup returns the group of one argument.
func NewGroup(index int, arg *argspec.Arg) Group {
	return Group{Args: []int{index}, first: arg, low: arg.Displacement,
		high: arg.Displacement + int64(arg.Size)}
}

// Span is how many bytes a group has, with those between its arguments.
func (g *Group) Span() int { return int(g.high - g.low) }

// Lead is how many bytes to leave free in front of a group so that an argument
// that is aligned in the traced process is so in the copy.
func (g *Group) Lead() int {
	if len(g.Args) == 1 {
		return 0
	}
	return int(uint64(g.low) % 8)
}

// Distance is where in the group an argument begins.
func (g *Group) Distance(args []argspec.Arg, index int) int {
	return int(args[index].Displacement - g.low)
}

// Groups puts arguments in memory together.
func (f *Fetcher) Groups(indices []int) []Group {
	// place compares all of an address but the displacement.
	place := func(a, b *argspec.Arg) int {
		return cmp.Or(
			cmp.Compare(f.slot(a.Base), f.slot(b.Base)),
			cmp.Compare(f.slot(a.Index), f.slot(b.Index)),
			cmp.Compare(a.Scale, b.Scale), cmp.Compare(a.IndexSize, b.IndexSize))
	}
	// joinable reports whether the displacement fits into an instruction, and
	// one instruction can load the copy of the argument: the kernel wants loads
	// aligned.
	joinable := func(a *argspec.Arg) bool {
		return Fits32(uint64(a.Displacement)) && uint64(a.Displacement)%uint64(a.Size) == 0
	}
	sorted := slices.Clone(indices)
	slices.SortStableFunc(sorted, func(a, b int) int {
		x, y := &f.Args[a], &f.Args[b]
		return cmp.Or(place(x, y), cmp.Compare(x.Displacement, y.Displacement))
	})
	var groups []Group
	for _, i := range sorted {
		arg, next := &f.Args[i], NewGroup(i, &f.Args[i])
		if len(groups) > 0 {
			g := &groups[len(groups)-1]
			if high := max(g.high, next.high); place(g.first, arg) == 0 &&
				g.first.Address32 == arg.Address32 && joinable(g.first) && joinable(arg) &&
				next.low-g.high <= maxGap && high-g.low <= maxSpan {
				g.high, g.Args = high, append(g.Args, i)
				continue
			}
		}
		groups = append(groups, next)
	}
	return groups
}

func (f *Fetcher) slot(r argspec.Register) int {
	if slot, ok := r.Slot(f.Machine); ok {
		return slot
	}
	return -1
}
