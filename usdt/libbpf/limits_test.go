// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestLoadOfWhatIsNoObject(t *testing.T) {
	for _, text := range []string{"", "x", strings.Repeat("int main(void) { return 0; }\n", 10)} {
		_, err := load(strings.NewReader(text))
		qt.Check(t, qt.ErrorIs(err, elffile.ErrNotELF))
		qt.Check(t, qt.ErrorMatches(err, "reading the object: not an ELF file"))
	}
	_, err := load(nil)
	qt.Check(t, qt.ErrorMatches(err, "reading the object: there is no reader"))
}

// Objects of some kilobytes claim or repeat what takes gigabytes.
func TestLoadOfObjectsThatClaimMuch(t *testing.T) {
	const many, long = 4000, 100_000
	name := strings.Repeat("x", long)
	for _, test := range []struct {
		name, err string
		object    func() *elfimage.Image
	}{
		{"zeroes", `.*section "\.bss": more than 256 MB of zeroes`, func() *elfimage.Image {
			return objectWith(elfimage.Section{Name: ".bss", Kind: elf.SHT_NOBITS,
				Flags: elf.SHF_ALLOC, Size: elfimage.Ptr[uint64](2_400_000_000)})
		}},
		{"compressed types", `.*section "\.BTF" is compressed`, func() *elfimage.Image {
			return objectWith(elfimage.Section{Name: ".BTF", Kind: elf.SHT_PROGBITS,
				Flags: elf.SHF_COMPRESSED, Data: compressedZeroes(t, 64<<20)})
		}},
		{"names of symbols", ".*the names of .* are more than 64 MB together",
			func() *elfimage.Image {
				im := objectWith()
				symbols := make([]elfimage.Symbol, many)
				im.AddSymbols(elf.SHT_SYMTAB, name, symbols...)
				table := im.Sections[len(im.Sections)-2].Data
				at := bytes.IndexByte(im.Sections[len(im.Sections)-1].Data, 'x')
				for i := range many {
					binary.LittleEndian.PutUint32(table[(i+1)*symbolSize:], uint32(at))
				}
				return im
			}},
		{"names of types", ".*the names of .* are more than 64 MB together",
			func() *elfimage.Image { return objectWith(types(name, many, 2, 0)) }},
		{"many types", ".*section .BTF: more than 50000 types",
			func() *elfimage.Image { return objectWith(types("", maxTypes+1, 2, 0)) }},
		{"a section of types", ".*section .BTF: a section of 4026531840 bytes",
			func() *elfimage.Image { return objectWith(types("", 1, 15, 0xf000_0000)) }},
		{"overlapping symbols", ".*the symbols of section [0-9]+ overlap", func() *elfimage.Image {
			im := objectWith(elfimage.Section{Name: "uprobe", Kind: elf.SHT_PROGBITS,
				Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Data: make([]byte, 8*many)})
			var symbols []elfimage.Symbol
			for i := range many {
				s := elfimage.NewSymbol(fmt.Sprint("f", i), uint64(8*i), elf.STT_FUNC,
					elf.SectionIndex(len(im.Sections)))
				symbols = append(symbols, s)
			}
			im.AddSymbols(elf.SHT_SYMTAB, "", symbols...)
			table := im.Sections[len(im.Sections)-2].Data
			for i := range many {
				binary.LittleEndian.PutUint64(table[(i+1)*symbolSize+16:], uint64(8*(many-i)))
			}
			return im
		}},
		{"overlapping sections", ".*its sections overlap", func() *elfimage.Image {
			im := objectWith(elfimage.Section{Name: ".first", Kind: elf.SHT_PROGBITS,
				Data: make([]byte, long)})
			for i := range 100 {
				im.Sections = append(im.Sections, elfimage.Section{Name: fmt.Sprint(".rel", i),
					Kind: elf.SHT_REL, Offset: elfimage.Ptr[uint64](0),
					Size: elfimage.Ptr[uint64](long)})
			}
			return im
		}},
		{"variables for the cookie", "", func() *elfimage.Image {
			im := objectWith(elfimage.Section{Name: name, Kind: elf.SHT_NULL})
			symbols := make([]elfimage.Symbol, many)
			for i := range symbols {
				symbols[i] = elfimage.NewSymbol(cookieVariable, 0, elf.STT_NOTYPE, elf.SHN_UNDEF)
			}
			im.AddSymbols(elf.SHT_SYMTAB, "", symbols...)
			return im
		}},
		{"sections of code, and symbols", "", func() *elfimage.Image {
			im, symbols := objectWith(), make([]elfimage.Symbol, many)
			for i := range symbols {
				im.Sections = append(im.Sections, elfimage.Section{Name: "x",
					Kind: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR})
				symbols[i] = elfimage.NewSymbol("x", 0, elf.STT_OBJECT, elf.SHN_ABS)
			}
			im.AddSymbols(elf.SHT_SYMTAB, "", symbols...)
			return im
		}},
		{"32 bits", ".*not an ELF file of 64 bits", func() *elfimage.Image {
			im := elfimage.New(elf.ELFCLASS32, binary.LittleEndian)
			im.Machine = elf.EM_BPF
			return im
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := test.object()
			if !strings.Contains(test.name, "symbols") {
				x := elfimage.NewSymbol("x", 0, elf.STT_OBJECT, 1)
				x.Bind = elf.STB_GLOBAL
				im.AddSymbols(elf.SHT_SYMTAB, "", x)
			}
			data := im.Bytes()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := load(bytes.NewReader(data))
			runtime.ReadMemStats(&after)
			used := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes take %d: %v", len(data), used, err)
			if test.err == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, test.err))
			}
			qt.Check(t, qt.IsTrue(used < 16<<20+64*uint64(len(data))), qt.Commentf("%d bytes", used))
		})
	}
}

