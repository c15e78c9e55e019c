// SPDX-License-Identifier: BSD-2-Clause

package elfnote_test

import (
	"fmt"
	"log"

	"github.com/gousdt/gousdt/elfnote"
)

// The sites of all probes, on any machine for any machine.
func ExampleFile_Sites() {
	f, err := elfnote.Open("testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Machine(), f.Kind())
	for site, err := range f.Sites() {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s:%s at %#x: %q\n", site.Provider, site.Name, site.Offset, site.Arguments)
	}
	// Output:
	// EM_S390 position-independent file
	// elf:plain at 0x3a4: ""
	// elf:places at 0x3ba: "-8@%r1 -4@%r3 1@%r4 -8@160(%r15) -8@0(%r2,%r5)"
	// elf:copies at 0x3c4: "-8@%r1"
	// elf:copies at 0x3c8: "-8@17"
	// note 4, probe "elf:unplaced": semaphore is in the zeroed tail (bss) of its segment and has no file offset: 0x2060
	// elf:guarded at 0x414: "-8@0(%r11) -4@-5"
	// other:plain at 0x458: "-2@%r2"
}

// Probes that a pattern selects, with their sites.
func ExampleFile_Probes() {
	f, err := elfnote.Open("testdata/arm64.pie")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	pattern, err := elfnote.ParsePattern("elf:c*")
	if err != nil {
		log.Fatal(err)
	}
	listing, err := f.Probes(pattern)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range listing.Probes {
		fmt.Printf("%s:%s has %d sites\n", p.Provider, p.Name, len(p.Sites))
	}
	// Output:
	// elf:copies has 2 sites
}
