// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"
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
			if len(name) > 8 && name != "_GLOBAL_OFFSET_TABLE_" {
				return elf.Symbol{}, errNoSuchSymbol
			}
			kinds := []elf.SymType{elf.STT_OBJECT, elf.STT_FUNC, elf.STT_TLS}
			return newSymbol(kinds[len(name)%len(kinds)], 0x404000+uint64(len(name))), nil
		},
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
		machine := max(slices.Index(fuzzMachines, v.File.Header().Machine), 0)
		f.Add(uint8(machine), v.File.Header().Class == elf.ELFCLASS32,
			v.File.Header().Type == elf.ET_EXEC, v.Text)
	}
	eachRealString(f, func(machine elf.Machine, class elf.Class, text string) {
		f.Add(uint8(slices.Index(fuzzMachines, machine)), class == elf.ELFCLASS32, false, text)
	})
	for _, text := range []string{
		"4@i%ra+1r", "8@8(%rbp", "-", "@", "8@", "\x00", "8@\xff", "(((((((((", "8@[[[[", "8@%",
		"8@$-", "8@\"",
		"8@" + strings.Repeat("(", 1000), "8@" + strings.Repeat("-", 1000), strings.Repeat("1@",
			1000), strings.Repeat("\" ", 1000),
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
			if a.String() == "" {
				t.Fatal("no text")
			}
			checkEncoding(t, file.machine, a)
			if i == maxListed {
				break
			}
			alone := file.decode(fuzzLocation, a.Raw)
			// Others show whether a number alone is memory or a constant.
			isUnclear := len(alone) == 1 && errors.Is(alone[0].Err, errUnclear)
			if len(alone) != 1 || !isUnclear && !sameArg(alone[0], a) {
				t.Fatalf("%q alone is %v, in %q it is %v", a.Raw, alone, text, a)
			}
		}
	})
}

// checkEncoding checks that a program finds all words that it is sent to, on
// the kernel of the same machine and on x86-64's, which runs i386.
func checkEncoding(t *testing.T, machine elf.Machine, a Arg) {
	for _, kernel := range []elf.Machine{machine, elf.EM_X86_64} {
		e, err := a.Encode(kernel)
		none := Encoding{Register: -1, Index: -1}
		if (err != nil || a.Kind == Unavailable) && (err == nil || e != none) {
			t.Fatalf("%q: %+v, %v", a.Raw, e, err)
		}
		for _, offset := range []int16{e.Register, e.Index} {
			if offset != -1 && (offset < 0 || offset%4 != 0 || offset >= 8*64) {
				t.Fatalf("%q: offset %d", a.Raw, offset)
			}
		}
		if e.Scale > 7 || e.Shift != 0 && e.Shift != 8 {
			t.Fatalf("%q: %+v", a.Raw, e)
		}
	}
}

// sameArg compares all but the identity of the errors.
func sameArg(a, b Arg) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	a.Err, b.Err = nil, nil
	return a == b
}
