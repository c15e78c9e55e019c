// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// eachRealString calls yield for the strings of real programs, and returns of
// how many machines they are.
func eachRealString(tb testing.TB, yield func(elf.Machine, elf.Class, string)) (machines int) {
	file, err := os.Open("testdata/real.txt")
	qt.Assert(tb, qt.IsNil(err))
	defer file.Close()
	var machine elf.Machine
	var class elf.Class
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "machine":
			machine, err = testprog.MachineNamed(rest)
			qt.Assert(tb, qt.IsNil(err))
			machines++
		case "class":
			class = elf.ELFCLASS64
			if rest == "32" {
				class = elf.ELFCLASS32
			}
		default:
			yield(machine, class, line)
		}
	}
	qt.Assert(tb, qt.IsNil(lines.Err()))
	return machines
}

func TestParseReadsEveryStringOfRealPrograms(t *testing.T) {
	program := testFile{symbol: everySymbol(0x4000)}
	machines := eachRealString(t, func(machine elf.Machine, class elf.Class, line string) {
		program.machine, program.class = machine, class
		args := program.decode(0x1000, line)
		checkInvariants(t, line, args)
		// Compilers write a size for each argument, and @ for nothing
		// else but relocations.
		sizes := strings.Count(line, "@") - strings.Count(line, "@GOT")
		qt.Check(t, qt.HasLen(args, sizes), qt.Commentf("%s: %s", machine, line))
		for _, a := range args {
			qt.Check(t, qt.IsNil(a.Err), qt.Commentf("%s: %s", machine, line))
		}
	})
	qt.Assert(t, qt.Equals(machines, 8))
}

func TestArgStringIsForPeople(t *testing.T) {
	program := x86
	program.kind = elf.ET_EXEC
	program.symbol = func(name string) (elf.Symbol, error) {
		if name == "counter" {
			return newSymbol(elf.STT_OBJECT, 0x404010), nil
		}
		return elf.Symbol{}, errNoSuchSymbol
	}
	for _, test := range []struct{ text, want string }{
		{"-4@-20(%rbp)", "i32 @ [rbp-20]"},
		{"8f@8(%rsp)", "f64 @ [rsp+8]"},
		{"-4@$17", "i32 @ 17"},
		{"-4@$-17", "i32 @ -17"},
		{"8@$-1", "u64 @ 18446744073709551615"},
		{"1@%ah", "u8 @ ah"},
		{"8@%rax", "u64 @ rax"},
		{"8@(%rax)", "u64 @ [rax]"},
		{"8@16(%rax,%rcx,8)", "u64 @ [rax+rcx*8+16]"},
		{"8@(%rax,%rcx)", "u64 @ [rax+rcx]"},
		{"8@-8(,%rcx,4)", "u64 @ [rcx*4-8]"},
		{"8@counter", "u64 @ [0x404010]"},
		{"8@counter(%rip)", "u64 @ [rip+4206608]"},
		{"12@-60(%rbp)", "12 bytes @ [rbp-60]"},
		{"16f@(%rsp)", "16 bytes @ [rsp]"},
		{"16@%rax", "unavailable: size is not 1, 2, 4 or 8 bytes, or a float's 4 or 8 (16@%rax)"},
		{"8f@%xmm0",
			"unavailable: vector or floating point register xmm0: not in pt_regs (8f@%xmm0)"},
		{"8@gone(%rip)", "unavailable: no such symbol (8@gone(%rip))"},
		{"8@8(%rbp", "unavailable: unexpected end: malformed operand (8@8(%rbp)"},
		{"8@", "unavailable: nothing after the size: malformed operand (8@)"},
	} {
		args := program.decode(0x1000, test.text)
		qt.Assert(t, qt.HasLen(args, 1))
		qt.Check(t, qt.Equals(args[0].String(), test.want))
	}
	// The address of a symbol, which a position-independent file does not know.
	program.kind = elf.ET_DYN
	qt.Check(t, qt.Equals(program.decode(0x1000, "8@$counter")[0].String(),
		"u64 @ rip+4206608"))
	program.kind = elf.ET_EXEC
	qt.Check(t, qt.Equals(program.decode(0x1000, "8@$counter")[0].String(), "u64 @ 4210704"))
	// A wrapped address is shown as the program sees it.
	program.machine = elf.EM_386
	program.symbol = everySymbol(0xf0000000)
	qt.Check(t,
		qt.Equals(program.decode(0x1000, "4@high")[0].String(), "u32 @ [0xf0000000]"))
	// Two registers.
	qt.Check(t, qt.Equals(program.decode(0x1000, "-8@%eax")[0].String(), "i64 @ edx:eax"))
	// Bare register numbers get a letter.
	program.machine = elf.EM_PPC64
	qt.Check(t, qt.Equals(program.decode(0x1000, "8@16(9)")[0].String(), "u64 @ [r9+16]"))
	qt.Check(t, qt.Equals(Arg{}.String(), "unavailable"))
}

