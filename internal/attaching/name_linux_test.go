// SPDX-License-Identifier: BSD-2-Clause

package attaching

import (
	"math"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestName(t *testing.T) {
	for _, o := range []owner{
		{pid: 1, startTime: 0, namespace: 4026531836},
		{pid: 1<<22 - 1, startTime: 1 << 50, namespace: math.MaxUint32},
	} {
		name := o.name(math.MaxUint32)
		qt.Check(t, qt.IsTrue(len(name) < 64), qt.Commentf("the kernel's limit: %s", name))
		parsed, ok := parseName(name)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s", name))
		qt.Check(t, qt.Equals(parsed, o))
	}
}

func TestNameOfOthers(t *testing.T) {
	for _, name := range []string{
		"", "p", "enable", "p_1_2_3", "p1_2_3", "p1_2_3_4_5", "1_2_3_4", "p0_2_3_4", "p-1_2_3_4",
		"p01_2_3_4",
		"p1_2_3_4x", "p1_2_3_99999999999999999999", "p99999999999_2_3_4",
	} {
		_, ok := parseName(name)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s", name))
	}
}
