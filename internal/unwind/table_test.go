// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
)

const (
	framesAddress = 0x10000
	codeAddress   = 0x4000
	codeSize      = 0x100
	// initial is what functions of x86-64 begin with: the canonical frame
	// address is rsp+8, the return address below it.
	initial = "\x0c\x07\x08\x90\x01"
)

// framesOf returns a section with one function of x86-64, whose addresses are
// absolute.
func framesOf(augmentation, data, common, instructions string) []byte {
	order := binary.LittleEndian
	record := func(b []byte, text string) []byte {
		return append(order.AppendUint32(b, uint32(len(text))), text...)
	}
	cie := "\x00\x00\x00\x00\x01" + augmentation + "\x00\x01\x78\x10"
	sized := ""
	if strings.HasPrefix(augmentation, "z") {
		cie += string(rune(len(data))) + data
		sized = "\x00"
	}
	b := record(nil, cie+common)
	back := order.AppendUint32(nil, uint32(len(b)+4))
	where := order.AppendUint64(order.AppendUint64(nil, codeAddress), codeSize)
	b = record(b, string(back)+string(where)+sized+instructions)
	return append(b, 0, 0, 0, 0)
}

// newTable returns a table with work enough for a test.
func newTable(of elf.Machine, order binary.ByteOrder) *Table {
	return &Table{machine: machines[of], order: order, Work: math.MaxInt}
}

func tableOf(frames []byte) *Table {
	t := newTable(elf.EM_X86_64, binary.LittleEndian)
	t.frames = section{frames, framesAddress}
	t.makeIndex(nil)
	return t
}

// rowText returns the row for an address, as readelf would print it.
func rowText(t *Table, address uint64) (string, error) {
	r, err := t.row(address)
	if err != nil {
		return "", err
	}
	known := map[string]bool{"CFA": true, "ra": true, "rbx": true, "rbp": true, "r10": true}
	columns := strings.Fields("CFA rbx rbp r10 ra")
	texts := r.texts(elf.EM_X86_64, known, columns)
	var all []string
	for _, column := range columns {
		if text := texts[column]; text != "u" {
			all = append(all, column+"="+text)
		}
	}
	return strings.Join(all, " "), nil
}

