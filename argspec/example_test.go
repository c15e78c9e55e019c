// SPDX-License-Identifier: BSD-2-Clause

package argspec_test

import (
	"debug/elf"
	"errors"
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
				slot, saved := arg.Register.Slot(file.Header().Machine) // its place in pt_regs
				fmt.Println(site.Name, arg.Register.Name, "in slot", slot, saved)
			case argspec.Memory:
				fmt.Printf("%s [%s + %s*%d + %d]\n", site.Name,
					arg.Base.Name, arg.Index.Name, arg.Scale, arg.Displacement)
			default:
				fmt.Println(site.Name, "not available:", arg.Err)
			}
		}
	}
}

// withDebugFile is a file that looks symbols up in its debug file, too.
type withDebugFile struct {
	*elfnote.File
	debug *elfnote.File
}

func (f withDebugFile) Symbol(name string) (elf.Symbol, error) {
	if symbol, err := f.File.Symbol(name); err == nil {
		return symbol, nil
	}
	return f.debug.Symbol(name)
}

// A stripped library lacks the symbols that its arguments name. They are in its
// separate debug file. DebugSymbols of package stack finds that.
func ExampleDecode_debugFile() {
	file, err := elfnote.Open("../cmd/usdtlist/testdata/shop-amd64")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	const arguments = "-8@stock_of_apples(%rip) -8@(%rax,%rdx,8)"
	fmt.Println(argspec.Decode(nil, file, 0x1f8, arguments)[0])

	debug, err := elfnote.Open("../cmd/usdtlist/testdata/shop-amd64.debug")
	if err != nil {
		log.Fatal(err)
	}
	defer debug.Close()
	for _, arg := range argspec.Decode(nil, withDebugFile{file, debug}, 0x1f8, arguments) {
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

// The numbers for the table of an eBPF program that reads arguments in its own
// way.
func ExampleArg_Encode() {
	for _, arg := range argspec.Parse(elf.EM_X86_64, "-4@-20(%rbp) 8@(%rdi,%rcx,8) 1@%ah 8@%xmm0") {
		e, err := arg.Encode(elf.EM_X86_64)
		switch {
		case errors.Is(err, argspec.ErrNotSaved):
			fmt.Println("not saved:", arg.Raw)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(arg.Kind, int64(e.Value), e.Register, e.Index, e.Scale, e.Shift)
		}
	}
	// Output:
	// memory -20 32 -1 0 0
	// memory 0 112 88 3 0
	// register 0 80 -1 0 8
	// not saved: 8@%xmm0
}

// parsed is a file that the program has read with debug/elf.
type parsed struct {
	*elf.File
	symbols []elf.Symbol
}

func (p *parsed) Header() elf.FileHeader { return p.FileHeader }

func (p *parsed) IsProgram() bool { return p.Type == elf.ET_EXEC }

func (p *parsed) Symbol(name string) (elf.Symbol, error) {
	for _, symbol := range p.symbols {
		if symbol.Name == name {
			return symbol, nil
		}
	}
	return elf.Symbol{}, fmt.Errorf("no symbol %s", name)
}

// A program with an ELF reader of its own lets Decode use that. What it does
// about an argument depends on why there is no value.
func ExampleFile() {
	file, err := elf.Open("../cmd/usdtlist/testdata/shop-amd64.debug")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		log.Fatal(err)
	}
	var f argspec.File = &parsed{file, symbols}
	for _, text := range []string{"-8@stock_of_apples(%rip)", "8@nowhere(%rip)", "8f@%xmm0", "8@("} {
		args := argspec.Decode(nil, f, 0x1f8, text)
		switch err := args[0].Err; {
		case errors.Is(err, argspec.ErrMalformed):
			fmt.Println("refuse the probe:", err)
		case errors.Is(err, argspec.ErrNeedsSymbol):
			fmt.Println("look for a debug file:", err)
		case err != nil:
			fmt.Println("leave it out:", err)
		default:
			fmt.Println(args[0])
		}
	}
	// Output:
	// i64 @ [rip+4432]
	// look for a debug file: no symbol nowhere (8@nowhere(%rip))
	// leave it out: vector or floating point register xmm0: not in pt_regs (8f@%xmm0)
	// refuse the probe: unexpected end: malformed operand (8@()
}

// An agent with a reader of its own in eBPF fills its own table: here an entry
// of 16 bytes for each argument.
func Example_ownTable() {
	type entry struct { // as the C side of the agent has it
		Value           uint64
		Register, Index int16 // offsets in struct pt_regs, -1 for none
		Kind            uint8 // 0: the agent's reader returns an error
		Size            int8  // negative for a signed value
		Scale, Shift    uint8
	}
	file, err := elfnote.Open("../elfnote/testdata/s390x.so")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	for site, err := range file.Sites() {
		if err != nil || site.Name != "places" {
			continue
		}
		for _, arg := range argspec.Decode(nil, file, site.Location, site.Arguments) {
			e := entry{Register: -1, Index: -1}
			where, err := arg.Encode(file.Header().Machine)
			// The table has no field for the size of an address or an index.
			if err == nil && arg.Err == nil && !arg.Address32 && arg.IndexSize == 0 {
				e = entry{Value: where.Value, Register: where.Register, Index: where.Index,
					Kind: uint8(arg.Kind), Size: int8(arg.Size), Scale: where.Scale, Shift: where.Shift}
				if arg.Signed {
					e.Size = -e.Size
				}
			}
			fmt.Println(e)
		}
	}
	// Output:
	// {0 32 -1 2 -8 0 0}
	// {0 48 -1 2 -4 0 0}
	// {0 56 -1 2 1 0 0}
	// {160 144 -1 3 -8 0 0}
	// {0 64 40 3 -8 0 0}
}
