// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestEveryFormIsRead(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	const id = 7
	tgt.attach(t, collection, id)

	type expected struct {
		argument
		value int64
		err   int32
	}
	hex := func(value uint64) int64 { return int64(value) }
	for _, test := range []struct {
		name      string
		arguments []expected
	}{
		{"registers by slot", []expected{
			{inRegister(r15, 8, 0), 15, 0},
			{inRegister(r14, 8, 0), 14, 0},
			{inRegister(r13, 8, 0), 13, 0},
			{inRegister(r12, 8, signed), -12, 0},
			{inRegister(rbp, 8, signed), -5, 0},
			{inRegister(rbx, 8, 0), 0x1112131415161718, 0},
			{inRegister(r11, 8, 0), 11, 0},
			{inRegister(r10, 8, 0), 0x1010101010101010, 0},
			{inRegister(r9, 8, 0), 0xfffffff0, 0},
			{inRegister(r8, 8, 0), 0x110000000, 0},
			{inRegister(rax, 8, 0), hex(0x8182838485868788), 0},
			{inRegister(rcx, 8, 0), 0x10000000, 0},
		}},
		{"more registers", []expected{
			{inRegister(rdx, 8, 0), 0x10001000, 0},
			{inRegister(rsi, 8, 0), 0x20000000, 0},
			{inRegister(rdi, 8, 0), 5, 0},
			{inRegister(rip, 8, 0), hex(tgt.site), 0},
		}},
		{"registers by size and sign", []expected{
			{inRegister(rax, 8, signed), hex(0x8182838485868788), 0},
			{inRegister(rax, 4, 0), 0x85868788, 0},
			{inRegister(rax, 4, signed), hex(0xffffffff85868788), 0},
			{inRegister(rax, 2, 0), 0x8788, 0},
			{inRegister(rax, 2, signed), hex(0xffffffffffff8788), 0},
			{inRegister(rax, 1, 0), 0x88, 0},
			{inRegister(rax, 1, signed), hex(0xffffffffffffff88), 0},
			{inRegister(rbx, 1, signed), 0x18, 0},
			{inRegister(rax, 1, 0).shifted(8), 0x87, 0},
			{inRegister(rax, 1, signed).shifted(8), hex(0xffffffffffffff87), 0},
			{inRegister(rbx, 1, signed).shifted(8), 0x17, 0},
		}},
		{"constants as they are", []expected{
			{argument{Kind: constant, Size: 8, Value: 1 << 63}, -1 << 63, 0},
			{argument{Kind: constant, Size: 1, Flags: signed, Value: 1<<64 - 9}, -9, 0},
			{argument{Kind: constant, Size: 4, Value: 0xfffffff7}, 0xfffffff7, 0},
			{argument{Kind: constant, Size: 2}, 0, 0},
		}},
		{"memory by size and sign", []expected{
			{inMemory(page, 0x80, 8, 0), hex(0x8786858483828180), 0},
			{inMemory(page, 0x80, 8, signed), hex(0x8786858483828180), 0},
			{inMemory(page, 0x80, 4, 0), 0x83828180, 0},
			{inMemory(page, 0x80, 4, signed), hex(0xffffffff83828180), 0},
			{inMemory(page, 0x80, 2, 0), 0x8180, 0},
			{inMemory(page, 0x80, 2, signed), hex(0xffffffffffff8180), 0},
			{inMemory(page, 0x80, 1, 0), 0x80, 0},
			{inMemory(page, 0x80, 1, signed), hex(0xffffffffffffff80), 0},
			{inMemory(page, 0x7f, 1, signed), 0x7f, 0},
		}},
		{"nothing past the operand", []expected{
			{inMemory(end, -1, 1, 0), 0xff, 0},
			{inMemory(end, -2, 2, 0), 0xfffe, 0},
			{inMemory(end, -4, 4, 0), 0xfffefdfc, 0},
			{inMemory(end, -8, 8, 0), hex(0xfffefdfcfbfaf9f8), 0},
			{inMemory(end, -1, 2, 0), 0, fault},
			{inMemory(end, -7, 8, 0), 0, fault},
			{inMemory(end, 0, 1, 0), 0, fault},
		}},
		{"addresses", []expected{
			{inMemory(rip, 0x10000010-int64(tgt.site), 1, 0), 0x10, 0}, // a global
			{inMemory(none, 0x10000011, 1, 0), 0x11, 0},
			{indexed(page, rdi, 0, 0x20, 1, 0), 0x25, 0},
			{indexed(page, rdi, 3, 0x20, 1, 0), 0x20 + 5*8, 0},
			{indexed(page, rbp, 2, 0x20, 1, 0), 0x20 - 5*4, 0}, // a negative index
			{indexed(none, rdi, 1, 0x10000000, 1, 0), 10, 0},
			{indexed(end, rbp, 0, 0, 1, 0), 0xfb, 0},
		}},
		{"indexes of 32 bits", []expected{
			{indexed(none, r8, 0, 0x20, 1, 0), 0, fault},
			{indexed(none, r8, 0, 0x20, 1, zeroExtendedIndex), 0x20, 0},
			{indexed(none, r8, 0, 0x20, 1, signExtendedIndex), 0x20, 0},
			{indexed(end, r9, 0, 0, 1, signExtendedIndex), 0xf0, 0},
			{indexed(end, r9, 2, 0, 1, signExtendedIndex), 0xc0, 0},
			{indexed(end, r9, 0, 0, 1, zeroExtendedIndex), 0, fault},
			{indexed(end, r9, 0, 0, 1, 0), 0, fault},
		}},
		{"addresses of 32-bit programs", []expected{
			{inMemory(r8, 0x20, 1, 0), 0, fault},
			{inMemory(r8, 0x20, 1, address32), 0x20, 0},
			{inMemory(r9, 0x10000040, 1, 0), 0, fault},
			{inMemory(r9, 0x10000040, 1, address32), 0x30, 0},
			{indexed(r9, rdi, 0, 0x10000040, 1, signed|address32), 0x35, 0},
		}},
		{"addresses as values", []expected{
			{inMemory(rip, 0x1000, 8, 0).summed(), hex(tgt.site + 0x1000), 0},
			{inMemory(rip, -0x1000, 8, signed).summed(), hex(tgt.site - 0x1000), 0},
			{inMemory(rdi, -6, 8, 0).summed(), -1, 0},
			{inMemory(rdi, -6, 4, 0).summed(), 0xffffffff, 0},
			{inMemory(rdi, -6, 2, signed).summed(), -1, 0},
			{inMemory(rdi, -6, 8, address32).summed(), 0xffffffff, 0},
			{inMemory(empty, 0x123, 8, 0).summed(), 0x20000123, 0},
			{inMemory(rdi, 1, 16, 0).summed(), 0, notSupported},
			{indexed(rax, rdi, 3, 1, 1, 0).summed(), 0xb1, 0},
		}},
		{"values in two registers", []expected{
			{pair(rdi, r8), 5<<32 | 0x10000000, 0}, // r8 has more than 32 bits
			{pair(rbp, r9), -5<<32 | 0xfffffff0, 0},
			{pair(r8, rbp), 0x10000000<<32 | 0xfffffffb, 0},
		}},
		{"unavailable", []expected{
			{argument{Kind: unavailable, Size: 16}, 0, notSupported},
			{argument{Kind: unavailable, Size: 8}, 0, notSupported},
			{inRegister(rdi, 8, 0), 5, 0},
		}},
		{"none", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := spec{Cookie: 0xfedcba9876543210, Count: int16(len(test.arguments))}
			for i, want := range test.arguments {
				s.Arguments[i] = want.argument
			}
			putSpec(t, collection, id, s)
			tgt.hit(t)
			got := readResult(t, collection)

			qt.Check(t, qt.Equals(uint64(got.cookie), s.Cookie))
			qt.Check(t, qt.Equals(got.count, int32(s.Count)))
			for i := range 14 {
				want := expected{err: noSuchArgument}
				size := noSuchArgument
				if i < len(test.arguments) {
					want = test.arguments[i]
					size = int32(want.Size)
				}
				qt.Check(t, qt.Equals(got.single[i], want.value), qt.Commentf("argument %d", i))
				qt.Check(t, qt.Equals(got.errors[i], want.err), qt.Commentf("argument %d", i))
				qt.Check(t, qt.Equals(got.sizes[i], size), qt.Commentf("argument %d", i))
				if i < 12 {
					qt.Check(t, qt.Equals(got.all[i], want.value), qt.Commentf("argument %d", i))
				}
			}
		})
	}
	qt.Check(t, qt.Equals(readResult(t, collection).bareHits, 13))
}