func TestInstructions(t *testing.T) {
	for _, test := range []struct {
		name, instructions, want string // at the last byte of the function; "" for an error
	}{
		{"none", "", "CFA=rsp+8 ra=c-8"},
		{"nothing", "\x00\x00", "CFA=rsp+8 ra=c-8"},
		{"advance", "\x50\x0e\x10", "CFA=rsp+16 ra=c-8"},
		{"advance by a byte", "\x02\xff\x0e\x10", "CFA=rsp+16 ra=c-8"},
		{"advance by two bytes", "\x03\xff\x00\x0e\x10", "CFA=rsp+16 ra=c-8"},
		{"advance too far", "\x03\x00\x01\x0e\x10", "CFA=rsp+8 ra=c-8"},
		{"advance by four bytes", "\x04\x00\x01\x00\x00\x0e\x10", "CFA=rsp+8 ra=c-8"},
		{"set the location", "\x01\xff\x40\x00\x00\x00\x00\x00\x00\x0e\x10", "CFA=rsp+16 ra=c-8"},
		{"define the frame", "\x0c\x06\x10", "CFA=rbp+16 ra=c-8"},
		{"its register", "\x0d\x06", "CFA=rbp+8 ra=c-8"},
		{"its offset", "\x0e\xf0\x01", "CFA=rsp+240 ra=c-8"},
		{"factored", "\x12\x06\x7e", "CFA=rbp+16 ra=c-8"},
		{"its factored offset", "\x13\x7e", "CFA=rsp+16 ra=c-8"},
		{"expression", "\x0f\x02\x77\x08", "CFA=exp ra=c-8"},
		{"saved", "\x86\x02", "CFA=rsp+8 rbp=c-16 ra=c-8"},
		{"saved, extended", "\x05\x06\x02", "CFA=rsp+8 rbp=c-16 ra=c-8"},
		{"saved above", "\x11\x06\x7e", "CFA=rsp+8 rbp=c+16 ra=c-8"},
		{"saved above, as of old", "\x2f\x06\x02", "CFA=rsp+8 rbp=c+16 ra=c-8"},
		{"is an address", "\x14\x06\x02", "CFA=rsp+8 rbp=v-16 ra=c-8"},
		{"is an address above", "\x15\x06\x7e", "CFA=rsp+8 rbp=v+16 ra=c-8"},
		{"in a register", "\x09\x06\x03", "CFA=rsp+8 rbp=r3 ra=c-8"},
		{"in a vector register", "\x09\x06\x20", "CFA=rsp+8 ra=c-8"},
		{"vector register saved", "\x05\x20\x02", "CFA=rsp+8 ra=c-8"},
		{"saved where an expression says", "\x10\x06\x02\x77\x08", "CFA=rsp+8 rbp=exp ra=c-8"},
		{"what an expression says", "\x16\x06\x02\x77\x08", "CFA=rsp+8 rbp=vexp ra=c-8"},
		{"lost", "\x07\x10", "CFA=rsp+8"},
		{"same again", "\x86\x02\x08\x06", "CFA=rsp+8 ra=c-8"},
		{"restored", "\x07\x10\xd0\x86\x02\xc6", "CFA=rsp+8 ra=c-8"},
		{"restored, extended", "\x07\x10\x06\x10", "CFA=rsp+8 ra=c-8"},
		{"remembered", "\x0a\x86\x02\x0e\x10\x0b", "CFA=rsp+8 ra=c-8"},
		{"remembered twice", "\x0a\x86\x02\x0a\x83\x03\x0b", "CFA=rsp+8 rbp=c-16 ra=c-8"},
		{"remembered once for two", "\x0a\x0b\x0b", ""},
		{"remembered without end", strings.Repeat("\x0a", maxRemembered+1), ""},
		{"size of arguments", "\x2e\x10", "CFA=rsp+8 ra=c-8"},
		{"signed return address", "\x2d", "CFA=rsp+8 ra=c-8"},
		{"offset of an expression", "\x0f\x02\x77\x08\x0c\x07\x10", "CFA=rsp+16 ra=c-8"},
		{"unknown", "\x3f", ""},
		{"cut off", "\x0c\x07", ""},
		{"cut off in a number", "\x0e\xff", ""},
		{"expression behind the end", "\x0f\x7f\x77", ""},
		{"frame by a vector register", "\x0c\x20\x08", ""},
	} {
		got, err := rowText(tableOf(framesOf("zR", "\x00", initial, test.instructions)),
			codeAddress+codeSize-1)
		qt.Check(t, qt.Equals(got, test.want), qt.Commentf("%s: %v", test.name, err))
		qt.Check(t, qt.Equals(err != nil, test.want == ""), qt.Commentf("%s: %v", test.name, err))
	}
}

func TestAugmentations(t *testing.T) {
	for _, test := range []struct {
		letters, data string
		ok            bool
	}{
		{"", "", true},
		{"z", "", true},
		{"zPLR", "\x9b\x01\x02\x03\x04\x1b\x00", true},
		{"zRS", "\x00", true},
		{"zRB", "\x00", true},
		{"zRX", "\x00", false},
		{"zR", "", false},
		{"R", "", false},
	} {
		_, err := rowText(tableOf(framesOf(test.letters, test.data, initial, "")), codeAddress)
		qt.Check(t, qt.Equals(err == nil, test.ok), qt.Commentf("%q: %v", test.letters, err))
	}
}

func TestAddressesWithoutAnEntry(t *testing.T) {
	table := tableOf(framesOf("zR", "\x00", initial, ""))
	for _, address := range []uint64{0, codeAddress - 1, codeAddress + codeSize, 1<<64 - 1} {
		for range 2 { // what is known is the same
			_, err := table.row(address)
			qt.Check(t, qt.ErrorIs(err, ErrNoEntry))
		}
	}
	_, err := tableOf(nil).row(codeAddress)
	qt.Check(t, qt.ErrorIs(err, ErrNoEntry))
}

