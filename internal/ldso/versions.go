// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"slices"
	"strings"
)

// isVersionOf reports whether name is library, which ends in ".so", followed by
// a version in numbers: "libc.so.6" is one of "libc.so", "libc.so.old" is not.
func isVersionOf(library, name string) bool {
	version, ok := strings.CutPrefix(name, library+".")
	if !ok || version == "" {
		return false
	}
	for part := range strings.SplitSeq(version, ".") {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return false
		}
	}
	return true
}

// newestFirst returns the names that are versions of library, sorted.
func newestFirst(library string, names []string) []string {
	var versions []string
	for _, name := range names {
		if isVersionOf(library, name) {
			versions = append(versions, name)
		}
	}
	slices.SortFunc(versions, func(a, b string) int {
		return compareVersions(b[len(library)+1:], a[len(library)+1:])
	})
	return versions
}

// compareVersions compares dotted numbers of any length: 1.10 is newer than
// 1.9, and 6 older than 6.0.30. Equal ones differ at most in leading zeros.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if order := strings.Compare(x, y); order != 0 {
			return order
		}
	}
	return len(a) - len(b)
}
