// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestAttachesToMachines(t *testing.T) {
	for _, tc := range []struct {
		kernel, program elf.Machine
		want            bool
	}{
		{elf.EM_X86_64, elf.EM_X86_64, true},
		{elf.EM_X86_64, elf.EM_386, true},
		{elf.EM_X86_64, elf.EM_AARCH64, false},
		{elf.EM_AARCH64, elf.EM_AARCH64, true},
		{elf.EM_AARCH64, elf.EM_ARM, false}, // although it runs them
	} {
		qt.Check(t, qt.Equals(attaches(tc.kernel, tc.program), tc.want),
			qt.Commentf("%s on %s", tc.program, tc.kernel))
	}
}