// A function that begins where an empty one does is found. Linkers put the
// empty one first in the header.
func TestEmptyFunctions(t *testing.T) {
	order := binary.LittleEndian
	frames := framesOf("", "", initial, "")
	whole := int(order.Uint32(frames)) + 4 // the offset of the entry
	frames = frames[:len(frames)-4]
	empty := len(frames)
	frames = order.AppendUint32(frames, 20)
	frames = order.AppendUint32(frames, uint32(len(frames)))
	frames = order.AppendUint64(order.AppendUint64(frames, codeAddress), 0)
	const headerAddress = framesAddress - 0x1000
	header := order.AppendUint64([]byte{1, 0, 3, relativeData | signed4}, framesAddress)
	header = order.AppendUint32(header, 2)
	for _, entry := range []int{empty, whole} {
		header = order.AppendUint32(header, uint32(codeAddress-headerAddress+1<<32))
		header = order.AppendUint32(header, uint32(framesAddress-headerAddress+entry))
	}
	table := newTable(elf.EM_X86_64, order)
	table.frames, table.header = section{frames, framesAddress}, section{header, headerAddress}
	table.makeIndex(nil)
	qt.Assert(t, qt.HasLen(table.index, 2))
	got, err := rowText(table, codeAddress)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(got, "CFA=rsp+8 ra=c-8"))
}

// Files without section headers are read by their program headers.
func TestFilesWithoutSectionHeaders(t *testing.T) {
	files := libraries()
	qt.Assert(t, qt.Not(qt.HasLen(files, 0)))
	contents, err := os.ReadFile(files[0])
	qt.Assert(t, qt.IsNil(err))
	whole, err := readTable(bytes.NewReader(contents))
	qt.Assert(t, qt.IsNil(err))
	clear(contents[0x28:0x30]) // e_shoff
	clear(contents[0x3c:0x40]) // e_shnum, e_shstrndx
	stripped, err := readTable(bytes.NewReader(contents))
	qt.Assert(t, qt.IsNil(err))
	for _, f := range whole.index {
		address := f.start
		want, wantErr := whole.row(address)
		got, gotErr := stripped.row(address)
		qt.Assert(t, qt.DeepEquals(fmt.Sprint(got, gotErr), fmt.Sprint(want, wantErr)))
	}
}

// readTable reads the table of a file.
func readTable(r io.ReaderAt) (*Table, error) {
	f, err := elffile.New(r)
	if err != nil {
		return nil, err
	}
	table, err := Read(f)
	if err == nil {
		table.Work = math.MaxInt
	}
	return table, err
}

func TestFilesThatCannotBeRead(t *testing.T) {
	// Programs of Go have no call frame information of this kind.
	testneeds.Only(t, "programs of other systems are in other formats", "linux")
	self, err := elffile.Open("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	defer self.Close()
	_, err = Read(self)
	qt.Check(t, qt.ErrorIs(err, ErrNoTable))

	frames := framesOf("zR", "\x00", initial, "")
	for _, test := range []struct {
		name   string
		change func(im *elfimage.Image)
		want   error
	}{
		{"usual", func(im *elfimage.Image) {}, nil},
		{"other machine", func(im *elfimage.Image) { im.Machine = elf.EM_386 }, ErrNoTable},
		{"no section", func(im *elfimage.Image) { im.Sections = im.Sections[:1] }, ErrNoTable},
		{"no contents", func(im *elfimage.Image) { im.Sections[1].Kind = elf.SHT_NOBITS },
			ErrNoTable},
		{"compressed", func(im *elfimage.Image) { im.Sections[1].Flags = elf.SHF_COMPRESSED },
			elffile.ErrCompressed},
		{"large",
			func(im *elfimage.Image) { im.Sections[1].Size = elfimage.Ptr[uint64](maxFrames + 1) },
			elffile.ErrTooLarge},
		{"past the end",
			func(im *elfimage.Image) { im.Sections[1].Size = elfimage.Ptr[uint64](maxFrames) },
			elffile.ErrTruncated},
		{"large index", func(im *elfimage.Image) {
			im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_GNU_EH_FRAME,
				Size: elfimage.Ptr[uint64](maxFrames + 1)})
		}, elffile.ErrTooLarge},
		{"index past the end", func(im *elfimage.Image) {
			im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_GNU_EH_FRAME,
				Size: elfimage.Ptr[uint64](maxFrames)})
		}, elffile.ErrTruncated},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := elfimage.New64()
			im.Sections = append(im.Sections, elfimage.Section{
				Name: ".eh_frame", Kind: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC,
				Address: framesAddress, Data: frames,
			})
			test.change(im)
			table, err := readTable(bytes.NewReader(im.Bytes()))
			qt.Assert(t, qt.ErrorIs(err, test.want))
			if err == nil {
				_, err = table.row(codeAddress)
				qt.Check(t, qt.IsNil(err))
			}
		})
	}
}

