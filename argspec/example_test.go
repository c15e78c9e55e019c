// SPDX-License-Identifier: BSD-2-Clause

package argspec_test

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gousdt/gousdt/argspec"
)

func ExampleParse() {
	target := argspec.Target{
		Machine:  elf.EM_X86_64,
		Class:    elf.ELFCLASS64,
		Location: 0x401136, // of the probe's site
		Symbol: func(name string) (uint64, error) {
			if name == "counter" {
				return 0x404010, nil
			}
			return 0, errors.New("no such symbol")
		},
	}
	for _, arg := range argspec.Parse(target, "-4@-20(%rbp) 8@counter(%rip) 1@$200 8f@%xmm0") {
		fmt.Println(arg)
	}
	// Output:
	// 4 signed @ [rbp-20]
	// 8 unsigned @ [rip+11994]
	// 1 unsigned @ 200
	// unavailable: vector or floating point register xmm0: not in pt_regs (8f@%xmm0)
}

func ExampleRegister_Slot() {
	// A 32-bit program on the 64-bit kernel that runs it.
	arg := argspec.Parse(argspec.Target{Machine: elf.EM_386}, "4@%esp")[0]
	slot, ok := arg.Register.Slot(elf.EM_X86_64)
	fmt.Println(arg.Register.Name, slot*8, ok) // offset in struct pt_regs
	// Output: esp 152 true
}

func ExampleEncode() {
	target := argspec.Target{Machine: elf.EM_X86_64}
	args := argspec.Parse(target, "8@%rdi")
	spec := argspec.Encode(elf.EM_X86_64, binary.LittleEndian, 7, args)
	fmt.Printf("% x\n", spec[:16])
	// Equal specs can share one place in the map.
	same := argspec.Encode(elf.EM_X86_64, binary.LittleEndian, 7, argspec.Parse(target, "8@%edi"))
	fmt.Println(spec == same)
	// Output:
	// 00 00 00 00 00 00 00 00 02 08 00 00 0e ff 00 00
	// true
}
