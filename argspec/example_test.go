// SPDX-License-Identifier: BSD-2-Clause

package argspec_test

import (
	"debug/elf"
	"fmt"
	"log"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// The arguments of all probes of a file, of any machine.
func ExampleNewDecoder() {
	file, err := elfnote.Open("../elfnote/testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	decoder := argspec.NewDecoder(file)
	for site, err := range file.Sites() {
		if err != nil {
			continue // a malformed note hides no other
		}
		fmt.Printf("%s:%s", site.Provider, site.Name)
		for _, arg := range decoder.Decode(site.Location, site.Arguments) {
			fmt.Print(", ", arg)
		}
		fmt.Println()
	}
	// Output:
	// elf:plain
	// elf:places, 8 signed @ r1, 4 signed @ r3, 1 unsigned @ r4, 8 signed @ [r15+160], 8 signed @ [r5+r2]
	// elf:copies, 8 signed @ r1
	// elf:copies, 8 signed @ 17
	// elf:guarded, 8 signed @ [r11], 4 signed @ -5
	// other:plain, 2 signed @ r2
}

func ExampleParse() {
	for _, arg := range argspec.Parse(elf.EM_X86_64, "-4@-20(%rbp) 1@$200 12@8(%rsp) 8f@%xmm0") {
		fmt.Println(arg)
	}
	// Output:
	// 4 signed @ [rbp-20]
	// 1 unsigned @ 200
	// 12 bytes @ [rsp+8]
	// unavailable: vector or floating point register xmm0: not in pt_regs (8f@%xmm0)
}

// A 32-bit program on the 64-bit kernel that runs it.
func ExampleRegister_Slot() {
	arg := argspec.Parse(elf.EM_386, "4@%esp")[0]
	slot, ok := arg.Register.Slot(elf.EM_X86_64)
	fmt.Println(arg.Register.Name, slot*8, ok) // offset in struct pt_regs
	// Output: esp 152 true
}