// stackBase is where the stack of the tests begins.
const stackBase = 0x7ffd_0000_0000

// words returns the bytes of numbers, as they are on the stack.
func words(numbers ...uint64) Memory {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return Memory{stackBase, b}
}

func TestSteps(t *testing.T) {
	const bias = 0x5555_0000_0000
	for _, test := range []struct {
		name, augmentation, data, instructions string
		memory                                 Memory
		want                                   error
		pc, sp, rbp                            uint64
		returned                               bool
	}{
		{"call", "zR", "\x00", "", words(0x1234), nil, 0x1234, stackBase + 8, 77, true},
		{"saved register", "zR", "\x00", "\x0e\x18\x86\x03", words(9, 8, 0x1234), nil, 0x1234,
			stackBase + 24, 9, true},
		{"signal", "zRS", "\x00", "", words(0x1234), nil, 0x1234, stackBase + 8, 77, false},
		{"in a register", "zR", "\x00", "\x09\x10\x06", words(), nil, 77, stackBase + 8, 77, true},
		{"stack pointer saved", "zR", "\x00", "\x87\x02\x0e\x10", words(5, 0x1234), nil, 0x1234, 5,
			77, true},
		{"outermost", "zR", "\x00", "\x07\x10", words(0x1234), ErrOutermost, 0, 0, 0, false},
		{"returns to 0", "zR", "\x00", "", words(0), ErrOutermost, 0, 0, 0, false},
		{"behind the copy", "zR", "\x00", "\x0e\x18", words(1, 2), ErrMemory, 0, 0, 0, false},
		{"before the copy", "zR", "\x00", "\x13\x01", words(1, 2), ErrMemory, 0, 0, 0, false},
		{"its own caller", "zR", "\x00", "\x0e\x00\x09\x10\x10", words(1), errMalformed, 0, 0, 0,
			false},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := tableOf(framesOf(test.augmentation, test.data, initial, test.instructions))
			s := State{PC: bias + codeAddress + 16}
			s.Registers[7], s.Registers[6] = stackBase, 77
			before := s
			err := table.Step(&s, bias, test.memory)
			if test.want != nil {
				qt.Assert(t, qt.ErrorIs(err, test.want))
				qt.Check(t, qt.Equals(s, before))
				return
			}
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(s.PC, test.pc))
			qt.Check(t, qt.Equals(s.Registers[7], test.sp))
			qt.Check(t, qt.Equals(s.Registers[6], test.rbp))
			qt.Check(t, qt.Equals(s.Executes(), test.pc-map[bool]uint64{true: 1}[test.returned]))
		})
	}
}

// Functions of s390x save the stack pointer on the stack or in a floating point
// register, which nobody has, or leave it as it is.
func TestStackPointerOfS390(t *testing.T) {
	// The canonical frame address is r15+160+168, and f0 is register 16.
	const larger = "\x0c\x0f\xc8\x02"
	for name, instructions := range map[string]string{
		"in f0": larger + "\x09\x0f\x10", "not saved": larger, "on the stack": larger + "\x8f\x05",
	} {
		table := newTable(elf.EM_S390, binary.LittleEndian)
		frames := framesOf("zR", "\x00", "\x0c\x0f\xa0\x01", instructions)
		frames[4+4+1+len("zR")+1+2] = 14 // the return address is in r14
		table.frames = section{frames, framesAddress}
		table.makeIndex(nil)
		s := State{PC: codeAddress}
		s.Registers[14], s.Registers[15] = 0x1234, stackBase
		memory := words(slices.Repeat([]uint64{stackBase + 168}, 50)...)
		qt.Assert(t, qt.IsNil(table.Step(&s, 0, memory)), qt.Commentf("%s", name))
		qt.Check(t, qt.Equals(s.PC, 0x1234), qt.Commentf("%s", name))
		qt.Check(t, qt.Equals(s.Registers[15], stackBase+168), qt.Commentf("%s", name))
	}
}

