// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"strings"

	"github.com/gousdt/gousdt/internal/pattern"
)

// Pattern selects probes by their provider and name: all that match globs, see
// [ParsePattern], or the one with exact names, see [Exact].
//
// Functions that take several patterns select the probes that match any of
// them, and all probes if there is no pattern.
type Pattern struct{ parsed pattern.Pattern }

// Exact returns the pattern that matches only the probe with this provider and
// name, which may have any bytes.
func Exact(provider, name string) Pattern {
	separator := ":"
	if strings.HasPrefix(name, ":") {
		separator = `:\` // "::" would not split
	}
	return Pattern{pattern.Pattern{
		Source:   escape(provider, `*?[{\:`) + separator + escape(name, `*?[{\`),
		Provider: pattern.Glob{Text: provider},
		Name:     pattern.Glob{Text: name},
	}}
}

// escape puts a backslash before the special bytes in s.
func escape(s, special string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(special, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// MustParsePattern is [ParsePattern] for patterns that are part of a program's
// text. It panics if the pattern is malformed.
func MustParsePattern(s string) Pattern {
	p, err := ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

// ParsePattern reads a pattern of the form PROVIDER:NAME, or NAME for any
// provider. Each side is a glob that must match the whole of it, byte by byte:
//
//	?        any one byte
//	*        any bytes, also none
//	[a-z_]   one byte of the class; ] stands for itself as the first
//	[!a-z]   one byte not of the class; also [^a-z]
//	\x       the byte x, whatever x is
//
// A shell's braces, {start,done}, are an error: give several patterns instead.
// A brace in a name is \{.
//
// The sides are split at the first single colon. Colons are counted in pairs
// from the left, and a pair (as in the C++ name ns::f) does not split. Nor does
// a colon in a class or after a backslash.
//
// The error says what is wrong in the pattern.
func ParsePattern(s string) (Pattern, error) {
	p, err := pattern.Parse(s)
	return Pattern{p}, err
}

// String returns the pattern as it was given to ParsePattern. For a pattern
// made by Exact it returns PROVIDER:NAME with a backslash before each byte that
// ParsePattern would not take literally.
func (p Pattern) String() string { return p.parsed.Source }

// Match reports whether the pattern matches a probe. The zero Pattern matches
// only the probe without provider and name. Match takes time in proportion to
// the length of the pattern times that of the names, and allocates nothing.
func (p Pattern) Match(provider, name string) bool {
	return p.parsed.Match(provider, name)
}
