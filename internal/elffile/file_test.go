// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		in   string
		max  int
		want string
	}{
		{"short", 5, "short"}, {"longer", 5, "lo..."}, {"naïve..", 6, "na..."}, {"naïve..", 7,
			"naï..."}, {"", 5, ""},
	} {
		qt.Check(t, qt.Equals(Shorten(test.in, test.max), test.want), qt.Commentf("%v", test))
	}
}
