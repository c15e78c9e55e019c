// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestProcessorLevels(t *testing.T) {
	const second = "cx16 popcnt pni ssse3 sse4_1 sse4_2"
	const third = second + " avx2 bmi1 bmi2 fma"
	for _, test := range []struct {
		flags string
		want  []string
	}{
		{"", nil},
		{"fpu sse2 cx16 popcnt", nil},
		{second, []string{"x86-64-v2"}},
		{third, []string{"x86-64-v3", "x86-64-v2"}},
		{third + " avx512f avx512bw avx512cd avx512dq", []string{"x86-64-v3", "x86-64-v2"}},
		{third + " avx512f avx512bw avx512cd avx512dq avx512vl",
			[]string{"x86-64-v4", "x86-64-v3", "x86-64-v2"}},
	} {
		info := "processor\t: 0\nflags\t\t: " + test.flags +
			"\nbugs\t\t:\n\nprocessor\t: 1\nflags\t\t: none\n"
		qt.Check(t, qt.DeepEquals(levelsOf(processorFlags(strings.NewReader(info))), test.want))
	}
	qt.Check(t, qt.IsNil(processorFlags(strings.NewReader("Features\t: fp asimd\n"))))
}
