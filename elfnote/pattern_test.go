// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/pattern"
)

func TestPatternMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, provider, name string
		want                    bool
	}{
		// Without a colon, any provider.
		{"gc__begin", "hotspot", "gc__begin", true},
		{"gc__begin", "", "gc__begin", true},
		{"gc__begin", "hotspot", "gc__end", false},
		{"gc__begin", "hotspot", "xgc__begin", false},
		{"gc__begin", "hotspot", "gc__begin2", false},
		{"*", "", "", true},

		{"hotspot:gc__begin", "hotspot", "gc__begin", true},
		{"hotspot:gc__begin", "hotspot2", "gc__begin", false},
		{"hotspot:gc__begin", "python", "gc__begin", false},
		{"hotspot:*", "hotspot", "", true},
		{"hot*:gc*", "hotspot", "gc__end", true},
		{"*spot:*end", "hotspot", "gc__end", true},
		{"*spot:*end", "hotspot", "gc__ends", false},
		{"*:*__*__*", "p", "a__b__c", true},
		{"*:*__*__*", "p", "a__b_c", false},
		{"*:a*b*c", "p", "abcbc", true},
		{"*:a*b*c", "p", "acb", false},
		{"*:**a**", "p", "xxaxx", true},
		{"a?c:x?", "abc", "xy", true},
		{"a?c:x?", "ac", "xy", false},
		{"a?c:x?", "abc", "x", false},
		{"*:?", "p", "\xff", true},
		{"*:??", "p", "ü", true}, // bytes, not runes

		{"[ab]:[0-9]", "b", "7", true},
		{"[ab]:[0-9]", "c", "7", false},
		{"[ab]:[0-9]", "b", "a", false},
		{"*:[!0-9]", "p", "a", true},
		{"*:[!0-9]", "p", "5", false},
		{"*:[^0-9]", "p", "5", false},
		{"*:[!0-9]", "p", "", false},
		{"*:[]a]", "p", "]", true},
		{"*:[!]a]", "p", "]", false},
		{"*:[!]a]", "p", "b", true},
		{"*:[a-]", "p", "-", true},
		{"*:[a-]", "p", "b", false},
		{"*:[-a]", "p", "-", true},
		{"*:[a-c-e]", "p", "-", true}, // a to c, a dash, e
		{"*:[a-c-e]", "p", "d", false},
		{`*:[\]]`, "p", "]", true},
		{`*:[\!a]`, "p", "!", true},
		{`*:[a\-c]`, "p", "b", false},
		{"*:[\x80-\xff]", "p", "\xc3", true},
		{"*:[a!]", "p", "!", true},
		{"*:[*?]", "p", "*", true},
		{"*:[*?]", "p", "x", false},
		{"*:a]", "p", "a]", true},

		{`*:\*`, "p", "*", true},
		{`*:\*`, "p", "x", false},
		{`*:\\`, "p", `\`, true},
		{`*:\a`, "p", "a", true},

		// Colons.
		{"ns::type:name", "ns::type", "name", true},
		{"provider:ns::fn", "provider", "ns::fn", true},
		{"provider:ns::fn", "provider", "ns:fn", false},
		{"a::b", "x", "a::b", true}, // a name alone
		{"a::b::c:d::e:f", "a::b::c", "d::e:f", true},
		{"a:::b", "a::", "b", true},
		{"a::::b", "x", "a::::b", true},
		{`a:\:\:b`, "a", "::b", true},
		{`a\:b:c`, "a:b", "c", true},
		{`a\:b`, "x", "a:b", true},
		{"[:]:[:]", ":", ":", true},
		{"a:b:c:d", "a", "b:c:d", true},
		{"a::*:b", "a::x", "b", true},
		{"a:?:", "a", "x:", true},
		{"a\\::b", "a:", "b", true}, // the second colon is single

		{"\"q\":\x1b[[]1m", "\"q\"", "\x1b[1m", true},
	} {
		p, err := ParsePattern(test.pattern)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", test.pattern))
		qt.Assert(t, qt.Equals(p.Match(test.provider, test.name), test.want),
			qt.Commentf("%q for %q, %q", test.pattern, test.provider, test.name))
		qt.Assert(t, qt.Equals(p.String(), test.pattern))
	}
}

func TestPatternsThatAreRefused(t *testing.T) {
	for _, test := range []struct{ pattern, text string }{
		{"", `bad pattern "": empty name \(write \* for any\)`},
		{":", `bad pattern ":": empty provider \(write \* for any\)`},
		{":name", `bad pattern ":name": empty provider .*`},
		{"provider:", `bad pattern "provider:": empty name .*`},
		{"p:{a,b}", `bad pattern "p:{a,b}": braces have no alternatives: give several patterns .*`},
		{"{a,b}:n", `bad pattern "{a,b}:n": braces .*`},
		{`a\`, `bad pattern "a\\\\": nothing follows the backslash at its end`},
		{`a:b\`, `.*nothing follows the backslash at its end`},
		{"[", `.*: class "\[" has no end`},
		{"[!", `.*: class "\[!" has no end`},
		{"[]", `.*: class "\[\]" has no end`},
		{"[!]", `.*: class "\[!\]" has no end`},
		{"a:[b", `.*: class "\[b" has no end`},
		{"a:[b-", `.*: class "\[b-" has no end`},
		{`[\`, `.*: class "\[\\\\" has no end`},
		{`[a-\`, `.*: class "\[a-\\\\" has no end`},
		{"[a:b", `.*: class "\[a:b" has no end`},
		{"[b-a]", `.*: range "b-a" is empty`},
		{strings.Repeat("a", maxPattern+1), "bad pattern: 4097 bytes are more than 4096"},
	} {
		_, err := ParsePattern(test.pattern)
		qt.Assert(t, qt.ErrorIs(err, pattern.ErrBad), qt.Commentf("%q", test.pattern))
		qt.Assert(t, qt.ErrorMatches(err, test.text), qt.Commentf("%q", test.pattern))
	}
}

func TestZeroPatternMatchesNoProbe(t *testing.T) {
	qt.Assert(t, qt.IsFalse(Pattern{}.Match("p", "n")))
}

func TestMatchTakesTimeInProportionToBothLengths(t *testing.T) {
	// A matcher that backtracks over every * would take longer than the world.
	p, err := ParsePattern(strings.Repeat("a*", 60) + "b")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsFalse(p.Match("", strings.Repeat("a", 100_000))))
	qt.Assert(t, qt.IsTrue(p.Match("", strings.Repeat("a", 100_000)+"b")))
}

func TestMatchAllocatesNothing(t *testing.T) {
	p, err := ParsePattern("hot*:*[a-z]__b?gin")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t,
		qt.Equals(testing.AllocsPerRun(100, func() { p.Match("hotspot", "gc__begin") }), 0))
}

// expression makes a regular expression of a glob that consists only of stars,
// question marks and letters, and letters after a backslash.
func expression(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '\\':
			i++
			fallthrough
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// FuzzPattern parses any pattern and matches any names, and compares simple
// globs with regular expressions.
func FuzzPattern(f *testing.F) {
	for _, pattern := range []string{"a", "a*b?c", "p:n", "a::b:c", "[a-z]:[!]]*", `\*:\[`,
		"a*a*a*b", ":::", "[", `\`, "[^\\]-a]", `{a}`, `\{a}`, "[{]"} {
		f.Add(pattern, "provider", "aXbXc")
	}
	f.Add("p", "p", "::n")
	simple := regexp.MustCompile(`\A(?:[a-e*?]|\\[a-e])+\z`)
	letters := regexp.MustCompile(`\A[a-e]*\z`)
	f.Fuzz(func(t *testing.T, pattern, provider, name string) {
		p, err := ParsePattern(pattern)
		if err != nil {
			if p.String() != "" || p.Match(provider, name) && provider+name != "" {
				t.Errorf("%q: an error and a pattern", pattern)
			}
			return
		}
		got := p.Match(provider, name)
		if p.String() != pattern {
			t.Errorf("%q became %q", pattern, p)
		}
		if p.Match(provider, name) != got {
			t.Errorf("%q matches %q sometimes", pattern, name)
		}
		if simple.MatchString(pattern) && letters.MatchString(name) {
			if want := expression(pattern).MatchString(name); got != want {
				t.Errorf("%q matches %q: %v, not %v", pattern, name, got, want)
			}
		}
		if exact := Exact(provider, name); !exact.Match(provider, name) ||
			exact.Match(provider+"x", name) || exact.Match(provider, "x"+name) {
			t.Errorf("%q is not exact", exact)
		} else if parsed, err := ParsePattern(exact.String()); err == nil {
			if !parsed.Match(provider, name) || parsed.Match(provider+"x",
				name) || parsed.Match(provider, "x"+name) {
				t.Errorf("%q means something else when it is parsed", exact)
			}
		} else if provider != "" && name != "" && len(provider)+len(name) < maxPattern/2 {
			t.Error(err)
		}
		// The probe's own names, each byte escaped, match that probe and no
		// other.
		if exact, err := ParsePattern(escapeAll(provider) + ":" + escapeAll(name)); err == nil {
			if !exact.Match(provider, name) || exact.Match(provider+"x",
				name) || exact.Match(provider, "x"+name) {
				t.Errorf("%q is not exact", exact)
			}
		} else if provider != "" && name != "" && len(provider)+len(name) < maxPattern/2 {
			t.Error(err)
		}
	})
}

func escapeAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\%s`, s[i:i+1])
	}
	return b.String()
}

func TestExact(t *testing.T) {
	p := Exact("ns::p", "a*b")
	qt.Assert(t, qt.Equals(p.String(), `ns\:\:p:a\*b`))
	qt.Assert(t, qt.IsTrue(p.Match("ns::p", "a*b")))
	qt.Assert(t, qt.IsFalse(p.Match("ns::p", "aXb")))
	qt.Assert(t, qt.IsTrue(pattern.MatchAny[Pattern](nil, "p", "n")))
	qt.Assert(t, qt.IsTrue(pattern.MatchAny([]Pattern{p, MustParsePattern("p:*")}, "p", "n")))
	qt.Assert(t, qt.IsFalse(pattern.MatchAny([]Pattern{p}, "p", "n")))
}

func BenchmarkMatch(b *testing.B) {
	p, err := ParsePattern("postgresql:query__*")
	qt.Assert(b, qt.IsNil(err))
	b.ReportAllocs()
	for b.Loop() {
		p.Match("postgresql", "query__rewrite__start")
	}
}

const maxPattern = pattern.MaxLength
