// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestNearestProbes(t *testing.T) {
	file, err := elfnote.Open(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	for _, tc := range []struct {
		name     string
		patterns []elfnote.Pattern
		first    string // "" where nothing is near
	}{
		{"a letter less", []elfnote.Pattern{elfnote.MustParsePattern("gousdt_test:thre")},
			"gousdt_test:three"},
		{"any provider", []elfnote.Pattern{elfnote.MustParsePattern("thre")}, "gousdt_test:three"},
		{"a glob", []elfnote.Pattern{elfnote.MustParsePattern("*:t[hr]re")}, "gousdt_test:three"},
		{"case and hyphens", []elfnote.Pattern{elfnote.Exact("Gousdt-Test", "Th-ree")},
			"gousdt_test:three"},
		{"the provider is another", []elfnote.Pattern{elfnote.Exact("postgresql", "three")}, ""},
		{"the best of several", []elfnote.Pattern{elfnote.Exact("zzz", "zzz"),
			elfnote.Exact("gousdt_test", "guarde")},
			"gousdt_test:guarded"},
		{"a provider", []elfnote.Pattern{elfnote.MustParsePattern("gousdt_tset:*")}, "gousdt_test:*"},
		{"no pattern", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := Builtin().NearestProbes(file.Sites(), tc.patterns...)
			if tc.first == "" {
				qt.Assert(t, qt.HasLen(names, 0))
				return
			}
			qt.Assert(t, qt.IsTrue(len(names) > 0 && len(names) <= mostNamed))
			qt.Assert(t, qt.Equals(names[0], tc.first))
		})
	}
}

// A pattern may name a call, too. Those of the definitions are near if the file
// has their probes.
func TestNearestCalls(t *testing.T) {
	probes := []elfnote.Site{{Provider: "postgresql", Name: "statement__status"},
		{Provider: "python", Name: "gc__start"}, {Provider: "python", Name: "gc__done"},
		{Provider: "shop", Name: "order__start"}, {Provider: "shop", Name: "order__done"}}
	find := func(d *Definitions, pattern string) []string {
		return d.AddNearest(nil, probes, []elfnote.Pattern{elfnote.MustParsePattern(pattern)})
	}
	qt.Check(t, qt.DeepEquals(find(Builtin(), "postgresql:statment*"),
		[]string{"postgresql:statement__status"}))
	probes = append(probes, elfnote.Site{Provider: "postgresql", Name: "query__start"},
		elfnote.Site{Provider: "postgresql", Name: "query__done"},
		elfnote.Site{Provider: "postgresql", Name: "query__execute__start"},
		elfnote.Site{Provider: "postgresql", Name: "query__execute__done"})
	qt.Check(t, qt.DeepEquals(find(Builtin(), "postgresql:statment*"),
		[]string{"postgresql:statement", "postgresql:statement__status"}))
	qt.Check(t, qt.DeepEquals(find(Builtin(), "postgresql:statment"), []string{"postgresql:statement"}))
	qt.Check(t, qt.DeepEquals(find(nil, "postgresql:statment"), nil))
	qt.Check(t, qt.DeepEquals(find(Builtin(), "python:gd"), []string{"python:gc"}))
	// The commands know no pair of a provider that is not defined.
	qt.Check(t, qt.DeepEquals(find(Builtin(), "shop:ordr"), nil))
}

