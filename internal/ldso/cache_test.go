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
		{name: "libx.so.1", path: "/v3/libx.so.1", hasDemand: true},
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
		{name: "a.so", path: "/a.so"}, {name: "b.so", path: "/b.so"}, good,
	}}.bytes()
	entry := func(i int) []byte { return file[cacheHeaderSize+i*cacheEntrySize:] }
	order.PutUint32(entry(0)[4:], 0xfffffff0)        // a name outside the file
	order.PutUint32(entry(1)[8:], uint32(len(file))) // a path just outside
	file = append(file[:len(file)-1], "\x00unterminated"...)
	c, err := parseCache(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(slices.Equal(c.find(allNames), []cacheEntry{good})),
		qt.Commentf("%v", c.find(allNames)))
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
	entries := []cacheEntry{{name: "libx.so.1", path: "/v3/libx.so.1", hasDemand: true},
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
				t.Fatalf("entry %v", entry)
			}
		}
	})
}

// cacheFile is an ld.so.cache to be written.
type cacheFile struct {
	afterOld  int // entries of an older format to put in front
	alignment int // of what follows them
	entries   []cacheEntry
}

func (f cacheFile) bytes() []byte {
	var b []byte
	if f.afterOld > 0 {
		b = append(b, oldCacheMagic...)
		b = append(b, 0)
		b = order.AppendUint32(b, uint32(f.afterOld))
		b = append(b, make([]byte, f.afterOld*12)...)
		for len(b)%f.alignment != 0 {
			b = append(b, 0)
		}
	}
	start := len(b)
	b = append(b, cacheMagic...)
	b = order.AppendUint32(b, uint32(len(f.entries)))
	b = append(b, make([]byte, cacheHeaderSize-24)...)
	first := len(b)
	b = append(b, make([]byte, len(f.entries)*cacheEntrySize)...)
	text := func(s string) uint32 {
		offset := len(b) - start
		b = append(append(b, s...), 0)
		return uint32(offset)
	}
	for i, entry := range f.entries {
		name, path := text(entry.name), text(entry.path)
		e := b[first+i*cacheEntrySize:]
		order.PutUint32(e, 0x303)
		order.PutUint32(e[4:], name)
		order.PutUint32(e[8:], path)
		if entry.hasDemand {
			order.PutUint64(e[16:], 1<<62|3<<32)
		}
	}
	return b
}
