// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/argspec"
)

// Machines are what the place of an argument depends on: that of the running
// kernel, and that of the traced file.
type Machines struct{ Kernel, Program elf.Machine }

// A Layout is the form of a spec in the header that an object is compiled with:
// bpf/usdt.bpf.h, which takes every argument, or one of libbpf.
type Layout struct {
	Size     int  // of a spec, in bytes
	IsLibbpf bool // a header of libbpf declares it

	// Of libbpf's: versions differ, so the places are taken from the object's
	// types. From 1.7 on an argument may have an index register, and is larger.
	arguments     uint32 // offset of the first argument, in bytes
	argumentSize  uint32
	argumentCount uint32
	cookie, count bitField

	// In an argument. index and scale are missing before 1.7.
	value, kind, register, signed, shift, index, scale bitField
}

// bitField is a member of a structure: its place, in bits. One without a size
// is missing.
type bitField struct{ offset, size uint32 }

// Kinds of arguments, as libbpf numbers them.
const (
	libbpfConstant = 0
	libbpfRegister = 1
	libbpfMemory   = 2
	libbpfIndexed  = 3 // from 1.7 on

	// With any other kind, reading the argument fails with EINVAL.
	libbpfNone = 0xff
)

// LayoutOf returns the layout of an object whose map of specs has values of
// this size and type. bpf/usdt.bpf.h declares them by their size alone. The
// error for a type of libbpf names the member that it lacks.
func LayoutOf(size uint32, value btf.Type) (*Layout, error) {
	spec, typed := btf.UnderlyingType(value).(*btf.Struct)
	switch {
	case !typed && size != Size:
		return nil, fmt.Errorf("its values have %d bytes, not %d", size, Size)
	case !typed:
		return &Layout{Size: Size}, nil
	case spec.Size != size:
		return nil, fmt.Errorf("struct %s has %d bytes, and the map's values %d", spec.Name,
			spec.Size, size)
	}
	arguments, err := member(spec, "args")
	if err != nil {
		return nil, err
	}
	array, ok := btf.UnderlyingType(arguments.Type).(*btf.Array)
	if !ok {
		return nil, errors.New("args is not an array")
	}
	argument, ok := btf.UnderlyingType(array.Type).(*btf.Struct)
	if !ok {
		return nil, errors.New("args does not hold structures")
	}
	l := &Layout{Size: int(size), IsLibbpf: true, arguments: arguments.Offset.Bytes(),
		argumentSize: argument.Size, argumentCount: array.Nelems}
	if uint64(l.arguments)+uint64(l.argumentSize)*uint64(l.argumentCount) > uint64(spec.Size) {
		return nil, errors.New("args is too large")
	}

	for _, place := range []struct {
		structure *btf.Struct
		name      string
		field     *bitField
		optional  bool
	}{
		{spec, "usdt_cookie", &l.cookie, false},
		{spec, "arg_cnt", &l.count, false},
		{argument, "val_off", &l.value, false},
		{argument, "arg_type", &l.kind, false},
		{argument, "reg_off", &l.register, false},
		{argument, "arg_signed", &l.signed, false},
		{argument, "arg_bitshift", &l.shift, false},
		{argument, "idx_reg_off", &l.index, true},
		{argument, "scale_bitshift", &l.scale, true},
	} {
		m, err := member(place.structure, place.name)
		if err != nil && place.optional {
			continue
		}
		if err != nil {
			return nil, err
		}
		size := uint64(m.BitfieldSize)
		if size == 0 {
			bytes, err := btf.Sizeof(m.Type)
			if err != nil {
				return nil, fmt.Errorf("member %s: %w", place.name, err)
			}
			size = 8 * uint64(bytes)
		}
		if size > 64 || uint64(m.Offset)+size > 8*uint64(place.structure.Size) {
			return nil, fmt.Errorf("member %s is not a number in the structure", place.name)
		}
		*place.field = bitField{uint32(m.Offset), uint32(size)}
	}
	return l, nil
}

func member(structure *btf.Struct, name string) (btf.Member, error) {
	for _, m := range structure.Members {
		if m.Name == name {
			return m, nil
		}
	}
	return btf.Member{}, fmt.Errorf("struct %s has no member %s", structure.Name, name)
}