func TestNearestPairs(t *testing.T) {
	var pairs []Pair
	for _, base := range []string{"query__parse", "query", "checkpoint"} {
		pairs = append(pairs, Pair{
			Start: FileProbe{Provider: "postgresql", Name: base + "__start"},
			Done:  FileProbe{Provider: "postgresql", Name: base + "__done"},
		})
	}
	for pattern, want := range map[string]string{
		"postgresql:quer":       "postgresql:query",
		"Query":                 "postgresql:query",
		"postgresql:chekpoints": "postgresql:checkpoint",
		"postgresql:query__strat..postgresql:query__dnoe": "postgresql:query",
		"python:query": "",
		"zzz..zzz":     "",
	} {
		found := nearestPairs(pairs, MustParsePairPattern(pattern))
		if want == "" {
			qt.Check(t, qt.HasLen(found, 0), qt.Commentf("%s", pattern))
			continue
		}
		qt.Assert(t, qt.IsTrue(len(found) > 0), qt.Commentf("%s", pattern))
		qt.Check(t, qt.Equals(found[0].String(), want), qt.Commentf("%s", pattern))
	}
	qt.Check(t, qt.HasLen(nearestPairs(pairs, PairPattern{}), 0))
	// Where one of its probes is named, no other pair was meant.
	for _, pattern := range []string{"postgresql:query__start", "query__done"} {
		found := nearestPairs(pairs, MustParsePairPattern(pattern))
		qt.Assert(t, qt.HasLen(found, 1), qt.Commentf("%s", pattern))
		qt.Check(t, qt.Equals(found[0].String(), "postgresql:query"))
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		pattern, provider, name string
		want                    int
	}{
		{"query__start", "postgresql", "query__start", 0},
		{"query-START", "postgresql", "query__start", 0},
		{"*:Or-der", "shop", "order", 0},
		{"shop:none", "shop", "open", far}, // what the provider has in common makes no name near
		{"shpo:order", "shop", "order", 2},
		{"gc__*", "python", "gc__start", 0},
		{"gx__*", "python", "gc__start", 1},
		{"kitten", "", "sitting", 3},
		{"q?ery__start", "", "query__star", 1},
		{"[]x]ab", "", "ab", 1},
		{"[", "", "ab", far}, // no pattern, but no panic
		{`a\*b`, "", "a*b", 0},
		{"ns::class:method", "ns::class", "methd", 1},
		{"", "", "abc", far},
	} {
		var p probe
		if pattern, err := elfnote.ParsePattern(tc.pattern); err == nil {
			p = parse(pattern.String())
		}
		qt.Check(t, qt.Equals(p.distance(plain(tc.provider), plain(tc.name)), tc.want),
			qt.Commentf("%q", tc.pattern))
	}
	exact := parse(elfnote.Exact("a:b", "[c]").String())
	qt.Check(t, qt.Equals(exact.distance(plain("a:b"), plain("[c]")), 0))
}

func TestSharedLocations(t *testing.T) {
	site := func(name string, location uint64) elfnote.Site {
		return elfnote.Site{Provider: "p", Name: name, Location: location}
	}
	sites := []elfnote.Site{site("b", 8), site("a", 8), site("alone", 4), site("b", 8),
		site("twice", 6), site("twice", 6)}
	shared := func() map[uint64][]string {
		return SharedLocations(func(yield func(elfnote.Site, error) bool) {
			for _, s := range sites {
				if !yield(s, nil) {
					return
				}
			}
		})
	}
	qt.Check(t, qt.DeepEquals(shared(), map[uint64][]string{
		6: {"p:twice (2 sites)"}, 8: {"p:b (2 sites)", "p:a"}}))
	for i := range uint64(maxShared) {
		sites = append(sites, site(fmt.Sprint(i), 100+i), site("x", 100+i))
	}
	all := shared()
	qt.Check(t, qt.HasLen(all, maxShared+2))
	qt.Check(t, qt.DeepEquals(all[100], []string{"p:0", "p:x"}))
	qt.Check(t, qt.DeepEquals(all[100+maxShared-1], []string{"several probes"}))
}

// Which builds have probes is no condition on which they fire.
func TestMissing(t *testing.T) {
	d := new(Definitions)
	qt.Assert(t, qt.IsNil(d.Parse("own.d", []byte("#pragma gousdt fires own:a at times\n"+
		"#pragma gousdt fires own:* missing: build it with probes\n"))))
	for pattern, want := range map[string]string{
		"own:*": ": build it with probes", "own:b": ": build it with probes", "other:*": "",
	} {
		qt.Check(t, qt.Equals(d.Missing([]elfnote.Pattern{elfnote.MustParsePattern(pattern)}), want))
	}
	_, only := d.Fires("own", "a")
	qt.Check(t, qt.Equals(only, "at times"))
}
