// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// realX86Strings returns the x86-64 strings of real programs.
func realX86Strings(b *testing.B) []string {
	data, err := os.ReadFile("testdata/real.txt")
	qt.Assert(b, qt.IsNil(err))
	_, rest, ok := strings.Cut(string(data), "machine EM_X86_64\nclass 64\n")
	qt.Assert(b, qt.IsTrue(ok))
	section, _, _ := strings.Cut(rest, "\n\n")
	return strings.Split(section, "\n")
}

// BenchmarkDecode decodes one string of a real program, three arguments on
// average, into memory of its own.
func BenchmarkDecode(b *testing.B) {
	texts := realX86Strings(b)
	decoder := NewDecoder(&x86)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		decoder.Decode(0x1000, texts[i%len(texts)])
	}
}

// BenchmarkAppendDecode does the same into memory that is used again.
func BenchmarkAppendDecode(b *testing.B) {
	texts := realX86Strings(b)
	decoder := NewDecoder(&x86)
	var args []Arg
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		args = decoder.AppendDecode(args[:0], 0x1000, texts[i%len(texts)])
	}
}

// BenchmarkEncode encodes six arguments.
func BenchmarkEncode(b *testing.B) {
	args := Parse(elf.EM_X86_64, "8@%rbx 8@8(%rbx) 2@%ax 1@%sil 8@%r13 -4@48(%rsp)")
	b.ReportAllocs()
	for b.Loop() {
		spec := Encode(elf.EM_X86_64, binary.LittleEndian, 1, args)
		if spec[offsetCount] != 6 {
			b.Fatal("wrong count")
		}
	}
}
