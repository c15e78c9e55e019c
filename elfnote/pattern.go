// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Pattern selects probes by their provider and name: all that match globs, see
// [ParsePattern], or the one with exact names, see [Exact].
//
// Functions that take several patterns select the probes that match any of
// them, and all probes if there is no pattern.
type Pattern struct {
	source         string
	provider, name glob
}

// Exact returns the pattern that matches only the probe with this provider and
// name, which may have any bytes.
func Exact(provider, name string) Pattern {
	separator := ":"
	if strings.HasPrefix(name, ":") {
		separator = `:\` // "::" would not split
	}
	return Pattern{
		source:   escape(provider, `*?[{\:`) + separator + escape(name, `*?[{\`),
		provider: glob{text: provider},
		name:     glob{text: name},
	}
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

// MatchAny reports whether a probe matches any of the patterns. Without
// patterns every probe matches.
func MatchAny(patterns []Pattern, provider, name string) bool {
	for i := range patterns {
		if patterns[i].Match(provider, name) {
			return true
		}
	}
	return len(patterns) == 0
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
	if len(s) > maxPattern {
		return Pattern{}, fmt.Errorf("%w: %d bytes are more than %d", errPattern,
			len(s), maxPattern)
	}
	p, err := parsePattern(s)
	if err != nil {
		return Pattern{}, fmt.Errorf("%w %q: %w", errPattern, s, err)
	}
	return p, nil
}

func parsePattern(s string) (p Pattern, err error) {
	p.source = s
	first, rest, split, err := parseGlob(s, true)
	if err != nil {
		return p, err
	}
	if p.provider, p.name = anyText, first; split {
		if p.provider = first; p.provider.isEmpty() {
			return p, errors.New("empty provider (write * for any)")
		}
		if p.name, _, _, err = parseGlob(rest, false); err != nil {
			return p, err
		}
	}
	if p.name.isEmpty() {
		return p, errors.New("empty name (write * for any)")
	}
	return p, nil
}

// String returns the pattern as it was given to ParsePattern. For a pattern
// made by Exact it returns PROVIDER:NAME with a backslash before each byte that
// ParsePattern would not take literally.
func (p Pattern) String() string { return p.source }

// Match reports whether the pattern matches a probe. The zero Pattern matches
// only the probe without provider and name. Match takes time in proportion to
// the length of the pattern times that of the names, and allocates nothing.
func (p Pattern) Match(provider, name string) bool {
	return p.name.match(name) && p.provider.match(provider)
}

// glob is a parsed glob: a text, or elements if it has wildcards.
type glob struct {
	text     string
	elements []element
}

// element matches one byte, or any number of bytes.
type element struct {
	any bool      // it matches any number of bytes
	set [4]uint64 // else it matches a byte whose bit is set
}

// anyText is the glob *.
var anyText = glob{elements: []element{{any: true}}}

func (g *glob) isEmpty() bool { return g.text == "" && g.elements == nil }

// isAny reports whether the glob is * alone.
func (g *glob) isAny() bool { return len(g.elements) == 1 && g.elements[0].any }

func (e *element) has(b byte) bool { return e.set[b>>6]>>(b&63)&1 != 0 }

func (e *element) add(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		e.set[c>>6] |= 1 << (c & 63)
	}
}

// parseGlob reads a glob up to its end or, if maySplit is set, up to a single
// colon, which it consumes.
func parseGlob(s string, maySplit bool) (g glob, rest string, split bool, err error) {
	var elements []element
	i := 0
	for ; i < len(s) && !split; i++ {
		var e element
		switch c := s[i]; c {
		case '*':
			e.any = true
		case '?':
			e.add(0, 255)
		case '\\':
			i++
			if i == len(s) {
				return g, "", false, errors.New("nothing follows the backslash at its end")
			}
			e.add(s[i], s[i])
		case '[':
			n, err := e.parseClass(s[i:])
			if err != nil {
				return g, "", false, err
			}
			i += n - 1
		case '{':
			return g, "", false, errors.New(`braces have no alternatives: give several patterns (or write \{ for a brace)`)
		case ':':
			if maySplit {
				if split = i+1 == len(s) || s[i+1] != ':'; split {
					continue
				}
				i++
				elements = append(elements, byteElement(c))
			}
			e.add(c, c)
		default:
			e.add(c, c)
		}
		elements = append(elements, e)
	}
	return newGlob(elements), s[i:], split, nil
}

func newGlob(elements []element) glob {
	text := make([]byte, len(elements))
	for i := range elements {
		var isByte bool
		if text[i], isByte = elements[i].byte(); !isByte {
			return glob{elements: elements}
		}
	}
	return glob{text: string(text)}
}

func byteElement(b byte) (e element) {
	e.add(b, b)
	return e
}

// byte returns the only byte that an element matches. ok is false for a
// wildcard.
func (e *element) byte() (b byte, ok bool) {
	count := 0
	for i, word := range e.set {
		if word != 0 {
			count += bits.OnesCount64(word)
			b = byte(64*i + bits.TrailingZeros64(word))
		}
	}
	return b, !e.any && count == 1
}

// parseClass reads the class at the start of s and returns its length.
func (e *element) parseClass(s string) (int, error) {
	i := 1
	negated := i < len(s) && (s[i] == '!' || s[i] == '^')
	if negated {
		i++
	}
	// next reads one byte of the class, which a backslash may precede.
	next := func() (byte, bool) {
		if i < len(s) && s[i] == '\\' {
			i++
		}
		if i >= len(s) {
			return 0, false
		}
		i++
		return s[i-1], true
	}
	for first := true; ; first = false {
		if i < len(s) && s[i] == ']' && !first {
			break
		}
		low, ok := next()
		high := low
		if ok && i+1 < len(s) && s[i] == '-' && s[i+1] != ']' {
			i++
			high, ok = next()
		}
		if !ok {
			return 0, fmt.Errorf("class %q has no end", s)
		}
		if low > high {
			return 0, fmt.Errorf("range %q is empty", string([]byte{low, '-', high}))
		}
		e.add(low, high)
	}
	if negated {
		for j := range e.set {
			e.set[j] = ^e.set[j]
		}
	}
	return i + 1, nil
}

// match reports whether the glob matches the whole of s.
func (g *glob) match(s string) bool {
	if g.elements == nil {
		return s == g.text
	}
	return g.search(s, nil)
}

// search is match for a glob with wildcards. If lengths is not nil, it appends
// the number of bytes that each any-number element matches.
//
// If an element fails, only the last any-number element takes one more byte.
// The earlier ones need not: the elements after them already match as early as
// possible.
func (g *glob) search(s string, lengths *[]int) bool {
	elements := g.elements
	at := 0
	retry, retryAt := -1, 0 // the element after the last any-number one, and where it was tried
	for i := 0; ; {
		switch {
		case i < len(elements) && elements[i].any:
			i++
			retry, retryAt = i, at
			if lengths != nil {
				*lengths = append(*lengths, 0)
			} else if i == len(elements) {
				return true
			}
			continue
		case i < len(elements) && at < len(s) && elements[i].has(s[at]):
			i++
			at++
			continue
		case i == len(elements) && at == len(s):
			return true
		}
		if retry < 0 || retryAt >= len(s) {
			return false
		}
		if lengths != nil {
			(*lengths)[len(*lengths)-1]++
		}
		retryAt++
		i, at = retry, retryAt
	}
}
