// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/argspec"
)

// Encode returns the spec of a site.
func Encode(
	kernel elf.Machine, order binary.ByteOrder, cookie uint64, args []argspec.Arg,
) (spec [Size]byte) {
	encode(spec[:], kernel, order, cookie, args)
	return spec
}

// golden is the result of Encode for one string: of each argument the value as
// on a little-endian kernel, then the eight bytes that do not depend on the
// byte order.
var golden = []struct {
	program, kernel elf.Machine
	text            string
	arguments       [][2]string
}{
	{elf.EM_X86_64, elf.EM_X86_64,
		"-4@-20(%rbp) 8@%rax 1@%ah -8@$-2 8@16(%rax,%rcx,8) 8f@%xmm0 4@-4(%ebp) 24@(%rsp) -2@16(%rip) 8@(,%rdx,4)",
		[][2]string{
			{"ecffffffffffffff", "03 04 01 00 04 ff 00 00"},
			{"0000000000000000", "02 08 00 00 0a ff 00 00"},
			{"0000000000000000", "02 01 00 08 0a ff 00 00"},
			{"feffffffffffffff", "01 08 01 00 ff ff 00 00"},
			{"1000000000000000", "03 08 00 00 0a 0b 03 00"},
			{"0000000000000000", "00 08 00 00 ff ff 00 00"},
			{"fcffffffffffffff", "03 04 02 00 04 ff 00 00"},
			{"0000000000000000", "05 18 00 00 13 ff 00 00"},
			{"1000000000000000", "03 02 01 00 10 ff 00 00"},
			{"0000000000000000", "03 08 00 00 ff 0c 02 00"},
		}},
	{elf.EM_386, elf.EM_X86_64,
		"4@%eax 1@%bh -4@-8(%ebp,%esi,2) 8@%ebp -1@$200 -8@%edx 4@$start",
		[][2]string{
			{"0000000000000000", "02 04 00 00 0a ff 00 00"},
			{"0000000000000000", "02 01 00 08 05 ff 00 00"},
			{"f8ffffffffffffff", "03 04 03 00 04 0d 01 00"},
			{"0000000000000000", "00 08 00 00 ff ff 00 00"},
			{"c8ffffffffffffff", "01 01 01 00 ff ff 00 00"},
			{"0000000000000000", "04 08 11 00 0c 0b 20 00"},
			{"00f0ffffffffffff", "04 04 02 00 10 ff 00 00"},
		}},
	{elf.EM_AARCH64, elf.EM_AARCH64,
		"8@x30 -4@[sp, 12] 1@w3 8@[x0, x1, lsl 4] 65535@[x0]",
		[][2]string{
			{"0000000000000000", "02 08 00 00 1e ff 00 00"},
			{"0c00000000000000", "03 04 01 00 1f ff 00 00"},
			{"0000000000000000", "02 01 00 00 03 ff 00 00"},
			{"0000000000000000", "03 08 00 00 00 01 04 00"},
			{"0000000000000000", "05 00 00 00 00 ff 00 00"},
		}},
	{elf.EM_ARM, elf.EM_ARM,
		"4@r11 -4@[sp, #-4] 4@pc 1@[r0, r1, lsl #7] 8f@#1.0e+0",
		[][2]string{
			{"0000000000000000", "02 04 00 00 0b ff 00 00"},
			{"fcffffffffffffff", "03 04 03 00 0d ff 00 00"},
			{"0000000000000000", "02 04 00 00 0f ff 00 00"},
			{"0000000000000000", "03 01 02 00 00 01 07 00"},
			{"000000000000f03f", "01 08 00 00 ff ff 00 00"},
		}},
	{elf.EM_ARM, elf.EM_AARCH64,
		"4@r11 4@pc -4@[sp, #-4]",
		[][2]string{
			{"0000000000000000", "02 04 00 00 0b ff 00 00"},
			{"0000000000000000", "02 04 00 00 20 ff 00 00"},
			{"fcffffffffffffff", "03 04 03 00 0d ff 00 00"},
		}},
	{elf.EM_S390, elf.EM_S390,
		"8@%r2 -4@164(%r15) 8@8(%r1,%r2) 2@0(%r0) -4@-1",
		[][2]string{
			{"0000000000000000", "02 08 00 00 05 ff 00 00"},
			{"a400000000000000", "03 04 01 00 12 ff 00 00"},
			{"0800000000000000", "03 08 00 00 05 04 00 00"},
			{"0000000000000000", "03 02 00 00 ff ff 00 00"},
			{"ffffffffffffffff", "01 04 01 00 ff ff 00 00"},
		}},
	{elf.EM_PPC64, elf.EM_PPC64,
		"8@31 -4@i-5 2@6(1) 8@9,10 8@0,9",
		[][2]string{
			{"0000000000000000", "02 08 00 00 1f ff 00 00"},
			{"fbffffffffffffff", "01 04 01 00 ff ff 00 00"},
			{"0600000000000000", "03 02 00 00 01 ff 00 00"},
			{"0000000000000000", "03 08 00 00 09 0a 00 00"},
			{"0000000000000000", "03 08 00 00 09 ff 00 00"},
		}},
	{elf.EM_RISCV, elf.EM_RISCV,
		"8@a0 -4@-20(s0) 1@200 8@t6",
		[][2]string{
			{"0000000000000000", "02 08 00 00 0a ff 00 00"},
			{"ecffffffffffffff", "03 04 01 00 08 ff 00 00"},
			{"c800000000000000", "01 01 00 00 ff ff 00 00"},
			{"0000000000000000", "02 08 00 00 1f ff 00 00"},
		}},
	{elf.EM_LOONGARCH, elf.EM_LOONGARCH,
		"8@$r4 -4@$r22,-20 8@$r12,$r13 4@5",
		[][2]string{
			{"0000000000000000", "02 08 00 00 04 ff 00 00"},
			{"ecffffffffffffff", "03 04 01 00 16 ff 00 00"},
			{"0000000000000000", "03 08 00 00 0c 0d 00 00"},
			{"0500000000000000", "01 04 00 00 ff ff 00 00"},
		}},
	{elf.EM_X86_64, elf.EM_S390, // a kernel that cannot run the program
		"-4@-20(%rbp) 8@%rax 8@(,%rcx,8) 8@$1",
		[][2]string{
			{"0000000000000000", "00 04 00 00 ff ff 00 00"},
			{"0000000000000000", "00 08 00 00 ff ff 00 00"},
			{"0000000000000000", "00 08 00 00 ff ff 00 00"},
			{"0100000000000000", "01 08 00 00 ff ff 00 00"},
		}},
	{elf.EM_MIPS, elf.EM_MIPS,
		"-4@$4",
		[][2]string{{"0000000000000000", "00 04 00 00 ff ff 00 00"}}},
}