func TestKindsHaveNames(t *testing.T) {
	qt.Check(t, qt.Equals(Unavailable.String(), "unavailable"))
	qt.Check(t, qt.Equals(Constant.String(), "constant"))
	qt.Check(t, qt.Equals(InRegister.String(), "register"))
	qt.Check(t, qt.Equals(Memory.String(), "memory"))
	qt.Check(t, qt.Equals(Address.String(), "address"))
	qt.Check(t, qt.Equals(Bytes.String(), "bytes"))
	qt.Check(t, qt.Equals(Kind(77).String(), "unavailable"))
}

func TestUnavailableErrorsTellReasonAndCause(t *testing.T) {
	cause := errors.New("two symbols")
	program := x86
	program.symbol = func(string) (elf.Symbol, error) { return elf.Symbol{}, cause }
	args := program.decode(0x1000, "4@twice(%rip) 8@%xmm1")
	qt.Assert(t, qt.ErrorIs(args[0].Err, errSymbol))
	qt.Assert(t, qt.ErrorIs(args[0].Err, cause))
	var unavailable *unavailableError
	qt.Assert(t, qt.ErrorAs(args[0].Err, &unavailable))
	qt.Check(t, qt.Equals(unavailable.raw, "4@twice(%rip)"))
	qt.Check(t, qt.ErrorIs(args[1].Err, errNotSaved))
	qt.Check(t, qt.IsFalse(errors.Is(args[1].Err, errSymbol)))
	// What could be told is kept.
	qt.Check(t, qt.Equals(args[1].Size, 8))
}

func TestReasonsAreTextsInJSON(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"8@%cr0", "register cr0: not in pt_regs (8@%cr0)"},
		{"12@(%rsp)", "size is not 1, 2, 4 or 8 bytes, or a float's 4 or 8 (12@(%rsp))"},
		{strings.Repeat("8@$1 ", maxListed) + "8@$2", "more than 256 arguments (8@$2)"},
	} {
		args := Parse(elf.EM_X86_64, test.text)
		text, err := json.Marshal(args[len(args)-1])
		qt.Assert(t, qt.IsNil(err))
		var decoded struct{ Err string }
		qt.Assert(t, qt.IsNil(json.Unmarshal(text, &decoded)))
		qt.Check(t, qt.Equals(decoded.Err, test.want))
	}
}

func TestSymbolsAreAskedForOnlyWhereTheyMatter(t *testing.T) {
	program := x86
	asked := 0
	program.symbol = func(string) (elf.Symbol, error) {
		asked++
		return newSymbol(elf.STT_OBJECT,
			0x2000), nil
	}
	program.decode(0x1000, "8@%rax -4@-20(%rbp) 8@$5 8@.LC0(%rip) 8@x@GOT(%rip) 4@[rbp - 8]")
	qt.Assert(t, qt.Equals(asked, 0))
	program.decode(0x1000, "8@x(%rip)")
	qt.Assert(t, qt.Equals(asked, 1))
}

func TestRelativeArgumentsDifferBySite(t *testing.T) {
	program := x86
	program.symbol = everySymbol(0x4000)
	here := program.decode(0x1000, "8@x+8(%rip) 8@8(%rip)")
	there := program.decode(0x1010, "8@x+8(%rip) 8@8(%rip)")
	qt.Check(t, qt.Equals(here[0].Displacement, 0x3008))
	qt.Check(t, qt.Equals(there[0].Displacement, 0x2ff8))
	qt.Check(t, qt.Equals(here[1], there[1]))
	// Addresses below the site, and sums that wrap, are no special case.
	program.symbol = everySymbol(0)
	qt.Check(t, qt.Equals(program.decode(1<<63, "8@x(%rip)")[0].Displacement, -1<<63))
}

func TestAClassOfNoneIsTheUsualOne(t *testing.T) {
	for machine, want := range map[elf.Machine]int{
		elf.EM_X86_64: 8, elf.EM_386: 4, elf.EM_AARCH64: 8, elf.EM_ARM: 4, elf.EM_S390: 8,
		elf.EM_RISCV: 8,
	} {
		text := map[elf.Machine]string{elf.EM_X86_64: "$1", elf.EM_386: "$1",
			elf.EM_ARM: "#1"}[machine]
		if text == "" {
			text = "1"
		}
		args := Parse(machine, text)
		qt.Check(t, qt.Equals(args[0].Size, want), qt.Commentf("%s", machine))
	}
}

