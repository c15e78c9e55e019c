// SPDX-License-Identifier: BSD-2-Clause

package elfnote_test

import (
	"debug/elf"
	"fmt"
	"log"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// The sites of all probes, on any machine for any machine.
func ExampleFile_Sites() {
	f, err := elfnote.Open("testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Header().Machine, f.Header().Type)
	for site, err := range f.Sites() {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s:%s at %#x: %q\n", site.Provider, site.Name, site.Offset, site.Arguments)
	}
	// Output:
	// EM_S390 ET_DYN
	// elf:plain at 0x3a4: ""
	// elf:places at 0x3ba: "-8@%r1 -4@%r3 1@%r4 -8@160(%r15) -8@0(%r2,%r5)"
	// elf:copies at 0x3c4: "-8@%r1"
	// elf:copies at 0x3c8: "-8@17"
	// note 4, probe "elf:unplaced": semaphore is in the zeroed tail (bss) of its segment and has no file offset: 0x2060
	// elf:guarded at 0x414: "-8@0(%r11) -4@-5"
	// other:plain at 0x458: "-2@%r2"
}

// Patterns choose probes, whose arguments package argspec decodes.
func ExamplePattern() {
	file, err := elfnote.Open("testdata/arm64.pie")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	patterns := []elfnote.Pattern{elfnote.Exact("elf", "plain"), elfnote.MustParsePattern("elf:c*")}
	for site, err := range file.Sites() {
		switch {
		case err != nil:
			fmt.Println(err) // one malformed note; the others follow
		case slices.ContainsFunc(patterns, func(p elfnote.Pattern) bool {
			return p.Match(site.Provider, site.Name)
		}):
			args := argspec.Decode(nil, file, site.Location, site.Arguments)
			fmt.Printf("%s:%s at %#x: %v\n", site.Provider, site.Name, site.Offset, args)
		}
	}
	// Output:
	// elf:plain at 0x254: []
	// elf:copies at 0x26c: [i64 @ x4]
	// elf:copies at 0x270: [i64 @ 17]
	// note 4, probe "elf:unplaced": semaphore is in the zeroed tail (bss) of its segment and has no file offset: 0x2050
}

// What the names in argument strings stand for.
func ExampleFile_Symbol() {
	file, err := elfnote.Open("testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	symbol, err := file.Symbol("counter")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%#x %d %v\n", symbol.Value, symbol.Size, file.IsProgram())
	// Output:
	// 0x2050 8 false
}

// A program that has an ELF reader of its own hands over the notes.
func ExampleNoteSites() {
	file, err := elf.Open("testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	notes, err := file.Section(".note.stapsdt").Data()
	if err != nil {
		log.Fatal(err)
	}
	var base uint64
	if section := file.Section(".stapsdt.base"); section != nil {
		base = section.Addr
	}
	var segments []elf.ProgHeader
	for _, segment := range file.Progs {
		segments = append(segments, segment.ProgHeader)
	}
	for site, err := range elfnote.NoteSites(notes, file.FileHeader, base, segments) {
		if err != nil {
			fmt.Println("skipped:", err)
			continue
		}
		fmt.Printf("%s:%s at offset %#x\n", site.Provider, site.Name, site.Offset)
		break
	}
	// Output:
	// elf:plain at offset 0x3a4
}
