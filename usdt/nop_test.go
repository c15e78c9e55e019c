// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/sys"
)

func TestIsNop(t *testing.T) {
	little, big := binary.ByteOrder(binary.LittleEndian), binary.ByteOrder(binary.BigEndian)
	for _, tc := range []struct {
		name    string
		machine elf.Machine
		order   binary.ByteOrder
		code    []byte
		want    bool
	}{
		{"one byte", elf.EM_X86_64, little, []byte{0x90, 0xc3}, true},
		{"operand-size prefix", elf.EM_X86_64, little, []byte{0x66, 0x90}, true},
		{"five bytes", elf.EM_X86_64, little, []byte{0x0f, 0x1f, 0x44, 0, 0}, true},
		{"ten bytes", elf.EM_X86_64, little,
			[]byte{0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, true},
		{"32-bit program", elf.EM_386, little, []byte{0x90}, true},
		{"dec eax, not a nop with a prefix", elf.EM_386, little, []byte{0x48, 0x90}, false},
		{"pause", elf.EM_X86_64, little, []byte{0xf3, 0x90}, false},
		{"xchg eax, r8d", elf.EM_X86_64, little, []byte{0x41, 0x90}, false},
		{"endbr64", elf.EM_X86_64, little, []byte{0xf3, 0x0f, 0x1e, 0xfa}, false},
		{"cut off", elf.EM_X86_64, little, []byte{0x0f, 0x1f}, false},
		{"ret", elf.EM_X86_64, little, []byte{0xc3}, false},
		{"int3", elf.EM_X86_64, little, []byte{0xcc}, false},
		{"nothing", elf.EM_X86_64, little, nil, false},
		{"arm64", elf.EM_AARCH64, little, []byte{0x1f, 0x20, 0x03, 0xd5}, true},
		{"arm64 bti c", elf.EM_AARCH64, little, []byte{0x5f, 0x24, 0x03, 0xd5}, false},
		{"arm64 cut off", elf.EM_AARCH64, little, []byte{0x1f, 0x20, 0x03}, false},
		{"s390x nop 0", elf.EM_S390, big, []byte{0x47, 0, 0, 0}, true},
		{"s390x nopr", elf.EM_S390, big, []byte{0x07, 0x00}, true},
		{"s390x br r14", elf.EM_S390, big, []byte{0x07, 0xfe}, false},
		{"s390x b", elf.EM_S390, big, []byte{0x47, 0xf0, 0, 0}, false},
		{"ppc64le", elf.EM_PPC64, little, []byte{0, 0, 0, 0x60}, true},
		{"ppc64 big-endian", elf.EM_PPC64, big, []byte{0x60, 0, 0, 0}, true},
		{"ppc64le in the other order", elf.EM_PPC64, big, []byte{0, 0, 0, 0x60}, false},
		{"riscv64", elf.EM_RISCV, little, []byte{0x13, 0, 0, 0}, true},
		{"riscv64 compressed", elf.EM_RISCV, little, []byte{0x01, 0}, true},
		{"riscv64 ret", elf.EM_RISCV, little, []byte{0x82, 0x80}, false},
		{"loongarch64", elf.EM_LOONGARCH, little, []byte{0, 0, 0x40, 0x03}, true},
		{"another machine", elf.EM_MIPS, little, []byte{0, 0, 0, 0}, false},
	} {
		t.Run(tc.machine.String()+" "+tc.name, func(t *testing.T) {
			_, err := skipInNop(tc.machine, tc.order, tc.code, replacesNone)
			qt.Assert(t, qt.Equals(err == nil || errors.Is(err, errPrefixedNop), tc.want))
		})
	}
}

func TestSkipFindsWhereABreakpointIsSafe(t *testing.T) {
	const none = replacesNone
	for _, tc := range []struct {
		name   string
		code   []byte
		answer unix.Errno
		skip   uint64
		want   error
	}{
		{"one byte", []byte{0x90, 0xc3}, replacesNop5, 0, nil},
		{"one byte, then five", []byte{0x90, 0x0f, 0x1f, 0x44, 0, 0}, replacesNop5, 0, nil},
		{"one byte, then ten", nopThenNop10, replacesNop5, 0, nil},
		{"one byte, then ten, replaced", nopThenNop10, replacesNop10, 1, nil},
		{"five bytes", []byte{0x0f, 0x1f, 0x44, 0, 0}, replacesNop5, 0, errUnsafeNop},
		{"five bytes, not replaced", []byte{0x0f, 0x1f, 0x44, 0, 0}, replacesNop10, 0, nil},
		{"five bytes, kernel unknown", []byte{0x0f, 0x1f, 0x44, 0, 0}, unknown, 0, errUnsafeNop},
		{"five bytes, a seccomp filter refuses", []byte{0x0f, 0x1f, 0x44, 0, 0}, unix.EPERM, 0,
			errUnsafeNop},
		{"five bytes, old kernel", []byte{0x0f, 0x1f, 0x44, 0, 0}, none, 0, nil},
		{"five bytes, displacement", []byte{0x0f, 0x1f, 0x44, 0, 8}, replacesNop5, 0, errUnsafeNop},
		{"five bytes, index", []byte{0x0f, 0x1f, 0x44, 0x18, 0}, replacesNop5, 0, errUnsafeNop},
		{"five bytes, operand size", []byte{0x66, 0x0f, 0x1f, 0x40, 0}, replacesNop5, 0, errUnsafeNop},
		{"five bytes, all prefixes", []byte{0x66, 0x66, 0x66, 0x66, 0x90}, replacesNop5, 0,
			errUnsafeNop},
		{"four bytes", []byte{0x0f, 0x1f, 0x40, 0, 0x90}, replacesNop5, 0, nil},
		{"ten bytes", nop10, replacesNop5, 0, errPrefixedNop},
		{"ten bytes, replaced", nop10, replacesNop10, 0, nil},
		{"ten bytes of another form", []byte{0x66, 0x2e, 0x0f, 0x1f, 0x84, 1, 0, 0, 0, 0},
			replacesNop10, 0, errPrefixedNop},
		{"ds", []byte{0x3e, 0x90}, none, 0, errPrefixedNop},
		{"es", []byte{0x66, 0x26, 0x90}, none, 0, errPrefixedNop},
		{"lock", []byte{0xf0, 0x90}, none, 0, errPrefixedNop},
		{"fs, which kernels take", []byte{0x64, 0x90}, none, 0, nil},
		{"a displacement that looks like a prefix", []byte{0x0f, 0x1f, 0x40, 0x2e}, none, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			skip, err := skipInNop(elf.EM_X86_64, binary.LittleEndian, tc.code, tc.answer)
			qt.Assert(t, qt.Equals(skip, tc.skip))
			qt.Assert(t, qt.ErrorIs(err, tc.want))
			if tc.want == errUnsafeNop || tc.skip > 0 { // in 64-bit programs only
				skip, err = skipInNop(elf.EM_386, binary.LittleEndian, tc.code, tc.answer)
				qt.Assert(t, qt.Equals(skip, 0))
				qt.Assert(t, qt.IsNil(err))
			}
		})
	}
}

