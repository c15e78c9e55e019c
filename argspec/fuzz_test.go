// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

var fuzzMachines = []elf.Machine{
	elf.EM_X86_64, elf.EM_386, elf.EM_AARCH64, elf.EM_ARM, elf.EM_S390,
	elf.EM_PPC64, elf.EM_RISCV, elf.EM_LOONGARCH, elf.EM_MIPS,
}

// fuzzFile has some symbols and lacks others.
func fuzzFile(machine uint8, narrow, absolute bool) testFile {
	f := testFile{
		machine: fuzzMachines[int(machine)%len(fuzzMachines)],
		class:   elf.ELFCLASS64,
		symbol: func(name string) (elf.Symbol, error) {
			if len(name) > 8 {
				return elf.Symbol{}, errNoSuchSymbol
			}
			kinds := []elf.SymType{elf.STT_OBJECT, elf.STT_FUNC, elf.STT_TLS}
			return newSymbol(kinds[len(name)%len(kinds)], 0x404000+uint64(len(name))), nil
		},
		pltgot: func() (uint64, error) { return 0x403ff4, nil },
	}
	if narrow {
		f.class = elf.ELFCLASS32
	}
	if absolute {
		f.kind = elf.ET_EXEC
	}
	return f
}

// fuzzLocation is where the sites of such files are.
const fuzzLocation = 0x401136

// FuzzParse checks what holds whatever the string: the parser ends, each byte
// is in one argument or a blank between two, results are consistent, and an
// argument means the same alone as among others.
func FuzzParse(f *testing.F) {
	for _, v := range loadVectors(f) {
		machine := max(slices.Index(fuzzMachines, v.file.machine), 0)
		f.Add(uint8(machine), v.file.class == elf.ELFCLASS32, v.file.kind == elf.ET_EXEC, v.text)
	}
	for _, text := range []string{
		"4@i%ra+1r", "8@8(%rbp", "-", "@", "8@", "\x00", "8@\xff", "(((((((((", "8@[[[[", "8@%", "8@$-", "8@\"",
		"8@" + strings.Repeat("(", 1000), "8@" + strings.Repeat("-", 1000), strings.Repeat("1@", 1000), strings.Repeat("\" ", 1000),
	} {
		for machine := range fuzzMachines {
			f.Add(uint8(machine), false, true, text)
		}
	}
	f.Fuzz(func(t *testing.T, machine uint8, narrow, absolute bool, text string) {
		file := fuzzFile(machine, narrow, absolute)
		args := file.decode(fuzzLocation, text)
		checkInvariants(t, text, args)
		if len(args) > maxListed+1 {
			t.Fatalf("%d arguments", len(args))
		}
		for i, a := range args {
			if a.String() == "" || a.Type() == "" {
				t.Fatal("no text")
			}
			if i == maxListed {
				break
			}
			alone := file.decode(fuzzLocation, a.Raw)
			if len(alone) != 1 || !sameArg(alone[0], a) {
				t.Fatalf("%q alone is %v, in %q it is %v", a.Raw, alone, text, a)
			}
		}
	})
}

// sameArg compares all but the identity of the errors.
func sameArg(a, b Arg) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	a.Err, b.Err = nil, nil
	return a == b
}

// FuzzEncode checks that a spec says what its arguments say.
func FuzzEncode(f *testing.F) {
	for i, test := range golden {
		machine := slices.Index(fuzzMachines, test.program)
		kernel := slices.Index(fuzzMachines, test.kernel)
		f.Add(uint8(machine), uint8(kernel), i%2 == 0, uint64(i), test.text)
	}
	f.Fuzz(func(t *testing.T, machine, kernel uint8, big bool, cookie uint64, text string) {
		on := fuzzMachines[int(kernel)%len(fuzzMachines)]
		var order binary.ByteOrder = binary.LittleEndian
		if big {
			order = binary.BigEndian
		}
		args := fuzzFile(machine, false, true).decode(fuzzLocation, text)
		spec := Encode(on, order, cookie, args)
		qt.Assert(t, qt.Equals(spec, Encode(on, order, cookie, args)))
		qt.Assert(t, qt.Equals(order.Uint64(spec[192:]), cookie))
		count := int(order.Uint16(spec[200:]))
		qt.Assert(t, qt.Equals(count, min(len(args), MaxArgs)))
		qt.Assert(t, qt.Equals(strings.Trim(string(spec[count*16:192]), "\x00"), ""))
		for i, a := range args[:count] {
			checkEncoded(t, a, on, spec[i*16:][:16], order)
		}
	})
}

func checkEncoded(t *testing.T, a Arg, kernel elf.Machine, b []byte, order binary.ByteOrder) {
	slot := func(r Register) uint8 {
		if n, ok := r.Slot(kernel); ok {
			return uint8(n)
		}
		return 0xff
	}
	readable := a.CheckKernel(kernel) == nil
	qt.Assert(t, qt.Equals(b[8] != 0, readable))
	if a.Size <= 255 {
		qt.Assert(t, qt.Equals(int(b[9]), a.Size))
	}
	if !readable {
		qt.Assert(t, qt.Equals(b[15], 0))
		qt.Assert(t, qt.Equals(order.Uint64(b), 0))
		return
	}
	qt.Assert(t, qt.Equals(b[10]&1 != 0, a.Signed))
	qt.Assert(t, qt.Equals(b[10]&2 != 0, a.Address32))
	qt.Assert(t, qt.Equals(b[10]&4 != 0, a.IndexExtension == ZeroExtend32))
	qt.Assert(t, qt.Equals(b[10]&8 != 0, a.IndexExtension == SignExtend32))
	qt.Assert(t, qt.Equals(b[10]&16 != 0, !a.High.IsZero()))
	switch a.Kind {
	case Constant:
		qt.Assert(t, qt.Equals(b[8], 1))
		qt.Assert(t, qt.Equals(order.Uint64(b), a.Constant))
	case InRegister:
		qt.Assert(t, qt.Equals(b[12], slot(a.Register)))
		qt.Assert(t, qt.Equals(b[11], a.Register.Shift))
		qt.Assert(t, qt.Not(qt.Equals(b[12], 0xff)))
		qt.Assert(t, qt.Equals(b[13], slot(a.High)))
		if a.High.IsZero() {
			qt.Assert(t, qt.Equals(b[8], 2))
		} else {
			qt.Assert(t, qt.Equals(b[8], 4))
			qt.Assert(t, qt.Equals(b[14], 32))
		}
	case Memory, Address:
		qt.Assert(t, qt.Equals(b[8], map[Kind]uint8{Memory: 3, Address: 4}[a.Kind]))
		qt.Assert(t, qt.Equals(int64(order.Uint64(b)), a.Displacement))
		qt.Assert(t, qt.Equals(b[12], slot(a.Base)))
		qt.Assert(t, qt.Equals(b[13], slot(a.Index)))
		qt.Assert(t, qt.Equals(uint8(1)<<b[14], a.Scale))
	}
}
