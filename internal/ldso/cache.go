// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The file that ldconfig writes, as ldconfig(8) of glibc 2.2 and newer does
// (sysdeps/generic/dl-cache.h describes it). All numbers are 32 bits wide in
// the machine's byte order, but the hwcap of 64:
//
//	header, 48 bytes
//	   0  "glibc-ld.so.cache" "1.1"
//	  20  number of entries
//	  24  length of the strings
//	  28  byte order (0 before 2.33), 3 bytes unused
//	  32  where the extensions start, 0 for none
//	entries, 24 bytes each
//	   0  flags: for which machine
//	   4  where the name starts
//	   8  where the path starts
//	  12  unused
//	  16  hwcap: bit 62 means that the low half is an index into the
//	      extension's list of processor levels
//
// Names and paths end in NUL and are counted from the header. An older format,
// "ld.so-1.7.0", may stand before it and is skipped: a header of 16 bytes with
// the number of entries at 12, entries of 12 bytes, then blank to a multiple of
// the alignment. The flags need not be read: the headers of the files say for
// which machine they are.
const (
	cacheMagic      = "glibc-ld.so.cache1.1"
	cacheHeaderSize = 48
	cacheEntrySize  = 24

	oldCacheMagic      = "ld.so-1.7.0"
	oldCacheHeaderSize = 16
	oldCacheEntrySize  = 12

	hwcapIsLevel = 1 << 62

	extensionMagic       = 0xeaa42174
	extensionHeaderSize  = 8
	extensionSectionSize = 16 // tag, flags, offset, size
	extensionTagLevels   = 1

	// A system with 10,000 libraries has a cache of about 2 MB.
	maxCacheSize = 32 << 20

	// PATH_MAX: a longer name cannot be opened.
	maxCacheString = 4096

	// The entries are searched one by one, and a handful can match.
	maxCacheMatches = 1024
)

// order is that of this machine: the caches of processes that run here have it.
var order = binary.NativeEndian

var errCache = errors.New("not a cache of library names, or a malformed one")

// cache is a parsed ld.so.cache. Its zero value is empty.
type cache struct {
	file   []byte // the whole file
	data   []byte // from the header on
	count  int    // entries, all of which lie within data
	levels []byte // the extension's array of offsets of the levels' names
}

// cacheEntry says that a library of that name is at path.
type cacheEntry struct {
	name, path string
	level      string // processor level such as "x86-64-v3", empty for any
}

// readCache reads the cache of the tree at root.
func readCache(root string) (*cache, error) {
	found, err := resolve(root, cachePath)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(found)
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
	data := skipOldCache(file)
	if len(data) < cacheHeaderSize || string(data[:len(cacheMagic)]) != cacheMagic {
		return nil, errCache
	}
	c := &cache{file: file, data: data}
	count := order.Uint32(data[20:])
	if !c.holds(count) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errCache, count, len(data))
	}
	c.count = int(count)
	c.levels = c.findLevels()
	return c, nil
}

// skipOldCache returns the file from where the newer format may start.
func skipOldCache(file []byte) []byte {
	if len(file) < oldCacheHeaderSize || string(file[:len(oldCacheMagic)]) != oldCacheMagic {
		return file
	}
	end := oldCacheHeaderSize + uint64(order.Uint32(file[12:]))*oldCacheEntrySize
	// Aligned to 8, or to 4 where the C compiler aligns 64-bit numbers so.
	for _, alignment := range []uint64{8, 4} {
		start := (end + alignment - 1) &^ (alignment - 1)
		if start < uint64(len(file)) && bytes.HasPrefix(file[start:], []byte(cacheMagic)) {
			return file[start:]
		}
	}
	return nil
}

// holds reports whether so many entries fit into the file.
func (c *cache) holds(entries uint32) bool {
	return uint64(entries)*cacheEntrySize <= uint64(len(c.data)-cacheHeaderSize)
}

// findLevels returns the extension's array of processor levels, nil where
// there is none or it does not lie within the file.
func (c *cache) findLevels() []byte {
	start := uint64(order.Uint32(c.data[32:]))
	if start == 0 || start+extensionHeaderSize > uint64(len(c.file)) {
		return nil
	}
	extension := c.file[start:]
	if order.Uint32(extension) != extensionMagic {
		return nil
	}
	sections := uint64(order.Uint32(extension[4:]))
	rest := extension[extensionHeaderSize:]
	for ; sections > 0 && len(rest) >= extensionSectionSize; sections-- {
		if order.Uint32(rest) == extensionTagLevels {
			offset, size := uint64(order.Uint32(rest[8:])), uint64(order.Uint32(rest[12:]))
			if offset+size > uint64(len(c.file)) {
				return nil
			}
			return c.file[offset : offset+size]
		}
		rest = rest[extensionSectionSize:]
	}
	return nil
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
		path, ok := c.text(order.Uint32(entry[8:]))
		if !ok {
			continue
		}
		level, ok := c.level(order.Uint64(entry[16:]))
		if !ok {
			continue
		}
		found = append(found,
			cacheEntry{name: string(name), path: string(path), level: string(level)})
	}
	return found
}

// level returns the name of the processor level that an entry's hwcap asks for.
// An entry with any other demand, as glibc wrote before 2.33, is not taken: the
// same library is there without one.
func (c *cache) level(hwcap uint64) (level []byte, ok bool) {
	if hwcap == 0 {
		return nil, true
	}
	// The bits between name a minimum level of the instruction set in newer
	// files; the directory's name says the same.
	index := hwcap & 0xffffffff
	if hwcap&hwcapIsLevel == 0 || index >= uint64(len(c.levels)/4) {
		return nil, false
	}
	return c.text(order.Uint32(c.levels[index*4:]))
}

// text returns the string at an offset from the header, not empty.
func (c *cache) text(offset uint32) ([]byte, bool) {
	if uint64(offset) >= uint64(len(c.data)) {
		return nil, false
	}
	text := c.data[offset:]
	text = text[:min(len(text), maxCacheString)]
	end := bytes.IndexByte(text, 0)
	if end <= 0 {
		return nil, false
	}
	return text[:end], true
}
