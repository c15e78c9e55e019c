// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
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
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Decode(nil, &x86, 0x1000, texts[i%len(texts)])
	}
}

// BenchmarkDecodeIntoSameMemory does the same into memory that is used again.
func BenchmarkDecodeIntoSameMemory(b *testing.B) {
	texts := realX86Strings(b)
	var args []Arg
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		args = Decode(args[:0], &x86, 0x1000, texts[i%len(texts)])
	}
}
