// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"cmp"
	"strings"
)

// CompareVersions orders two versions of a package as Debian's policy manual
// says (section 5.6.12): negative where a is older than b.
func CompareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	return cmp.Or(
		comparePart(epochA, epochB),
		comparePart(upstreamA, upstreamB),
		comparePart(revisionA, revisionB),
	)
}

// splitVersion takes [EPOCH:]UPSTREAM[-REVISION] apart. What is missing
// counts as 0.
func splitVersion(v string) (epoch, upstream, revision string) {
	epoch, upstream, ok := strings.Cut(v, ":")
	if !ok {
		epoch, upstream = "0", v
	}
	revision = "0"
	if i := strings.LastIndexByte(upstream, '-'); i >= 0 {
		upstream, revision = upstream[:i], upstream[i+1:]
	}
	return epoch, upstream, revision
}

// comparePart compares, in turn, what is no digit and what is a number.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		var wordA, wordB, numberA, numberB string
		wordA, a = span(a, false)
		wordB, b = span(b, false)
		if c := compareWords(wordA, wordB); c != 0 {
			return c
		}
		numberA, a = span(a, true)
		numberB, b = span(b, true)
		// Numbers have no limit: without leading zeros, the longer is greater.
		numberA = strings.TrimLeft(numberA, "0")
		numberB = strings.TrimLeft(numberB, "0")
		if c := cmp.Or(cmp.Compare(len(numberA), len(numberB)),
			strings.Compare(numberA, numberB)); c != 0 {
			return c
		}
	}
	return 0
}

func span(s string, digits bool) (head, tail string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9') == digits {
		i++
	}
	return s[:i], s[i:]
}

// compareWords orders letters before all other characters, and a tilde before
// everything, even the end of the word.
func compareWords(a, b string) int {
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(weight(a, i), weight(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case s[i] >= 'a' && s[i] <= 'z', s[i] >= 'A' && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}
