// SPDX-License-Identifier: BSD-2-Clause

//go:build amd64

package bpf_test

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/internal/testneeds"
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

func TestWithoutSpecEverythingIsAnError(t *testing.T) {
	check := func(t *testing.T, collection *ebpf.Collection) {
		got := readResult(t, collection)
		qt.Check(t, qt.Equals(got.cookie, 0))
		qt.Check(t, qt.Equals(got.count, noSpec))
		for i := range 14 {
			qt.Check(t, qt.Equals(got.errors[i], noSpec))
			qt.Check(t, qt.Equals(got.sizes[i], noSpec))
			qt.Check(t, qt.Equals(got.single[i], 0))
		}
		qt.Check(t, qt.Equals(got.all, [12]int64{}))
		qt.Check(t, qt.Equals(got.bareHits, 1))
	}
	t.Run("by cookie", func(t *testing.T) {
		collection := reader(t, true)
		tgt := startTarget(t)
		tgt.attach(t, collection, 256) // the number of specs
		tgt.hit(t)
		check(t, collection)
	})
	t.Run("attached without a cookie", func(t *testing.T) {
		collection := reader(t, true)
		tgt := startTarget(t)
		tgt.attach(t, collection, 0)
		putSpec(t, collection, 0, spec{Cookie: 55, Count: 1,
			Arguments: [12]argument{inRegister(rdi, 8, 0)}})
		tgt.hit(t)
		check(t, collection)
	})
	t.Run("by address", func(t *testing.T) {
		collection := reader(t, false)
		tgt := startTarget(t)
		tgt.attach(t, collection, 1)
		tgt.hit(t)
		check(t, collection)
	})
}

func TestSpecIsFoundByAddressWithoutCookies(t *testing.T) {
	collection := reader(t, false)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)
	putSpec(t, collection, 5, spec{Cookie: 55, Count: 1,
		Arguments: [12]argument{inRegister(rdi, 8, 0)}})
	qt.Assert(t, qt.IsNil(collection.Maps["__bpf_usdt_ip_to_spec_id"].Put(tgt.site, uint32(5))))
	tgt.hit(t)
	got := readResult(t, collection)
	qt.Check(t, qt.Equals(got.cookie, 55))
	qt.Check(t, qt.Equals(got.single[0], 5))
	qt.Check(t, qt.Equals(got.all[0], 5))
}

// A window changes what BPF_USDT costs, and never what it reads.
func TestWindowIsReadAtOnce(t *testing.T) {
	collection := reader(t, true)
	tgt := startTarget(t)
	tgt.attach(t, collection, 1)

	longs := spec{Count: 12, WindowBase: page, WindowSize: 96, WindowDisplacement: 0x40}
	for i := range 12 {
		longs.Arguments[i] = inMemory(page, int64(0x40+8*i), 8, 0).at(uint8(8 * i))
	}
	mixed := spec{
		Count: 12, WindowBase: end, WindowSize: 24, WindowDisplacement: -100,
		Arguments: [12]argument{
			inMemory(end, -100, 8, 0).at(0),
			inMemory(end, -88, 4, 0).at(12),
			inMemory(end, -92, 4, signed).at(8),
			inMemory(end, -84, 2, 0).at(16),
			inMemory(end, -82, 2, signed).at(18),
			inMemory(end, -80, 1, 0).at(20),
			inMemory(end, -79, 1, signed).at(21),
			inMemory(end, -77, 1, signed).at(23),
			inMemory(page, 3, 1, 0), // not in it
			inRegister(rax, 4, signed),
			{Kind: constant, Size: 8, Value: 77},
			inMemory(end, 0, 8, 0),
		},
	}
	broken := spec{
		Count: 3, WindowBase: end, WindowSize: 24, WindowDisplacement: -16,
		Arguments: [12]argument{
			inMemory(end, -16, 8, 0).at(0), inMemory(end, -8, 8, 0).at(8), inMemory(end, 0, 8,
				0).at(16),
		},
	}
	tooLarge := longs
	tooLarge.WindowSize = 97

	for name, s := range map[string]spec{
		"longs": longs, "mixed": mixed, "not readable": broken, "too large": tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			putSpec(t, collection, 1, s)
			tgt.hit(t)
			got := readResult(t, collection)
			qt.Check(t, qt.DeepEquals(got.all[:], got.single[:12]))
			qt.Check(t, qt.Not(qt.Equals(got.all[0], 0)))
		})
	}

	// The same window put elsewhere shows that it is what is read.
	longs.WindowDisplacement = 0
	putSpec(t, collection, 1, longs)
	tgt.hit(t)
	got := readResult(t, collection)
	qt.Check(t, qt.Equals(got.all[0], 0x0706050403020100))
	qt.Check(t, qt.Equals(got.all[11], 0x5f5e5d5c5b5a5958))
	qt.Check(t, qt.Equals(got.single[0], 0x4746454443424140))
}

func TestSleepableProgramsCanWaitForPages(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Kernel(t, "6.6", "uprobe_multi links")
	untouched := spec{
		Count: 2, WindowBase: empty, WindowSize: 16,
		Arguments: [12]argument{inMemory(empty, 0, 8, 0).at(0), inMemory(empty, 8, 8, 0).at(8)},
	}
	for _, test := range []struct {
		name  string
		flags []string
		err   int32
	}{
		{"by default they do not", nil, fault},
		{"BPF_USDT_SLEEPABLE", []string{"-DBPF_USDT_SLEEPABLE"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			tgt := startTarget(t)
			object := mustCompile(t, compilers(t)[0], thisMachine(t), "testdata/reader.bpf.c",
				test.flags...)
			collection := load(t, object, true, func(s *ebpf.CollectionSpec) {
				for _, program := range s.Programs {
					program.AttachType = ebpf.AttachTraceUprobeMulti
				}
			})
			putSpec(t, collection, 1, untouched)
			executable, err := link.OpenExecutable(tgt.path)
			qt.Assert(t, qt.IsNil(err))
			l, err := executable.UprobeMulti(nil, collection.Programs["read_single"],
				&link.UprobeMultiOptions{
					Addresses: []uint64{tgt.offset}, Cookies: []uint64{1},
				})
			qt.Assert(t, qt.IsNil(err))
			defer l.Close()
			tgt.hit(t)
			got := readResult(t, collection)
			qt.Check(t, qt.Equals(got.errors[0], test.err))
			qt.Check(t, qt.Equals(got.single[0], 0))
			qt.Check(t, qt.Equals(got.errors[2], noSuchArgument))
		})
	}
}
