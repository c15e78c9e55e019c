// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func FuzzPerfMap(f *testing.F) {
	f.Add("10000 100 a\n10080 8 b\n", uint64(0x10081))
	f.Add("ffffffffffffffff 1 a", uint64(1<<64-1))
	f.Add("0 ffffffffffffffff a\n1 1 b\n", uint64(0))
	f.Fuzz(func(t *testing.T, text string, address uint64) {
		m := parsePerfMap(strings.NewReader(text))
		name, start, ok := m.find(address)
		if ok {
			qt.Check(t, qt.IsTrue(start <= address && name != ""))
		}
	})
}
