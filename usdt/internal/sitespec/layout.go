// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/argspec"
)

// Machines are what the place of an argument depends on: that of the running
// kernel, and that of the traced file.
type Machines struct{ Kernel, Program elf.Machine }

// A Layout is the form of a spec in the header that an object is compiled with:
// bpf/usdt.bpf.h, which takes every argument, or one of libbpf.
type Layout struct {
	Size   int     // of a spec, in bytes
	libbpf *libbpf // nil for bpf/usdt.bpf.h
}

// LayoutOf returns the layout of an object whose map of specs has values of
// this size and type. bpf/usdt.bpf.h declares them by their size alone.
func LayoutOf(size uint32, value btf.Type) (Layout, error) {
	l := Layout{Size: int(size)}
	structure, typed := btf.UnderlyingType(value).(*btf.Struct)
	var err error
	switch {
	case !typed && size != Size:
		err = fmt.Errorf("its values have %d bytes, not %d", size, Size)
	case typed && structure.Size != size:
		err = fmt.Errorf("struct %s has %d bytes, and the map's values %d", structure.Name,
			structure.Size, size)
	case typed:
		l.libbpf, err = newLibbpf(structure)
	}
	return l, err
}

// IsLibbpf reports whether a header of libbpf declares the layout.
func (l Layout) IsLibbpf() bool { return l.libbpf != nil }

// Encode writes the spec of a site with these arguments into the first Size
// bytes of spec.
func (l Layout) Encode(
	spec []byte, machines Machines, order binary.ByteOrder, cookie uint64, args []argspec.Arg,
) {
	clear(spec[:l.Size])
	if l.libbpf != nil {
		l.libbpf.encode(spec, machines, order, cookie, args)
	} else {
		encode(spec, machines.Kernel, order, cookie, args)
	}
}

// Check returns an error if a program could read the argument, but the layout
// cannot say where it is.
func (l Layout) Check(machines Machines, arg *argspec.Arg) error {
	if l.libbpf == nil {
		return nil
	}
	return l.libbpf.check(machines, arg)
}
