// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testprog"
)

// These tests read known registers and memory of testdata/target_amd64.S by
// specs written here by hand, so that they hold whatever argspec encodes. The
// other machines are tested end to end, by package usdt.

// argument is one argument of a spec, as the header declares it.
type argument struct {
	Value                     uint64
	Kind, Size, Flags, Shift  uint8
	Base, Index, Scale, Place uint8 // Place: window in the header
}

type spec struct {
	Arguments          [12]argument
	Cookie             uint64
	Count              int16
	WindowBase         uint8
	WindowSize         uint8
	WindowDisplacement int32
}

const (
	unavailable = 0
	constant    = 1
	register    = 2
	memory      = 3
	sum         = 4
	sequence    = 5 // bytes

	signed    = 1
	address32 = 2

	zeroExtendedIndex = 4
	signExtendedIndex = 8
	zeroExtendedBase  = 16

	none = 0xff
)

// Slots of the kernel's struct pt_regs.
const (
	r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	rax, rcx, rdx, rsi, rdi, rip, rsp              = 10, 11, 12, 13, 14, 16, 19
)

// What the registers hold, see target_amd64.S.
const (
	page  = rcx // 4096 bytes, each its own offset
	end   = rdx // where the page ends, and nothing follows
	empty = rsi // a page that was never touched
)

func inRegister(slot, size, flags uint8) argument {
	return argument{Kind: register, Size: size, Flags: flags, Base: slot, Index: none}
}

func inMemory(base uint8, displacement int64, size, flags uint8) argument {
	return argument{Value: uint64(displacement), Kind: memory, Size: size, Flags: flags, Base: base,
		Index: none}
}

func indexed(base, index, scale uint8, displacement int64, size, flags uint8) argument {
	a := inMemory(base, displacement, size, flags)
	a.Index, a.Scale = index, scale
	return a
}

func (a argument) shifted(bits uint8) argument {
	a.Shift = bits
	return a
}

// summed is the address that it was, without the memory there.
func (a argument) summed() argument {
	a.Kind = sum
	return a
}

// pair is a value in two registers of 32 bits.
func pair(high, low uint8) argument {
	return indexed(low, high, 32, 0, 8, zeroExtendedBase).summed()
}

// at says where in the window the argument is.
func (a argument) at(offset uint8) argument {
	a.Place = offset + 1
	return a
}

// result is what the programs of testdata/reader.bpf.c saw.
type result struct {
	single   [14]int64
	errors   [14]int32
	sizes    [14]int32
	all      [12]int64
	narrowed [5]int64
	cookie   int64
	count    int32
	bareHits uint64

	addresses     [14]uint64
	addressErrors [14]int32
}

func readResult(t *testing.T, collection *ebpf.Collection) (r result) {
	t.Helper()
	for name, value := range map[string]any{
		"single": &r.single, "errors": &r.errors, "sizes": &r.sizes, "all": &r.all,
		"narrowed": &r.narrowed, "cookie": &r.cookie, "count": &r.count, "bare_hits": &r.bareHits,
		"addresses": &r.addresses, "address_errors": &r.addressErrors,
	} {
		qt.Assert(t, qt.IsNil(collection.Variables[name].Get(value)))
	}
	return r
}

func putSpec(t *testing.T, collection *ebpf.Collection, id uint32, s spec) {
	t.Helper()
	var value bytes.Buffer
	qt.Assert(t, qt.IsNil(binary.Write(&value, binary.NativeEndian, s)))
	qt.Assert(t, qt.IsNil(collection.Maps["__bpf_usdt_specs"].Put(id, value.Bytes())))
}

func reader(t *testing.T, cookie bool) *ebpf.Collection {
	t.Helper()
	testprog.RequireBPF(t)
	return load(t, mustCompile(t, compilers(t)[0], thisMachine(t), "testdata/reader.bpf.c"), cookie,
		nil)
}

const (
	noSuchArgument = -int32(syscall.ENOENT)
	notSupported   = -int32(syscall.EOPNOTSUPP)
	fault          = -int32(syscall.EFAULT)
	noSpec         = -int32(syscall.ESRCH)
)
