// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"os"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"
)

func allNames([]byte) bool { return true }

func TestParseCache(t *testing.T) {
	entries := []cacheEntry{
		{name: "libx.so.1", path: "/v3/libx.so.1", level: "x86-64-v3"},
		{name: "libx.so.1", path: "/v2/libx.so.1", level: "x86-64-v2"},
		{name: "libx.so.1", path: "/lib/libx.so.1"},
		{name: "liby.so.2", path: "/lib/liby.so.2"},
	}
	for _, test := range []struct {
		behaviour string
		file      cacheFile
	}{
		{"alone", cacheFile{}},
		{"after an older format", cacheFile{afterOld: 3, alignment: 8}},
		{"after an older format aligned to 4", cacheFile{afterOld: 2, alignment: 4}},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			test.file.entries = entries
			c, err := parseCache(test.file.bytes())
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsTrue(slices.Equal(c.find(allNames), entries)),
				qt.Commentf("%v", c.find(allNames)))
		})
	}
}

func TestParseCacheRefuses(t *testing.T) {
	good := cacheFile{entries: []cacheEntry{{name: "a.so", path: "/a.so"}}}.bytes()
	for _, test := range []struct {
		behaviour string
		data      []byte
	}{
		{"nothing", nil},
		{"another file",
			[]byte("root:x:0:0:root:/root:/bin/bash\nand so on until it is long enough")},
		{"a header cut short", good[:cacheHeaderSize-1]},
		{"more entries than the file holds", append(good[:20:20],
			append([]byte{0xff, 0xff, 0xff, 0xff}, good[24:]...)...)},
		{"only the older format", append([]byte(oldCacheMagic+"\x00\x01\x00\x00\x00"),
			make([]byte, 64)...)},
		{"an older format that claims to be longer than the file",
			append([]byte(oldCacheMagic+"\x00\xff\xff\xff\xff"), good...)},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			c, err := parseCache(test.data)
			qt.Assert(t, qt.ErrorIs(err, errCache))
			qt.Assert(t, qt.IsNil(c))
		})
	}
}

func TestBadCacheEntriesAreLeftOut(t *testing.T) {
	good := cacheEntry{name: "good.so", path: "/good.so"}
	file := cacheFile{entries: []cacheEntry{
		{name: "a.so", path: "/a.so"}, {name: "b.so", path: "/b.so"}, {name: "c.so",
			path: "/c.so"}, good,
	}}.bytes()
	entry := func(i int) []byte { return file[cacheHeaderSize+i*cacheEntrySize:] }
	order.PutUint32(entry(0)[4:], 0xfffffff0)        // a name outside the file
	order.PutUint32(entry(1)[8:], uint32(len(file))) // a path just outside
	order.PutUint64(entry(2)[16:], hwcapIsLevel|7)   // a level that is not listed
	file = append(file[:len(file)-1], "\x00unterminated"...)
	c, err := parseCache(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(slices.Equal(c.find(allNames), []cacheEntry{good})),
		qt.Commentf("%v", c.find(allNames)))
}

func TestTheBestProcessorLevelIsTaken(t *testing.T) {
	entries := func() []cacheEntry {
		return []cacheEntry{
			{path: "/plain"}, {path: "/v2", level: "x86-64-v2"}, {path: "/v4",
				level: "x86-64-v4"}, {path: "/v3", level: "x86-64-v3"},
		}
	}
	s := &search{target: target{levels: []string{"x86-64-v3", "x86-64-v2"}}}
	qt.Assert(t, qt.DeepEquals(s.bestLevel(entries()), []string{"/v3", "/v2", "/plain"}))
	s.target.levels = nil
	qt.Assert(t, qt.DeepEquals(s.bestLevel(entries()), []string{"/plain"}))
}

func TestCompareVersions(t *testing.T) {
	for _, test := range []struct {
		older, newer string
	}{
		{"1", "2"}, {"9", "10"}, {"1.9", "1.10"}, {"6", "6.0.30"}, {"1.0", "1.0.2"},
		{"99999999999999999999", "100000000000000000000"}, {"2.5", "10"},
	} {
		qt.Check(t, qt.IsTrue(compareVersions(test.older, test.newer) < 0), qt.Commentf("%v", test))
		qt.Check(t, qt.IsTrue(compareVersions(test.newer, test.older) > 0), qt.Commentf("%v", test))
	}
	qt.Check(t, qt.Equals(compareVersions("1.2", "01.2"), 0))
}

// A cache is untrusted: whatever it holds, the parser neither panics nor
// returns text from outside it.
func FuzzParseCache(f *testing.F) {
	entries := []cacheEntry{{name: "libx.so.1", path: "/v3/libx.so.1", level: "x86-64-v3"},
		{name: "libx.so.1", path: "/lib/libx.so.1"}}
	f.Add(cacheFile{entries: entries}.bytes())
	f.Add(cacheFile{afterOld: 2, alignment: 8, entries: entries}.bytes())
	f.Add([]byte(cacheMagic))
	if host, err := os.ReadFile(cachePath); err == nil && len(host) < 1<<16 {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCache(data)
		if err != nil {
			if c != nil {
				t.Fatal("an error and a cache")
			}
			return
		}
		for _, entry := range c.find(allNames) {
			if entry.name == "" || entry.path == "" || len(entry.name) >= maxCacheString ||
				len(entry.path) >= maxCacheString {
				t.Fatalf("entry %q", entry)
			}
		}
	})
}
