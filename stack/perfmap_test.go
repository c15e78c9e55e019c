// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func FuzzPerfMap(f *testing.F) {
	f.Add("10000 100 a\n10080 8 b\n", uint64(0x10081))
	f.Add("ffffffffffffffff 1 a\n", uint64(1<<64-1))
	f.Add("0 ffffffffffffffff a\n1 1 b\n", uint64(0))
	f.Fuzz(func(t *testing.T, text string, address uint64) {
		m := parsePerfMap(strings.NewReader(text), nil)
		name, start, ok := m.find(address)
		if ok {
			qt.Check(t, qt.IsTrue(start <= address && name != ""))
		}
	})
}

// A process writes pieces of lines: half a name is not the name.
func TestPerfMapThatIsBeingWritten(t *testing.T) {
	m := parsePerfMap(strings.NewReader("1000 10 whole\n2000 10 half_of_a_na"), nil)
	name, _, ok := m.find(0x1000)
	qt.Check(t, qt.IsTrue(ok && name == "whole"))
	_, _, ok = m.find(0x2000)
	qt.Check(t, qt.IsFalse(ok))
}
