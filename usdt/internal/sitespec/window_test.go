// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/argspec"
)

func TestWindowHoldsNeighboursInMemory(t *testing.T) {
	const rsp, rbp = 19, 4
	none := []uint8{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, test := range []struct {
		name, arguments string
		base, size      uint8
		displacement    int32
		places          []uint8 // 1 + offset in the window
	}{
		{"ascending", "8@8(%rsp) 8@16(%rsp) 8@24(%rsp)", rsp, 24, 8, []uint8{1, 9, 17}},
		{"descending below zero", "-4@-20(%rbp) -4@-24(%rbp) 4@-28(%rbp)", rbp, 16, -32,
			[]uint8{13, 9, 5}},
		{"with others between", "4@4(%rsp) 8@%rax 4@$5 2@10(%rsp) 8@(%rbx)", rsp, 12, 0,
			[]uint8{5, 0, 0, 11, 0}},
		{"the larger of two", "8@(%rsp) 8@(%rbp) 8@8(%rsp) 8@8(%rbp) 8@16(%rbp)", rbp, 24, 0,
			[]uint8{0, 1, 0, 9, 17}},
		{"as many as fit", "8@(%rsp) 8@88(%rsp) 8@96(%rsp) 8@104(%rsp)", rsp, 24, 88,
			[]uint8{0, 1, 9, 17}},
		{"not across words", "8@4(%rsp) 4@(%rsp) 8@8(%rsp)", rsp, 16, 0, []uint8{0, 1, 9}},
		{"the same twice", "8@8(%rsp) 1@8(%rsp)", rsp, 8, 8, []uint8{1, 1}},
		{"all words", strings.TrimSpace(strings.Repeat("8@-96(%rsp) ",
			6) + strings.Repeat("8@-8(%rsp) ", 6)), rsp, 96, -96,
			[]uint8{1, 1, 1, 1, 1, 1, 89, 89, 89, 89, 89, 89}},

		{"none for one", "8@8(%rsp) 8@%rax", 0, 0, 0, none},
		{"none too far apart", "8@(%rsp) 8@96(%rsp)", 0, 0, 0, none},
		{"none with an index", "8@(%rsp,%rax,8) 8@8(%rsp,%rax,8)", 0, 0, 0, none},
		{"none where addresses wrap", "4@(%esp) 4@4(%esp)", 0, 0, 0, none},
		{"none with displacements of 64 bits",
			"8@-9223372036854775808(%rsp) 8@9223372036854775800(%rsp)", 0, 0, 0, none},
		{"none for structures", "16@(%rsp) 16@16(%rsp)", 0, 0, 0, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := argspec.Parse(elf.EM_X86_64, test.arguments)
			for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
				spec := Encode(elf.EM_X86_64, order, 0, args)
				qt.Check(t, qt.Equals(spec[202], test.base))
				qt.Check(t, qt.Equals(spec[203], test.size))
				qt.Check(t, qt.Equals(int32(order.Uint32(spec[204:])), test.displacement))
				for i, place := range test.places {
					qt.Check(t, qt.Equals(spec[16*i+15], place), qt.Commentf("argument %d", i))
				}
			}
		})
	}
}
