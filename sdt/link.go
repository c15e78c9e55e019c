// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// link writes the probes of a program into its section of notes. Without need
// it leaves the file as it is. must says that it is an error if it has none.
func link(name string, must bool) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	linked, err := linkImage(data)
	switch {
	case err == errNoELF && !must:
		return nil // a program for another system
	case err == errNoProbe && !must, err == nil && bytes.Equal(linked, data):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	// A program that runs cannot be written to, and a half one shall not be.
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".sdt*")
	if err != nil {
		return err
	}
	_, err = temp.Write(linked)
	err = errors.Join(err, temp.Chmod(info.Mode()), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

var (
	errNoELF   = errors.New("no program for Linux on amd64, arm64, riscv64 or s390x")
	errNoProbe = errors.New("no function that go tool sdt has written is called in it")
)

const (
	noteSection = ".note.stapsdt"
	baseSection = ".stapsdt.base"
	noteOwner   = "stapsdt\x00"
	noteType    = 3
)

// image is a program's file.
type image struct {
	*elf.File
	data        []byte
	relocations map[uint64]elf.Rela64 // by the address that they write to
	symbols     []elf.Symbol          // that relocations name
}

// linkImage returns a program with notes for its probes.
func linkImage(data []byte) ([]byte, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil || file.Class != elf.ELFCLASS64 || relative[file.Machine] == 0 {
		return nil, errNoELF
	}
	f := &image{File: file, data: data}
	probes, err := f.records()
	if err != nil {
		return nil, err
	}
	if len(probes) == 0 {
		return nil, errNoProbe
	}
	w, err := newWriter(f)
	if err != nil {
		return nil, err
	}
	base := w.base()
	notes, err := w.content(noteSection)
	if err != nil {
		return nil, err
	}
	old := len(notes)
	for _, p := range probes {
		if note := f.note(&p, base); !bytes.Contains(notes[:old], note) {
			notes = append(notes, note...)
		}
	}
	if len(notes) == old {
		return data, nil
	}
	w.replace(noteSection, elf.SHT_NOTE, 4, notes)
	return w.finish(), nil
}

// record is what the assembly of a probe tells.
type record struct {
	function, semaphore uint64
	texts               []byte // provider, name and arguments, each with a zero byte
}

// records finds the records in the data of a program.
func (f *image) records() (records []record, err error) {
	if err := f.readRelocations(); err != nil {
		return nil, err
	}
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_LOAD || segment.Flags&elf.PF_W == 0 {
			continue
		}
		data, err := io.ReadAll(segment.Open())
		if err != nil {
			return nil, err
		}
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], []byte(mark))
			if i < 0 {
				break
			}
			at += i
			r, err := f.record(data[at+len(mark):], segment.Vaddr+uint64(at+len(mark)))
			if err != nil {
				return nil, fmt.Errorf("the record of a probe at %#x: %w", segment.Vaddr+uint64(at), err)
			}
			records = append(records, r)
		}
	}
	return records, nil
}

// record reads what follows a mark at an address.
func (f *image) record(data []byte, address uint64) (r record, err error) {
	const head = 3 * 8
	if len(data) < head {
		return r, io.ErrUnexpectedEOF
	}
	length := f.ByteOrder.Uint64(data[2*8:])
	if length > uint64(len(data)-head) {
		return r, io.ErrUnexpectedEOF
	}
	if r.texts = data[head : head+length]; bytes.Count(r.texts, []byte{0}) != 3 {
		return r, errors.New("it has not three strings")
	}
	if r.function, err = f.pointer(data, address); err != nil {
		return r, err
	}
	if r.semaphore, err = f.pointer(data[8:], address+8); err != nil {
		return r, err
	}
	if !f.in(r.function, elf.PF_X) || !f.in(r.semaphore, elf.PF_W) {
		return r, fmt.Errorf("its function %#x is not in the code, or its semaphore %#x not in the data",
			r.function, r.semaphore)
	}
	return r, nil
}

func (f *image) in(address uint64, flag elf.ProgFlag) bool {
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_LOAD && p.Flags&flag != 0 && address >= p.Vaddr &&
			address-p.Vaddr < p.Filesz
	})
}

// The relocations of a pointer: those that add where the program was loaded,
// and those to a symbol, which plugins have.
var (
	relative = map[elf.Machine]uint32{
		elf.EM_X86_64: uint32(elf.R_X86_64_RELATIVE), elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE),
		elf.EM_RISCV: uint32(elf.R_RISCV_RELATIVE), elf.EM_S390: uint32(elf.R_390_RELATIVE),
	}
	absolute = map[elf.Machine]uint32{
		elf.EM_X86_64: uint32(elf.R_X86_64_64), elf.EM_AARCH64: uint32(elf.R_AARCH64_ABS64),
		elf.EM_RISCV: uint32(elf.R_RISCV_64), elf.EM_S390: uint32(elf.R_390_64),
	}
)

// pointer returns the address that stands at another one when the program is
// loaded at 0. In a position-independent one a relocation may have it.
func (f *image) pointer(data []byte, at uint64) (uint64, error) {
	r, ok := f.relocations[at]
	symbol := int(elf.R_SYM64(r.Info)) - 1
	switch kind := elf.R_TYPE64(r.Info); {
	case !ok:
		return f.ByteOrder.Uint64(data), nil
	case kind == relative[f.Machine]:
		return uint64(r.Addend), nil
	case kind == absolute[f.Machine] && symbol >= 0 && symbol < len(f.symbols) &&
		f.symbols[symbol].Section != elf.SHN_UNDEF:
		return f.symbols[symbol].Value + uint64(r.Addend), nil
	default:
		return 0, fmt.Errorf("relocation of type %d, which sdt does not know", kind)
	}
}

func (f *image) readRelocations() error {
	f.relocations = make(map[uint64]elf.Rela64)
	f.symbols, _ = f.DynamicSymbols() // a static program has none
	for _, section := range f.Sections {
		if section.Type != elf.SHT_RELA || section.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		data, err := section.Data()
		if err != nil {
			return err
		}
		all := make([]elf.Rela64, len(data)/binary.Size(elf.Rela64{}))
		if _, err := binary.Decode(data, f.ByteOrder, all); err != nil {
			return err
		}
		for _, r := range all {
			f.relocations[r.Off] = r
		}
	}
	return nil
}

// note returns the note of a probe, whose address is that of the function.
func (f *image) note(r *record, base uint64) []byte {
	order := f.ByteOrder.(binary.AppendByteOrder)
	var b []byte
	for _, n := range []int{len(noteOwner), 3*8 + len(r.texts), noteType} {
		b = order.AppendUint32(b, uint32(n))
	}
	b = append(b, noteOwner...)
	for _, address := range []uint64{r.function, base, r.semaphore} {
		b = order.AppendUint64(b, address)
	}
	b = append(b, r.texts...)
	return append(b, make([]byte, -len(b)&3)...)
}
