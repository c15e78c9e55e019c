// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/pattern"
)

// listingOf returns a listing of probes, "provider:name ...".
func listingOf(probes string) *Listing {
	l := &Listing{}
	for _, probe := range strings.Fields(probes) {
		provider, name, _ := strings.Cut(probe, ":")
		l.Probes = append(l.Probes, FileProbe{
			Provider: provider, Name: name, Sites: make([]elfnote.Site, 1)})
	}
	return l
}

func pairTexts(pairs []Pair) string {
	var texts []string
	for _, p := range pairs {
		text := p.Start.Provider + ":" + p.Start.Name + ".." + p.Done.Provider + ":" + p.Done.Name
		for _, failed := range p.Failed {
			text += "|" + failed.Provider + ":" + failed.Name
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func TestPairs(t *testing.T) {
	const postgres = "pg:query__parse__done pg:query__done pg:query__start pg:query__parse__start pg:sort__start pg:sort__done pg:lone__start " +
		"pg:transaction__start pg:transaction__commit pg:transaction__abort my:query__start my:query__done"
	for _, test := range []struct{ pattern, probes, want string }{
		// What the wildcards match is the same at both ends.
		{"pg:*__start..pg:*__done", postgres,
			"pg:query__start..pg:query__done pg:query__parse__start..pg:query__parse__done pg:sort__start..pg:sort__done"},
		{"*__start..*__done", "a:x__start b:x__done b:x__start", "b:x__start..b:x__done"},
		{"[pm]?:query__start..[pm]?:query__done", postgres,
			"pg:query__start..pg:query__done my:query__start..my:query__done"},
		{"a*:s..b*:d", "a1:s a2:s b2:d b1:d", "a1:s..b1:d a2:s..b2:d"},
		{"p:*x*y..p:*x*z", "p:axbxcy p:axbxcz p:axbxdz", "p:axbxcy..p:axbxcz"},
		{"p:[ab]s..p:[ab]d", "p:as p:bd p:ad", "p:as..p:ad"},
		{"p:a?..p:b*", "p:a1 p:b12 p:b1", "p:a1..p:b1"},
		{"p:*..p:*", "p:x p:y", "p:x..p:x p:y..p:y"},
		// A provider that is not given is that of the other side.
		{"query__start..my:query__done", postgres, "my:query__start..my:query__done"},
		{"pg:query__start..query__done", postgres, "pg:query__start..pg:query__done"},
		// A start can have several ends.
		{"pg:transaction__start..pg:transaction__[ca]*", postgres,
			"pg:transaction__start..pg:transaction__commit pg:transaction__start..pg:transaction__abort"},
		{"p:t__start..p:t__*", "p:t__start p:t__ok p:t__failed",
			"p:t__start..p:t__ok p:t__start..p:t__failed"},
		// The other end may be in another file.
		{"a:s..b:d", "a:s", "a:s..b:d"},
		{"a:s..b:d", "b:d", "a:s..b:d"},
		{"a:s..b:d", "c:s", ""},
		{"s..d", "a:s", ""},
		{"x:s..x:s", "x:s", "x:s..x:s"},

		// What fails ends otherwise.
		{"pg:query__start..pg:query__done|transaction__abort", postgres + " my:transaction__abort",
			"pg:query__start..pg:query__done|pg:transaction__abort"},
		{"pg:query|transaction__abort|my:query__start", postgres,
			"pg:query__start..pg:query__done|pg:transaction__abort|my:query__start"},
		{"query|transaction__*|query__done", postgres,
			"pg:query__start..pg:query__done|pg:transaction__start|pg:transaction__commit|pg:transaction__abort my:query__start..my:query__done"},
		{"a:s..b:d|x", "a:s a:x", "a:s..b:d|a:x"},
		{"a:s..b:d|b:x", "b:d b:x a:x", "a:s..b:d|b:x"},
		{"a:s..b:d|x", "a:x", ""},
		{`p:a\|b__start..p:d`, "p:a|b__start p:d", "p:a|b__start..p:d"},

		// Usual names.
		{"pg:query", postgres, "pg:query__start..pg:query__done"},
		{"query", postgres, "pg:query__start..pg:query__done my:query__start..my:query__done"},
		{"pg:query*", postgres,
			"pg:query__start..pg:query__done pg:query__parse__start..pg:query__parse__done"},
		{"pg:transaction", postgres, ""},
		{"*",
			"r:a_start r:a_complete r:b-begin r:b-end r:entry r:return r:c__enter r:c__leave r:d__startup r:d__shutdown r:restart r:redone",
			"r:a_start..r:a_complete r:b-begin..r:b-end r:entry..r:return r:c__enter..r:c__leave r:d__startup..r:d__shutdown"},
		{"*", "p:x__begin p:x__commit p:y_alloc p:y_free p:z-acquire p:z-release p:a__submit p:a__complete",
			"p:x__begin..p:x__commit p:y_alloc..p:y_free p:z-acquire..p:z-release p:a__submit..p:a__complete"},
		{"*", "p:x__end p:x__start p:x__begin", "p:x__begin..p:x__end"},
		{"*", "p:x__end p:x__start p:x__begin p:x__stop",
			"p:x__start..p:x__stop p:x__begin..p:x__end"},
		{"*", "p:f__entry q:f__return", ""},
	} {
		p, err := ParsePairPattern(test.pattern)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", test.pattern))
		qt.Check(t, qt.Equals(p.String(), test.pattern))
		l := listingOf(test.probes)
		pairs := pairsIn(l, p)
		qt.Check(t, qt.Equals(pairTexts(pairs), test.want), qt.Commentf("%s", test.pattern))
		for _, pair := range pairs {
			for _, end := range append([]FileProbe{pair.Start, pair.Done}, pair.Failed...) {
				qt.Check(t, qt.IsTrue(pattern.MatchAny(p.Patterns(), end.Provider, end.Name)),
					qt.Commentf("%s", test.pattern))
			}
			// Its text means this pair.
			again, err := ParsePairPattern(pair.String())
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", pair))
			if len(pair.Start.Sites) > 0 && len(pair.Done.Sites) > 0 && pair.Start.Name != "s" {
				pair.Failed = nil // which is not in the text
				qt.Check(t, qt.StringContains(pairTexts(pairsIn(l, again)), pairTexts([]Pair{pair})),
					qt.Commentf("%s", pair))
			}
		}
	}
}

func TestPairsOfSeveralPatterns(t *testing.T) {
	l := listingOf("p:a__start p:a__done p:b__start p:b__done")
	pairs := pairsIn(l, MustParsePairPattern("p:b"), MustParsePairPattern("p:a__start..p:a__done"),
		MustParsePairPattern("p:*"))
	qt.Assert(t, qt.Equals(pairTexts(pairs), "p:a__start..p:a__done p:b__start..p:b__done"))
	qt.Assert(t, qt.HasLen(pairsIn(l), 0))
	qt.Assert(t, qt.HasLen(pairsIn(l, PairPattern{}), 0))
}

func TestTextOfAPair(t *testing.T) {
	for want, names := range map[string][4]string{
		"p:a":                          {"p", "a__start", "p", "a__done"},
		`p:a\*`:                        {"p", "a*__entry", "p", "a*__return"},
		"p:start..p:done":              {"p", "start", "p", "done"},
		"p:a__start..q:a__done":        {"p", "a__start", "q", "a__done"},
		`p:a\.\.b\...p:c`:              {"p", "a..b.", "p", "c"},
		`p\:\:x:\?..p\:\:x:\\`:         {"p::x", "?", "p::x", `\`},
		"p:a__start..p:a__interrupted": {"p", "a__start", "p", "a__interrupted"},
		`p:a\|b`:                       {"p", "a|b__start", "p", "a|b__done"},
		`p:a.b\|c..p:d`:                {"p", "a.b|c", "p", "d"},
	} {
		pair := Pair{Start: FileProbe{Provider: names[0], Name: names[1]},
			Done: FileProbe{Provider: names[2], Name: names[3]}}
		qt.Check(t, qt.Equals(pair.String(), want))
		l := &Listing{Probes: []FileProbe{pair.Start, pair.Done}}
		qt.Check(t, qt.DeepEquals(pairsIn(l, MustParsePairPattern(pair.String())), []Pair{pair}),
			qt.Commentf("%s", want))
	}
}

func TestPairPatternsThatAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                  `bad pattern "": .*`,
		"..":                `bad pattern "": .*`,
		"a..":               `bad pattern "": .*`,
		"a..[":              `bad pattern "\[": .*`,
		"n:*__start..n:end": `bad pattern "n:\*__start..n:end": the names have 1 and 0 wildcards: which start belongs to which end is not known`,
		"a?*..b*":           `.*the names have 2 and 1 wildcards.*`,
		"p:*..p:*|p:x":      `.*"p:\*..p:\*\|p:x": a probe that ends what fails belongs to one start: .*`,
		"p:*|p:x":           `.*name it without wildcards`,
		"p:a|":              `bad pattern "": .*`,
		"p:a|[":             `bad pattern "\[": .*`,
		"a?:x..b:y":         `.*the providers have 1 and 0 wildcards.*`,
	} {
		_, err := ParsePairPattern(pattern)
		qt.Check(t, qt.ErrorMatches(err, want), qt.Commentf("%s", pattern))
	}
}

// A file with many probes, or long names, is no way to keep a tracer busy.
func TestPairsTakeTimeInProportionToTheProbes(t *testing.T) {
	l := &Listing{}
	for i := range 20_000 {
		name := strings.Repeat("a", i%50) + string(rune('0'+i%10)) + strings.Repeat("b", i/50)
		l.Probes = append(l.Probes, FileProbe{Provider: "p", Name: name})
	}
	l.Probes = append(l.Probes, FileProbe{Provider: "p", Name: strings.Repeat("a", 1<<20) + "b__done"})
	start := time.Now()
	pairsIn(l, MustParsePairPattern("*a*b..*a*b"), MustParsePairPattern("*"))
	qt.Assert(t, qt.IsTrue(time.Since(start) < time.Minute))
}

// FuzzPairPattern parses any text, and compares what the wildcards match with
// what they stand for.
func FuzzPairPattern(f *testing.F) {
	for _, s := range []string{"a*..b*", "a..b|c", `a\|b|c`, `p:a\..b..c`, "..", "[..]..x",
		"*:*a*b*..*:*c*d*"} {
		f.Add(s, "provider", "xaybz")
	}
	f.Fuzz(func(t *testing.T, s, provider, name string) {
		p, err := ParsePairPattern(s)
		if err != nil {
			if p.String() != "" {
				t.Errorf("%q: an error and a pattern", s)
			}
			return
		}
		if p.String() != s {
			t.Errorf("%q became %q", s, p)
		}
		for _, side := range p.Patterns() {
			if !side.Match(provider, name) {
				continue
			}
			parsed, err := pattern.Parse(side.String())
			if err != nil {
				t.Fatal(err)
			}
			g := parsed.Name
			parts := matched(&g, name)
			if len(parts) != wildcards(&g) {
				t.Errorf("%q in %q: %q", side, name, parts)
			}
			var b strings.Builder
			b.WriteString(g.Text)
			for i := range g.Elements {
				if c, literal := g.Elements[i].Byte(); literal {
					b.WriteByte(c)
				} else {
					b.WriteString(parts[0])
					parts = parts[1:]
				}
			}
			if b.String() != name {
				t.Errorf("%q in %q: %q", side, name, b.String())
			}
		}
		pairs := pairsIn(listingOf(""), p)
		pairs = append(pairs,
			pairsIn(&Listing{Probes: []FileProbe{{Provider: provider, Name: name}}}, p)...)
		_ = slices.Clone(pairs)
	})
}

// An error names the calls first: of the pairs, the last may be left out.
func TestPairErrorNamesCallsFirst(t *testing.T) {
	d, l := new(Definitions), &Listing{}
	qt.Assert(t, qt.IsNil(d.Parse("own.d",
		[]byte("provider p { call work() { begin .. end; }; };"))))
	for i := range 30 {
		name := fmt.Sprintf("a%02d__", i)
		l.Probes = append(l.Probes, FileProbe{Provider: "p", Name: name + "start"},
			FileProbe{Provider: "p", Name: name + "done"})
	}
	l.Probes = append(l.Probes, FileProbe{Provider: "p", Name: "begin"},
		FileProbe{Provider: "p", Name: "end"})
	err := d.NewPairError(MustParsePairPattern("p:commit"), l)
	qt.Check(t, qt.Matches(err.Error(),
		`there is no pair of probes p:commit \(there are: p:work, .*p:a00, .*, \.\.\.\)`))
	// The name of a probe of a call means that call.
	err = d.NewPairError(MustParsePairPattern("p:begin"), l)
	qt.Check(t, qt.Equals(err.Error(), "there is no pair of probes p:begin (there are: p:work)"))
}