// library is a position-independent file that has all symbols at address 0.
type library struct{ machine elf.Machine }

func (l library) Header() elf.FileHeader {
	return elf.FileHeader{Machine: l.machine, Type: elf.ET_DYN}
}

func (library) IsProgram() bool { return true }
func (library) Symbol(string) (elf.Symbol, error) {
	return elf.Symbol{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Section: 1}, nil
}

// decode decodes a string of a site at 0x1000.
func decode(machine elf.Machine, text string) []argspec.Arg {
	return argspec.Decode(nil, library{machine}, 0x1000, text)
}

func unhex(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	qt.Assert(t, qt.IsNil(err))
	return b
}

func TestEncodeWritesTheBytesThatTheHeaderReads(t *testing.T) {
	const cookie = 0x1122334455667788
	for _, test := range golden {
		args := decode(test.program, test.text)
		for _, order := range []interface {
			binary.ByteOrder
			binary.AppendByteOrder
		}{binary.LittleEndian, binary.BigEndian} {
			var want []byte
			for _, argument := range test.arguments {
				value := binary.LittleEndian.Uint64(unhex(t, argument[0]))
				want = append(append(want, order.AppendUint64(nil, value)...),
					unhex(t, argument[1])...)
			}
			want = append(want, make([]byte, 192-len(want))...)
			want = order.AppendUint64(want, cookie)
			want = order.AppendUint16(want, uint16(len(test.arguments)))
			want = append(want, 0, 0, 0, 0, 0, 0)
			spec := Encode(test.kernel, order, cookie, args)
			qt.Check(t, qt.Equals(hex.Dump(spec[:]), hex.Dump(want)),
				qt.Commentf("%s on %s, %s: %s", test.program, test.kernel, order, test.text))
		}
	}
}

