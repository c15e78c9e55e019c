// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestFrameString(t *testing.T) {
	for _, test := range []struct {
		frame Frame
		want  string
	}{
		{Frame{Address: 0x40111b, Function: "main", Offset: 0x1b, File: "/bin/a",
			FileOffset: 0x111b}, "main+0x1b (/bin/a)"},
		{Frame{Address: 0x40111b, Function: "main", Offset: 0}, "main+0x0"},
		{Frame{Address: 0x7f0c10, File: "/bin/a", FileOffset: 0x10}, "0x7f0c10 (/bin/a+0x10)"},
		{Frame{Address: 0x7f0c10}, "0x7f0c10"},
	} {
		qt.Check(t, qt.Equals(test.frame.String(), test.want))
	}
}