func TestLoadLeavesOutCompressedSectionsForDebuggers(t *testing.T) {
	im := objectWith(elfimage.Section{Name: ".debug_info", Kind: elf.SHT_PROGBITS,
		Flags: elf.SHF_COMPRESSED, Data: compressedZeroes(t, 1<<20)})
	im.AddSymbols(elf.SHT_SYMTAB, "")
	_, err := load(bytes.NewReader(im.Bytes()))
	qt.Check(t, qt.IsNil(err))
}

func objectWith(sections ...elfimage.Section) *elfimage.Image {
	im := elfimage.New64()
	im.Machine, im.Type, im.Segments, im.Sections = elf.EM_BPF, elf.ET_REL, nil, sections
	return im
}

// types is a section of types of a kind, all of one name.
func types(name string, count int, kind, size uint32) elfimage.Section {
	b := []byte{0x9f, 0xeb, 1, 0}
	texts := "\x00" + name + "\x00"
	for _, word := range []int{24, 0, 12 * count, 12 * count, len(texts)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(word))
	}
	for i := range count {
		to := size
		if size == 0 {
			to = uint32(i + 2) // the next type: they are a chain
		}
		b = binary.LittleEndian.AppendUint32(b, min(uint32(len(name)), 1))
		b = binary.LittleEndian.AppendUint32(b, kind<<24)
		b = binary.LittleEndian.AppendUint32(b, to)
	}
	return elfimage.Section{Name: ".BTF", Kind: elf.SHT_PROGBITS, Data: append(b, texts...)}
}

func compressedZeroes(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []any{uint32(elf.COMPRESS_ZLIB), uint32(0), uint64(size), uint64(1)} {
		qt.Assert(t, qt.IsNil(binary.Write(&b, binary.LittleEndian, v)))
	}
	w := zlib.NewWriter(&b)
	_, err := w.Write(make([]byte, size))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(w.Close()))
	return b.Bytes()
}
