// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// The file that ldconfig writes, as ldconfig(8) of glibc 2.2 and newer does
// (sysdeps/generic/dl-cache.h describes it). All numbers are 32 bits wide in
// the machine's byte order, but the hwcap of 64:
//
//	header, 48 bytes
//	   0  "glibc-ld.so.cache" "1.1"
//	  20  number of entries
//	  24  length of the strings, and what is not needed here
//	entries, 24 bytes each
//	   0  flags: for which machine
//	   4  where the name starts
//	   8  where the path starts
//	  12  unused
//	  16  hwcap: what the processor must have, 0 for nothing
//
// Names and paths end in NUL and are counted from the header. An older format,
// "ld.so-1.7.0", may stand before it. The flags need not be read: the headers
// of the files say for which machine they are.
const (
	cachePath = "/etc/ld.so.cache"

	cacheMagic      = "glibc-ld.so.cache1.1"
	cacheHeaderSize = 48
	cacheEntrySize  = 24

	oldCacheMagic = "ld.so-1.7.0"

	// A system with 10,000 libraries has a cache of about 2 MB.
	maxCacheSize = 32 << 20

	// PATH_MAX: a longer name cannot be opened.
	maxCacheString = 4096

	// The entries are searched one by one, and a handful can match.
	maxCacheMatches = 1024
)

// order is that of this machine, which wrote the cache.
var order = binary.NativeEndian

var errCache = errors.New("not a cache of library names, or a malformed one")

// cache is a parsed ld.so.cache. Its zero value is empty.
type cache struct {
	data  []byte // from the header on
	count int    // entries, all of which lie within data
}

type cacheEntry struct {
	name, path string
	hasDemand  bool // not for every processor
}

func readCache(path string) (*cache, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxCacheSize+1))
	if err != nil {
		return nil, err
	}
	if len(file) > maxCacheSize {
		return nil, fmt.Errorf("larger than %d bytes", maxCacheSize)
	}
	return parseCache(file)
}

func parseCache(file []byte) (*cache, error) {
	data := file
	if bytes.HasPrefix(file, []byte(oldCacheMagic)) {
		data = file[max(0, bytes.Index(file, []byte(cacheMagic))):]
	}
	if len(data) < cacheHeaderSize || string(data[:len(cacheMagic)]) != cacheMagic {
		return nil, errCache
	}
	count := order.Uint32(data[20:])
	if uint64(count)*cacheEntrySize > uint64(len(data)-cacheHeaderSize) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errCache, count, len(data))
	}
	return &cache{data, int(count)}, nil
}

// find returns the entries whose name matches, in the file's order. Entries
// that point outside the file are left out.
func (c *cache) find(match func(name []byte) bool) []cacheEntry {
	var found []cacheEntry
	for i := range c.count {
		if len(found) == maxCacheMatches {
			break
		}
		entry := c.data[cacheHeaderSize+i*cacheEntrySize:]
		name, ok := c.text(order.Uint32(entry[4:]))
		if !ok || !match(name) {
			continue
		}
		if path, ok := c.text(order.Uint32(entry[8:])); ok {
			found = append(found,
				cacheEntry{string(name), string(path), order.Uint64(entry[16:]) != 0})
		}
	}
	return found
}

// text returns the string at an offset from the header, not empty.
func (c *cache) text(offset uint32) ([]byte, bool) {
	if uint64(offset) >= uint64(len(c.data)) {
		return nil, false
	}
	text := c.data[offset:]
	text = text[:min(len(text), maxCacheString)]
	end := bytes.IndexByte(text, 0)
	return text[:max(end, 0)], end > 0
}