// What a machine is to be added to, beside argspec.
func TestEveryMachineOfArgspecIsKnownEverywhere(t *testing.T) {
	count := 0
	for m := range elf.Machine(512) {
		err := argspec.Parse(m, "1")[0].Err
		if err != nil && strings.Contains(err.Error(), "machine not supported") {
			continue
		}
		count++
		comment := qt.Commentf("%s", m)
		qt.Check(t, qt.Not(qt.Equals(elffile.MachineName(m, elf.ELFCLASS64, binary.LittleEndian),
			m.String())), comment) // its relocations are checked by that
		if m == elf.EM_386 || m == elf.EM_ARM {
			continue // no kernel of theirs is attached on
		}
		kernels := slices.Collect(maps.Values(sys.Machines))
		qt.Check(t, qt.SliceContains(kernels, m), comment)
		qt.Check(t, qt.IsTrue(m == elf.EM_X86_64 || nops[m] != nil), comment)
		variable := argspec.Global(machineFile(m), 0, "variable")
		at, err := variable.Encode(m)
		qt.Check(t, qt.IsNil(err), comment)
		want := map[elf.Machine]int16{elf.EM_X86_64: 16, elf.EM_AARCH64: 32, elf.EM_S390: 2,
			elf.EM_RISCV: 0, elf.EM_PPC64: 32, elf.EM_LOONGARCH: 33}
		qt.Check(t, qt.Equals(at.Register, 8*want[m]), comment)
	}
	qt.Assert(t, qt.Equals(count, 8))
}

// A refused instruction is not a feature that the kernel lacks.
func TestARefusedInstructionIsNotUnsupported(t *testing.T) {
	for _, errno := range []error{unix.EOPNOTSUPP, errNotSupported, ebpf.ErrNotSupported} {
		err := whyRefused(&Site{}, errno)
		qt.Check(t, qt.ErrorMatches(err, "the kernel refuses a breakpoint .*"))
		qt.Check(t, qt.IsFalse(errors.Is(err, errors.ErrUnsupported)))
	}
}