func TestEncodeTakesTheFirstTwelveArguments(t *testing.T) {
	text := strings.Repeat("8@%rax ", 11) + "1@%bl"
	twelve := argspec.Parse(elf.EM_X86_64, text)
	more := argspec.Parse(elf.EM_X86_64, text+" 2@%cx 4@%edx")
	qt.Assert(t, qt.HasLen(more, 14))
	spec := Encode(elf.EM_X86_64, binary.LittleEndian, 0, more)
	qt.Check(t, qt.Equals(spec, Encode(elf.EM_X86_64, binary.LittleEndian, 0, twelve)))
	qt.Check(t, qt.Equals(spec[200], 12))
	qt.Check(t, qt.Equals(spec[11*16+9], 1))
	none := Encode(elf.EM_X86_64, binary.LittleEndian, 0, nil)
	qt.Check(t, qt.Equals(none, [Size]byte{}))
}

func TestEncodeTakesAnArgMadeByHand(t *testing.T) {
	arg := argspec.Arg{Kind: argspec.Memory, Size: 8, Base: argspec.Parse(elf.EM_X86_64,
		"%rsp")[0].Register}
	spec := Encode(elf.EM_X86_64, binary.LittleEndian, 0, []argspec.Arg{arg})
	qt.Check(t, qt.Equals(spec, Encode(elf.EM_X86_64, binary.LittleEndian, 0,
		argspec.Parse(elf.EM_X86_64, "8@(%rsp)"))))
	qt.Check(t, qt.Equals(Encode(elf.EM_X86_64, binary.LittleEndian, 0,
		[]argspec.Arg{{Size: -1}})[9], 0))
}

func TestEqualPlacesGiveEqualSpecs(t *testing.T) {
	encode := func(text string, cookie uint64) [Size]byte {
		return Encode(elf.EM_X86_64, binary.NativeEndian, cookie,
			argspec.Parse(elf.EM_X86_64, text))
	}
	qt.Check(t, qt.Equals(encode("8@%rax -4@-20(%rbp)", 1), encode("8@%eax  -4@-24+4(%rbp)", 1)))
	qt.Check(t, qt.Not(qt.Equals(encode("8@%rax", 1), encode("8@%rax", 2))))
	qt.Check(t, qt.Not(qt.Equals(encode("8@%rax", 1), encode("-8@%rax", 1))))
	// Unreadable arguments share a spec, whatever the reason.
	qt.Check(t, qt.Equals(encode("8@%xmm0", 1), encode("8@%xmm1", 1)))
}

func TestEncodingAllocatesNothing(t *testing.T) {
	args := argspec.Parse(elf.EM_X86_64, "8@%rax -4@-20(%rbp) 8@(%rax,%rcx,8) -4@$5")
	spec := make([]byte, Size)
	allocations := testing.AllocsPerRun(100, func() {
		encode(spec, elf.EM_X86_64, binary.NativeEndian, 1, args)
	})
	qt.Assert(t, qt.Equals(allocations, 0))
	qt.Assert(t, qt.Not(qt.DeepEquals(spec, make([]byte, Size))))
}

// BenchmarkEncode encodes six arguments.
func BenchmarkEncode(b *testing.B) {
	args := argspec.Parse(elf.EM_X86_64, "8@%rbx 8@8(%rbx) 2@%ax 1@%sil 8@%r13 -4@48(%rsp)")
	b.ReportAllocs()
	spec := make([]byte, Size)
	for b.Loop() {
		clear(spec)
		encode(spec, elf.EM_X86_64, binary.LittleEndian, 1, args)
		if spec[offsetCount] != 6 {
			b.Fatal("wrong count")
		}
	}
}
