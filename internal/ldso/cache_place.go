// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"errors"
	"io/fs"
	"slices"
)

// cachePath is where ldconfig writes.
const cachePath = "/etc/ld.so.cache"

// cache is the place that is glibc's cache of library names. The file is read
// when it is first asked: LD_LIBRARY_PATH may have answered before.
func (s *search) cache() place {
	var loaded *cache
	load := func() *cache {
		if loaded == nil {
			c, err := readCache(s.root)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					s.reject("", cachePath, err)
				}
				c = &cache{}
			}
			loaded = c
		}
		return loaded
	}
	return place{
		name: cachePath,
		exact: func(library string) []string {
			return s.bestLevel(load().find(func(name []byte) bool {
				return string(name) == library
			}))
		},
		versions: func(library string) []string {
			entries := load().find(func(name []byte) bool {
				return isVersionOf(library, string(name))
			})
			names := make([]string, len(entries))
			for i, entry := range entries {
				names[i] = entry.name
			}
			var paths []string
			for _, name := range slices.Compact(newestFirst(library, names)) {
				paths = append(paths, s.bestLevel(slices.DeleteFunc(slices.Clone(entries),
					func(e cacheEntry) bool { return e.name != name }))...)
			}
			return paths
		},
	}
}

// bestLevel returns the paths of one library's entries, those for the highest
// processor level first and without those that this processor cannot run.
func (s *search) bestLevel(entries []cacheEntry) []string {
	rank := func(e cacheEntry) int {
		if e.level == "" {
			return len(s.target.levels)
		}
		return slices.Index(s.target.levels, e.level)
	}
	entries = slices.DeleteFunc(entries, func(e cacheEntry) bool { return rank(e) < 0 })
	slices.SortStableFunc(entries, func(a, b cacheEntry) int { return rank(a) - rank(b) })
	paths := make([]string, len(entries))
	for i, entry := range entries {
		paths[i] = entry.path
	}
	return paths
}