func TestTooManyArgumentsAreOneMore(t *testing.T) {
	one := "4@%eax "
	args := Parse(elf.EM_X86_64, strings.Repeat(one, maxListed))
	qt.Assert(t, qt.HasLen(args, maxListed))
	qt.Assert(t, qt.IsNil(args[maxListed-1].Err))
	text := strings.Repeat(one, maxListed+1000)
	args = Parse(elf.EM_X86_64, text)
	qt.Assert(t, qt.HasLen(args, maxListed+1))
	last := args[maxListed]
	qt.Assert(t, qt.ErrorIs(last.Err, errTooMany))
	qt.Assert(t, qt.Equals(last.Raw, strings.TrimRight(strings.Repeat(one, 1000), " ")))
	checkInvariants(t, text, args)
}

func TestDecodeReusesMemory(t *testing.T) {
	args := Parse(elf.EM_X86_64, "8@%rax 8@gone(%rip)")
	before := &args[0]
	args = Decode(args[:0], &x86, 0, "-4@%ebx")
	qt.Assert(t, qt.HasLen(args, 1))
	qt.Assert(t, qt.Equals(&args[0], before))
	qt.Assert(t, qt.Equals(args[0], Parse(elf.EM_X86_64, "-4@%ebx")[0]))
	args = Decode(args, &x86, 0, "8@%rcx")
	qt.Assert(t, qt.Equals(args[1].Register.Name, "rcx"))
}

func TestParsingAllocatesNothingButItsResult(t *testing.T) {
	args := make([]Arg, 0, 12)
	program := x86
	program.symbol = everySymbol(0x4000)
	allocations := testing.AllocsPerRun(100, func() {
		args = Decode(args[:0], &program, 0x1000,
			"8@%rax -4@-20(%rbp) 8@(%rax,%rcx,8) 8@x+8(%rip) -4@$5 1@%ah")
	})
	qt.Assert(t, qt.Equals(allocations, 0))
}

func TestGlobalOfAnUnknownMachineIsUnavailable(t *testing.T) {
	symbol := func(string) (elf.Symbol, error) {
		return elf.Symbol{Value: 0x2000, Size: 8, Section: 1, Info: byte(elf.STT_OBJECT)}, nil
	}
	arg := Global(&testFile{machine: elf.EM_MIPS, symbol: symbol}, 0x1000, "counter")
	qt.Assert(t, qt.Equals(arg.Kind, Unavailable))
	qt.Check(t, qt.ErrorIs(arg.Err, errMachine))
}

// Nothing is known of a file that is nil, and nothing panics.
func TestWithoutAFile(t *testing.T) {
	qt.Check(t, qt.ErrorIs(Global(nil, 0, "x").Err, ErrNeedsSymbol))
	for _, a := range Decode(nil, nil, 0, "8@counter(%rip) 8@%rax -4@$1") {
		qt.Check(t, qt.Equals(a.Kind, Unavailable))
		qt.Check(t, qt.ErrorIs(a.Err, errMachine))
		_, err := a.Encode(elf.EM_X86_64)
		qt.Check(t, qt.Equals(err, a.Err))
	}
}

// Callers do something else for each kind of reason.
func TestKindsOfErrors(t *testing.T) {
	for _, test := range []struct {
		text string
		want error
	}{
		{"8@counter(%rip)", ErrNeedsSymbol},
		{"8@%xmm0", ErrNotSaved},
		{"8@%cr0", ErrNotSaved},
		{"8@8(%rbp", ErrMalformed},
		{"8@%eex", ErrMalformed},
		{"8@$99999999999999999999", ErrMalformed},
		{"8@.LC0(%rip)", nil},
		{"12@%rax", nil},
	} {
		err := Parse(elf.EM_X86_64, test.text+" 8@%rax")[0].Err
		qt.Assert(t, qt.IsNotNil(err), qt.Commentf(test.text))
		for _, kind := range []error{ErrNeedsSymbol, ErrNotSaved, ErrMalformed} {
			qt.Check(t, qt.Equals(errors.Is(err, kind), kind == test.want),
				qt.Commentf("%s, %v", test.text, kind))
		}
	}
	qt.Check(t, qt.ErrorIs(Parse(elf.EM_MIPS, "4@$2")[0].Err, errMachine))

	// What runs on one kernel is not saved by another.
	arg := Parse(elf.EM_AARCH64, "8@x0")[0]
	_, err := arg.Encode(elf.EM_X86_64)
	qt.Check(t, qt.ErrorIs(err, ErrNotSaved))
}
