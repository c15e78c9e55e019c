// SPDX-License-Identifier: BSD-2-Clause

package terminal

import "unicode/utf8"

// Cut returns a text of at most max bytes: a longer one ends in "...".
func Cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max - len(dots)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}

const dots = "..."
