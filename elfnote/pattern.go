// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"strings"
)

// Pattern selects probes by their provider and name: all that match a glob, see
// [ParsePattern], or the one with exactly these names, see [Exact].
//
// Functions that take several patterns want the probes that match any of them,
// and all probes if there is no pattern.
type Pattern struct {
	source         string
	provider, name glob

	// exact is set by Exact: the globs are empty, and these are the names.
	exact                    bool
	exactProvider, exactName string
}

// Exact returns the pattern that matches the probe with this provider and this
// name, whatever bytes are in them, and no other probe.
func Exact(provider, name string) Pattern {
	return Pattern{
		source:        escape(provider, `*?[{\:`) + ":" + escape(name, `*?[{\`),
		exact:         true,
		exactProvider: provider,
		exactName:     name,
	}
}

// escape puts a backslash before the bytes of s that mean something in a glob.
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
// Braces as a shell has them, {start,done}, are an error: functions take
// several patterns. A brace in a name is \{.
//
// The sides are split at the first single colon. Colons are counted in pairs
// from the left, and a pair (as in the C++ name ns::f) does not split, nor does
// a colon in a class or after a backslash.
//
// The error says where the pattern is wrong.
func ParsePattern(s string) (Pattern, error) {
	if len(s) > maxPattern {
		return Pattern{}, fmt.Errorf("%w: %d bytes are more than %d", errPattern,
			len(s), maxPattern)
	}
	p := Pattern{source: s}
	first, rest, split, err := parseGlob(s, true)
	if err != nil {
		return Pattern{}, fmt.Errorf("%w %q: %w", errPattern, s, err)
	}
	if !split {
		p.provider, p.name = glob{{any: true}}, first
	} else {
		second, _, _, err := parseGlob(rest, false)
		if err != nil {
			return Pattern{}, fmt.Errorf("%w %q: %w", errPattern, s, err)
		}
		p.provider, p.name = first, second
		if len(p.provider) == 0 {
			return Pattern{}, fmt.Errorf("%w %q: empty provider (write * for any)", errPattern, s)
		}
	}
	if len(p.name) == 0 {
		return Pattern{}, fmt.Errorf("%w %q: empty name (write * for any)", errPattern, s)
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
	if p.exact {
		return name == p.exactName && provider == p.exactProvider
	}
	return p.name.match(name) && p.provider.match(provider)
}

// glob is a parsed glob: each element stands for one byte, or for any number.
type glob []element

type element struct {
	any bool      // any number of bytes
	set [4]uint64 // else a byte whose bit is set
}

func (e *element) has(b byte) bool { return e.set[b>>6]>>(b&63)&1 != 0 }

func (e *element) add(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		e.set[c>>6] |= 1 << (c & 63)
	}
}

// parseGlob reads a glob up to its end or, if split is allowed, up to a single
// colon, which it consumes.
func parseGlob(s string, maySplit bool) (g glob, rest string, split bool, err error) {
	for i := 0; i < len(s); i++ {
		var e element
		switch c := s[i]; c {
		case '*':
			e.any = true
		case '?':
			e.add(0, 255)
		case '\\':
			i++
			if i == len(s) {
				return nil, "", false, errors.New("nothing follows the backslash at its end")
			}
			e.add(s[i], s[i])
		case '[':
			n, err := e.parseClass(s[i:])
			if err != nil {
				return nil, "", false, err
			}
			i += n - 1
		case '{':
			return nil, "", false, errors.New(`braces have no alternatives: give several patterns (or write \{ for a brace)`)
		case ':':
			if maySplit {
				if i+1 == len(s) || s[i+1] != ':' {
					return g, s[i+1:], true, nil
				}
				e.add(c, c)
				g = append(g, e)
				i++
				e = element{}
			}
			e.add(c, c)
		default:
			e.add(c, c)
		}
		g = append(g, e)
	}
	return g, "", false, nil
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
//
// Where an element fails, only the last any-number element takes one more byte:
// the earlier ones need not, for what follows them has already been found as
// early as possible.
func (g glob) match(s string) bool {
	at := 0
	retry, retryAt := -1, 0 // the element after the last any-number one, and where it was tried
	for i := 0; ; {
		switch {
		case i < len(g) && g[i].any:
			i++
			retry, retryAt = i, at
			if i == len(g) {
				return true
			}
			continue
		case i < len(g) && at < len(s) && g[i].has(s[at]):
			i++
			at++
			continue
		case i == len(g) && at == len(s):
			return true
		}
		if retry < 0 || retryAt >= len(s) {
			return false
		}
		retryAt++
		i, at = retry, retryAt
	}
}
