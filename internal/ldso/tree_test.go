// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// tree is a root file system made for a test.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree { return tree{t, t.TempDir()} }

func (tr tree) write(name string, data []byte, mode os.FileMode) {
	tr.t.Helper()
	path := filepath.Join(tr.root, name)
	qt.Assert(tr.t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(tr.t, qt.IsNil(os.WriteFile(path, data, mode)))
}

// elf writes files that have an ELF header for x86-64.
func (tr tree) elf(names ...string) {
	for _, name := range names {
		tr.write(name, elfHeader(elf.EM_X86_64, elf.ELFCLASS64, elf.ELFDATA2LSB), 0o755)
	}
}

func (tr tree) link(name, to string) {
	tr.t.Helper()
	path := filepath.Join(tr.root, name)
	qt.Assert(tr.t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(tr.t, qt.IsNil(os.Symlink(to, path)))
}

// find searches for x86-64, so that tests mean the same on every host, and
// returns the path without the root.
func (tr tree) find(name string, env map[string]string) (string, error) {
	getenv := func(name string) string { return env[name] }
	path, err := newSearch(name, tr.root, amd64, getenv).find()
	return strings.TrimPrefix(path, tr.root), err
}

var amd64 = header{elf.EM_X86_64, elf.ELFCLASS64}.target()

func elfHeader(machine elf.Machine, class elf.Class, data elf.Data) []byte {
	b := make([]byte, 64)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(class), byte(data),
		byte(elf.EV_CURRENT)
	var order binary.ByteOrder = binary.LittleEndian
	if data == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	order.PutUint16(b[16:], uint16(elf.ET_DYN))
	order.PutUint16(b[18:], uint16(machine))
	return b
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
		b = append(b, make([]byte, f.afterOld*oldCacheEntrySize)...)
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
	var levels []string
	for i, entry := range f.entries {
		name, path := text(entry.name), text(entry.path)
		e := b[first+i*cacheEntrySize:]
		order.PutUint32(e, 0x303)
		order.PutUint32(e[4:], name)
		order.PutUint32(e[8:], path)
		if entry.level != "" {
			order.PutUint64(e[16:], hwcapIsLevel|3<<32|uint64(len(levels)))
			levels = append(levels, entry.level)
		}
	}
	if levels == nil {
		return b
	}
	var offsets []byte
	for _, level := range levels {
		offsets = order.AppendUint32(offsets, text(level))
	}
	order.PutUint32(b[start+24:], uint32(len(b)-first-len(f.entries)*cacheEntrySize))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	order.PutUint32(b[start+32:], uint32(len(b)))
	b = order.AppendUint32(b, extensionMagic)
	b = order.AppendUint32(b, 2)
	offset := uint32(len(b) + 2*extensionSectionSize)
	for tag, size := range []uint32{0, uint32(len(offsets))} { // 0: who wrote the file
		for _, number := range []uint32{uint32(tag), 0, offset, size} {
			b = order.AppendUint32(b, number)
		}
	}
	return append(b, offsets...)
}
