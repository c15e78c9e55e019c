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
func ExampleDecode() {
	file, err := elfnote.Open("../elfnote/testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	for site, err := range file.Sites() {
		if err != nil {
			continue // a malformed note hides no other
		}
		fmt.Println(site.Provider, site.Name)
		for i, arg := range argspec.Decode(nil, file, site.Location, site.Arguments) {
			fmt.Println("   ", i, arg)
		}
	}
	// Output:
	// elf plain
	// elf places
	//     0 i64 @ r1
	//     1 i32 @ r3
	//     2 u8 @ r4
	//     3 i64 @ [r15+160]
	//     4 i64 @ [r5+r2]
	// elf copies
	//     0 i64 @ r1
	// elf copies
	//     0 i64 @ 17
	// elf guarded
	//     0 i64 @ [r11]
	//     1 i32 @ -5
	// other plain
	//     0 i16 @ r2
}

// Where an argument is, for a program that fetches it by other means.
func ExampleArg() {
	file, err := elfnote.Open("../elfnote/testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	for site, err := range file.Sites() {
		if err != nil {
			log.Print(err) // one malformed note; the others follow
			continue
		}
		for _, arg := range argspec.Decode(nil, file, site.Location, site.Arguments) {
			switch arg.Kind {
			case argspec.Constant:
				fmt.Println(site.Name, arg.Constant)
			case argspec.InRegister:
				slot, _ := arg.Register.Slot(file.Header().Machine) // its place in pt_regs
				fmt.Println(site.Name, arg.Register.Name, "in slot", slot)
			case argspec.Memory:
				fmt.Printf("%s [%s + %s*%d + %d]\n", site.Name,
					arg.Base.Name, arg.Index.Name, arg.Scale, arg.Displacement)
			default:
				fmt.Println(site.Name, "not available:", arg.Err)
			}
		}
	}
}

// A stripped library lacks the symbols that its arguments name. They are in its
// separate debug file, which need not be named if it is installed.
func ExampleDecode_debugFile() {
	file, err := elfnote.Open("../cmd/usdtlist/testdata/shop-amd64")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	const arguments = "-8@stock_of_apples(%rip) -8@(%rax,%rdx,8)"
	fmt.Println(argspec.Decode(nil, file, 0x1f8, arguments)[0])

	if err := file.UseDebugFile("../cmd/usdtlist/testdata/shop-amd64.debug"); err != nil {
		log.Fatal(err)
	}
	for _, arg := range argspec.Decode(nil, file, 0x1f8, arguments) {
		fmt.Println(arg)
	}
	// Output:
	// unavailable: symbol "stock_of_apples": not defined in the file (-8@stock_of_apples(%rip))
	// i64 @ [rip+4432]
	// i64 @ [rax+rdx*8]
}

func ExampleParse() {
	for _, arg := range argspec.Parse(elf.EM_X86_64, "-4@-20(%rbp) 1@$200 12@8(%rsp) 8f@%xmm0") {
		fmt.Println(arg)
	}
	// Output:
	// i32 @ [rbp-20]
	// u8 @ 200
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