func TestAddressesOfArguments(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)
	tests := []struct {
		argument argument
		address  uint64
		err      int32
	}{
		{inMemory(page, 0x80, 8, 0), 0x10000080, 0},
		{inMemory(end, -1, 1, signed), 0x10000fff, 0},
		{inMemory(end, 0, 8, 0), 0x10001000, 0}, // which cannot be read
		{inMemory(rip, 0x10000010-int64(tgt.site), 1, 0), 0x10000010, 0},
		{indexed(page, rdi, 3, 0x20, 1, 0), 0x10000020 + 5*8, 0},
		{inMemory(r9, 0x10000040, 1, address32), 0x10000030, 0},
		{argument{Kind: sequence, Size: 24, Base: page, Index: none, Value: 16}, 0x10000010, 0},
		{argument{Kind: constant, Size: 8, Value: 5}, 0, notSupported},
		{inRegister(rdi, 8, 0), 0, notSupported},
		{inMemory(rdi, -6, 8, 0).summed(), 0, notSupported},
		{argument{Kind: unavailable, Size: 8}, 0, notSupported},
	}
	s := spec{Count: int16(len(tests))}
	for i, test := range tests {
		s.Arguments[i] = test.argument
	}
	putSpec(t, collection, 1, s)
	tgt.hit(t)
	got := readResult(t, collection)
	for i, test := range tests {
		qt.Check(t, qt.Equals(got.addresses[i], test.address), qt.Commentf("argument %d", i))
		qt.Check(t, qt.Equals(got.addressErrors[i], test.err), qt.Commentf("argument %d", i))
	}
	for i := len(tests); i < len(got.addressErrors); i++ {
		qt.Check(t, qt.Equals(got.addressErrors[i], noSuchArgument), qt.Commentf("argument %d", i))
	}
	qt.Check(t, qt.Equals(got.errors[6], notSupported)) // bytes are no number
	qt.Check(t, qt.Equals(got.sizes[6], 24))
}

func TestSizeThatIsNotKnownIsAnError(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)
	putSpec(t, collection, 1, spec{Count: 2, Arguments: [12]argument{{Size: 0}, {Size: 24}}})
	tgt.hit(t)
	got := readResult(t, collection)
	qt.Check(t, qt.Equals(got.sizes[0], notSupported))
	qt.Check(t, qt.Equals(got.sizes[1], 24))
}

func TestParametersConvertAsInC(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)
	a := inRegister(rax, 8, 0)
	putSpec(t, collection, 1, spec{Count: 5, Arguments: [12]argument{a, a, a, a, a}})
	tgt.hit(t)
	qt.Check(t, qt.Equals(readResult(t, collection).narrowed,
		[5]int64{-0x7a797878, -0x7878, 0x88, -0x7e7d7c7b7a797878, 1}))
}
