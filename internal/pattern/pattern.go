// SPDX-License-Identifier: BSD-2-Clause

// Package pattern parses and matches patterns of probes, as
// elfnote.ParsePattern documents them, for that and for the pairs of package
// defs.
package pattern

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// MaxLength bounds a pattern in bytes: the time to match is proportional to the
// pattern's length times the name's.
const MaxLength = 1 << 12

// ErrBad means that a pattern is malformed.
var ErrBad = errors.New("bad pattern")

// Pattern is a parsed pattern.
type Pattern struct {
	Source         string
	Provider, Name Glob
}

func (p *Pattern) Match(provider, name string) bool {
	return p.Name.Match(name) && p.Provider.Match(provider)
}

type matcher interface {
	Match(provider, name string) bool
}

// MatchAny reports whether a probe matches any of the patterns, which are those
// of package elfnote. Without patterns every probe matches.
func MatchAny[P matcher](patterns []P, provider, name string) bool {
	return len(patterns) == 0 ||
		slices.ContainsFunc(patterns, func(p P) bool { return p.Match(provider, name) })
}

// Parse reads a pattern. The zero Pattern is returned with an error.
func Parse(s string) (Pattern, error) {
	if len(s) > MaxLength {
		return Pattern{}, fmt.Errorf("%w: %d bytes are more than %d", ErrBad, len(s), MaxLength)
	}
	p, err := parse(s)
	if err != nil {
		return Pattern{}, fmt.Errorf("%w %q: %w", ErrBad, s, err)
	}
	return p, nil
}

func parse(s string) (p Pattern, err error) {
	p.Source = s
	first, rest, split, err := parseGlob(s, true)
	if err != nil {
		return p, err
	}
	if p.Provider, p.Name = anyText, first; split {
		if p.Provider = first; p.Provider.isEmpty() {
			return p, errors.New("empty provider (write * for any)")
		}
		if p.Name, _, _, err = parseGlob(rest, false); err != nil {
			return p, err
		}
	}
	if p.Name.isEmpty() {
		return p, errors.New("empty name (write * for any)")
	}
	return p, nil
}

// Glob is a parsed glob: a text, or elements if it has wildcards.
type Glob struct {
	Text     string
	Elements []Element
}

// Element matches one byte, or any number of bytes.
type Element struct {
	Any bool      // it matches any number of bytes
	set [4]uint64 // else it matches a byte whose bit is set
}

// anyText is the glob *.
var anyText = Glob{Elements: []Element{{Any: true}}}

func (g *Glob) isEmpty() bool { return g.Text == "" && g.Elements == nil }

func (e *Element) has(b byte) bool { return e.set[b>>6]>>(b&63)&1 != 0 }

func (e *Element) add(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		e.set[c>>6] |= 1 << (c & 63)
	}
}

// parseGlob reads a glob up to its end or, if maySplit is set, up to a single
// colon, which it consumes.
func parseGlob(s string, maySplit bool) (g Glob, rest string, split bool, err error) {
	var elements []Element
	i := 0
	for ; i < len(s) && !split; i++ {
		var e Element
		switch c := s[i]; c {
		case '*':
			e.Any = true
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
				e.add(c, c)
				elements = append(elements, e)
			}
			e.add(c, c)
		default:
			e.add(c, c)
		}
		elements = append(elements, e)
	}
	return newGlob(elements), s[i:], split, nil
}

func newGlob(elements []Element) Glob {
	text := make([]byte, len(elements))
	for i := range elements {
		var isByte bool
		if text[i], isByte = elements[i].Byte(); !isByte {
			return Glob{Elements: elements}
		}
	}
	return Glob{Text: string(text)}
}

// Byte returns the only byte that an element matches. ok is false for a
// wildcard.
func (e *Element) Byte() (b byte, ok bool) {
	count := 0
	for i, word := range e.set {
		if word != 0 {
			count += bits.OnesCount64(word)
			b = byte(64*i + bits.TrailingZeros64(word))
		}
	}
	return b, !e.Any && count == 1
}

// parseClass reads the class at the start of s and returns its length.
func (e *Element) parseClass(s string) (int, error) {
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
	for first := true; first || i >= len(s) || s[i] != ']'; first = false {
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

func (g *Glob) Match(s string) bool {
	if g.Elements == nil {
		return s == g.Text
	}
	return g.Search(s, nil)
}

// Search is Match for a glob with wildcards. If lengths is not nil, it appends
// the number of bytes that each any-number element matches.
//
// If an element fails, only the last any-number element takes one more byte.
// The earlier ones need not: the elements after them already match as early as
// possible.
func (g *Glob) Search(s string, lengths *[]int) bool {
	elements := g.Elements
	at := 0
	retry, retryAt := -1, 0 // the element after the last any-number one, and where it was tried
	for i := 0; ; {
		switch {
		case i < len(elements) && elements[i].Any:
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