// put writes a number, cut to the size of the field. Bits of a structure are
// counted from the lowest bit of the first byte on, or, if the most significant
// byte comes first, from the highest.
func (f bitField) put(b []byte, big bool, value uint64) {
	for ; value != 0; value &= value - 1 {
		bit := uint32(bits.TrailingZeros64(value))
		switch {
		case bit >= f.size:
			return
		case big:
			place := f.offset + f.size - 1 - bit
			b[place/8] |= 0x80 >> (place % 8)
		default:
			place := f.offset + bit
			b[place/8] |= 1 << (place % 8)
		}
	}
}

// Encode writes the spec of a site into the first Size bytes of spec.
func (l *Layout) Encode(
	spec []byte, machines Machines, order binary.ByteOrder, cookie uint64, args []argspec.Arg,
) {
	clear(spec[:l.Size])
	if !l.IsLibbpf {
		encode(spec, machines.Kernel, order, cookie, args)
		return
	}
	big := order.Uint16([]byte{0, 1}) == 1
	args = args[:min(len(args), int(l.argumentCount))]
	for i := range args {
		argument := spec[int(l.arguments)+i*int(l.argumentSize):][:l.argumentSize]
		l.encodeArgument(argument, machines, big, &args[i])
	}
	l.cookie.put(spec, big, cookie)
	l.count.put(spec, big, uint64(len(args)))
}

func (l *Layout) encodeArgument(b []byte, machines Machines, big bool, arg *argspec.Arg) {
	// The shift to the left and back that cuts the value to its size. libbpf's
	// bpf_usdt_arg_size computes the size from it, also a size that no number
	// has, as far as a signed byte goes.
	const largest = (64 + 128) / 8
	if arg.Size <= largest {
		l.shift.put(b, big, uint64(64-8*arg.Size))
	} else {
		l.shift.put(b, big, 64)
	}
	e, err := arg.Encode(machines.Kernel)
	if err != nil || arg.Kind == argspec.Bytes || l.Check(machines, arg) != nil {
		l.kind.put(b, big, libbpfNone)
		return
	}
	if arg.Signed {
		l.signed.put(b, big, 1)
	}
	l.value.put(b, big, e.Value)
	switch arg.Kind {
	case argspec.Constant:
		l.kind.put(b, big, libbpfConstant)
	case argspec.InRegister:
		l.kind.put(b, big, libbpfRegister)
		// On x86, the second byte of a register is also the second in memory.
		l.register.put(b, big, uint64(e.Register)+uint64(e.Shift/8))
	case argspec.Memory:
		if e.Register < 0 { // see simplest
			e.Register, e.Index = e.Index, e.Register
		}
		l.register.put(b, big, uint64(e.Register))
		if e.Index < 0 {
			l.kind.put(b, big, libbpfMemory)
			return
		}
		l.kind.put(b, big, libbpfIndexed)
		l.index.put(b, big, uint64(e.Index))
		l.scale.put(b, big, uint64(e.Scale))
	}
}

// simplest returns the registers of an address. An index that is alone and not
// multiplied is as good as a base.
func simplest(arg *argspec.Arg) (base, index argspec.Register) {
	if arg.Base.Name == "" && arg.Scale == 1 && arg.IndexSize == 0 {
		return arg.Index, arg.Base
	}
	return arg.Base, arg.Index
}

// Check returns an error if a program could read the argument, but the layout
// cannot say where it is: one of libbpf.
func (l *Layout) Check(machines Machines, arg *argspec.Arg) error {
	base, index := simplest(arg)
	is32Bit := machines.Program == elf.EM_386 || machines.Program == elf.EM_ARM
	lacks := ""
	switch {
	case !l.IsLibbpf:
	case arg.Kind == argspec.InRegister && arg.High.Name != "":
		lacks = "a value in two registers"
	case arg.Kind == argspec.Address:
		lacks = "an address as a value"
	case arg.Kind != argspec.Memory:
	case base.Name == "":
		lacks = "an address without a base register"
	case arg.IndexSize != 0:
		lacks = "an index register of 32 bits"
	case arg.Address32 && (!is32Bit || index.Name != ""):
		// In a program of 32 bits, base and displacement alone give the right
		// address, or one that holds nothing.
		lacks = "an address of 32 bits"
	case index.Name != "" && l.index.size == 0:
		lacks = "an index register, which that of libbpf 1.7 does"
	}
	if lacks == "" {
		return nil
	}
	return fmt.Errorf("the usdt.bpf.h of libbpf that the object is compiled with does not know %s (%s)", lacks, arg.Raw)
}
