// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/argspec"
)

// Machines are what the place of an argument depends on.
type Machines struct {
	// Kernel is the machine of the running kernel, Program that of the traced
	// file.
	Kernel, Program elf.Machine
}

// A Layout is how the header that an object is compiled with declares a spec.
type Layout interface {
	// Size returns the size of a spec in bytes.
	Size() int

	// Append appends the spec of a site with these arguments to b.
	Append(b []byte, machines Machines, order binary.ByteOrder, cookie uint64,
		args []argspec.Arg) []byte

	// Check returns an error if a program could read the argument, but the
	// layout cannot say where it is.
	Check(machines Machines, arg *argspec.Arg) error
}

// LayoutOf returns the layout of an object, of whose map of specs the values
// have this size and type. bpf/usdt.bpf.h declares them by their size alone.
func LayoutOf(size uint32, value btf.Type) (Layout, error) {
	structure, typed := btf.UnderlyingType(value).(*btf.Struct)
	switch {
	case typed:
		layout, err := newLibbpf(structure)
		if err == nil && layout.size != size {
			err = fmt.Errorf("struct %s has %d bytes, and the map's values %d", structure.Name,
				layout.size, size)
		}
		if err != nil {
			return nil, err
		}
		return layout, nil
	case size == Size:
		return own{}, nil
	}
	return nil, fmt.Errorf("its values have %d bytes, not %d", size, Size)
}

// IsOwn reports whether a layout is that of bpf/usdt.bpf.h.
func IsOwn(layout Layout) bool {
	_, is := layout.(own)
	return is
}

// own is the layout of bpf/usdt.bpf.h, which takes every argument.
type own struct{}

func (own) Size() int                              { return Size }
func (own) Check(_ Machines, _ *argspec.Arg) error { return nil }
func (own) Append(
	b []byte, machines Machines, order binary.ByteOrder, cookie uint64, args []argspec.Arg,
) []byte {
	start := len(b)
	b = append(b, make([]byte, Size)...)
	encode(b[start:], machines.Kernel, order, cookie, args)
	return b
}
