// SPDX-License-Identifier: BSD-2-Clause

package truncate

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestWhole(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "aä": "aä", "a\xc3": "a", "€": "€",
		"a\xe2\x82": "a", "a\xe2": "a", "\xf0\x9f\x98": "", "a\xff": "a\xff", "a\x80": "a\x80",
		"\x82\x82\x82\x82": "\x82\x82\x82\x82"} {
		qt.Check(t, qt.Equals(string(Whole([]byte(in))), want), qt.Commentf("%q", in))
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		in   string
		max  int
		want string
	}{
		{"short", 5, "short"}, {"longer", 5, "lo..."}, {"naïve..", 6, "na..."}, {"naïve..", 7,
			"naï..."}, {"", 5, ""},
	} {
		qt.Check(t, qt.Equals(Text(test.in, test.max), test.want), qt.Commentf("%v", test))
	}
}
