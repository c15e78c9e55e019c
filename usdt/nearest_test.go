// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"query__start", "query__start", 0},
		{"query_start", "query__start", 1},
		{"kitten", "sitting", 3},
	} {
		qt.Check(t, qt.Equals(editDistance(tc.a, tc.b), tc.want), qt.Commentf("%q %q", tc.a, tc.b))
	}
}
