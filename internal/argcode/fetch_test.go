// SPDX-License-Identifier: BSD-2-Clause

package argcode_test

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

func TestReadable(t *testing.T) {
	for _, test := range []struct {
		text           string
		onX86, onOther bool
	}{
		{"8@%rax", true, false},
		{"8@(,%rcx,8)", true, false},
		{"8@$5", true, true}, // needs no register
		{"8@%xmm0", false, false},
		{"12@(%rax)", false, false},
	} {
		arg := argspec.Parse(elf.EM_X86_64, test.text)[0]
		qt.Check(t, qt.Equals(argcode.Readable(&arg, elf.EM_X86_64), test.onX86),
			qt.Commentf("%s", test.text))
		qt.Check(t, qt.Equals(argcode.Readable(&arg, elf.EM_S390), test.onOther),
			qt.Commentf("%s", test.text))
	}
}