// A register that was saved where nothing has been copied is lost, but its
// function's caller is not.
func TestLostRegisters(t *testing.T) {
	table := tableOf(framesOf("zR", "\x00", initial, "\x11\x06\x70"))
	s := State{PC: codeAddress}
	s.Registers[7] = stackBase
	qt.Assert(t, qt.IsNil(table.Step(&s, 0, words(codeAddress+32))))
	byFrame := tableOf(framesOf("zR", "\x00", initial, "\x0d\x06"))
	qt.Check(t, qt.ErrorIs(byFrame.Step(&s, 0, words(1, 2, 3)), ErrMemory))
}

func TestStepsByFramePointer(t *testing.T) {
	for _, test := range []struct {
		name   string
		frame  uint64
		memory Memory
		ok     bool
	}{
		{"usual", stackBase + 8, words(0, 77, 0x1234), true},
		{"at the end", stackBase + 16, words(0, 77, 0x1234), false},
		{"below the stack", stackBase - 8, words(0, 77, 0x1234), false},
		{"no pointer", stackBase + 7, words(0, 77, 0x1234), false},
		{"outermost", stackBase + 8, words(0, 77, 0), false},
	} {
		s := State{PC: codeAddress}
		s.Registers[7], s.Registers[6] = stackBase, test.frame
		ok := StepByFramePointer(elf.EM_X86_64, binary.LittleEndian, &s, test.memory)
		qt.Check(t, qt.Equals(ok, test.ok), qt.Commentf("%s", test.name))
		if ok {
			qt.Check(t, qt.Equals(fmt.Sprintf("%x %x %d", s.PC, s.Registers[7]-stackBase,
				s.Registers[6]), "1234 18 77"))
		}
	}
	qt.Check(t,
		qt.IsFalse(StepByFramePointer(elf.EM_S390, binary.BigEndian, &State{}, words(1, 2))))
	qt.Check(t,
		qt.IsFalse(StepByFramePointer(elf.EM_386, binary.LittleEndian, &State{}, words(1, 2))))
}

// Whatever a file says: no panic, an end, and all that is read lies in the
// sections.
func FuzzTable(f *testing.F) {
	f.Add(framesOf("zR", "\x00", initial, "\x50\x0e\x10\x0a\x86\x02\x0b"),
		[]byte("\x01\x00\x03\x3b\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), []byte{1, 2},
		false)
	f.Add(framesOf("zPLR", "\x9b\x01\x02\x03\x04\x1b\x00", initial,
		"\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"), []byte{}, []byte{1, 2, 3, 4, 5, 6,
		7, 8}, false)
	f.Add(framesOf("zRS", "\x00", "\x0f\x05\x77\xa0\x01\x06",
		"\x10\x06\x03\x77\xf8\x00\x16\x03\x03\x2f\xfd\xff"), []byte{}, make([]byte, 64), true)
	f.Fuzz(func(t *testing.T, frames, header, stack []byte, big bool) {
		for m := range machines {
			table := newTable(m, binary.LittleEndian)
			table.Work = 1 << 18
			table.frames, table.header = section{frames, framesAddress}, section{header,
				framesAddress - 0x1000}
			if big {
				table.order = binary.BigEndian
			}
			table.makeIndex(nil)
			addresses := []uint64{0, codeAddress, codeAddress + codeSize - 1, framesAddress}
			for _, function := range table.index {
				addresses = append(addresses, function.start)
			}
			for _, address := range addresses[:min(len(addresses), 8)] {
				s := State{PC: address}
				for n := range s.Registers {
					s.Registers[n] = stackBase + uint64(n)
				}
				before := s
				err := table.Step(&s, 0, Memory{stackBase, stack})
				if err != nil {
					qt.Assert(t, qt.Equals(s, before))
				}
				if r, rowErr := table.row(address); (r == nil) == (rowErr == nil) {
					t.Fatalf("%v and %v", r, rowErr)
				} else if rowErr != nil {
					qt.Assert(t, qt.IsTrue(errors.Is(rowErr, ErrNoEntry) ||
						errors.Is(rowErr, ErrWork)))
				}
			}
		}
	})
}
