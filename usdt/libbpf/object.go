// SPDX-License-Identifier: BSD-2-Clause

// Package libbpf loads objects that were compiled for libbpf, and attaches
// programs as libbpf does: by what their sections say. Package usdt does the
// rest.
//
// libbpf and cilium/ebpf take the same object files, but cilium/ebpf does not
// take all that libbpf's headers put into them:
//
//   - Weak symbols. libbpf takes a weak map for any other, cilium/ebpf refuses
//     it. In an object that is complete nothing is left that could override a
//     weak symbol, so here it becomes a global one.
//   - Hidden functions. To libbpf they are static: the kernel verifies them
//     with what their callers pass. To cilium/ebpf they are global: the kernel
//     verifies each alone, and refuses them.
//   - The variable LINUX_HAS_BPF_COOKIE, which libbpf sets to what the kernel
//     has. cilium/ebpf takes it for an option of the kernel's configuration.
//     Here it becomes a variable of a read-only section, which the caller sets
//     in the collection as any other.
//
// The object is changed before it is parsed, in memory: in the symbol table,
// and by a section that is added. No instruction is touched. What a symbol
// table cannot say is changed in the collection afterwards: that hidden
// functions are static, and that the variable is no option of the kernel.
package libbpf

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// cookieVariable is the name of the variable, in the object and in the
// collection, that says whether the kernel gives a program a BPF cookie. It is
// one byte, and 0 unless the caller sets it.
const cookieVariable = "LINUX_HAS_BPF_COOKIE"

// cookieSection holds the variable. cilium/ebpf makes a read-only map of each
// section whose name begins with .rodata.
const cookieSection = ".rodata.usdt"

// LoadCollectionSpec reads an object whose programs were compiled with the
// header usdt.bpf.h, that of libbpf or this module's. Objects made for libbpf
// 0.8 and newer need no change, also if "bpftool gen object" has linked them
// from several files. [usdt.NewManager] then prepares the collection:
//
//	spec, err := libbpf.LoadCollectionSpec("probes.bpf.o")
//	mgr, err := usdt.NewManager(spec, nil)
//	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
//	links, err := libbpf.AttachSections(mgr, spec, coll, usdt.Target{}, nil)
//
// The result differs from that of [ebpf.LoadCollectionSpec] in three ways:
//
//   - weak maps are maps like others,
//   - hidden functions are verified with what their callers pass, as libbpf
//     does,
//   - the variable LINUX_HAS_BPF_COOKIE, which libbpf's header declares, is
//     among CollectionSpec.Variables, where usdt.NewManager sets it.
func LoadCollectionSpec(path string) (*ebpf.CollectionSpec, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	spec, err := LoadCollectionSpecFromReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, nil
}

// LoadCollectionSpecFromReader is [LoadCollectionSpec] for an object that is
// embedded in the program, by bytes.NewReader.
func LoadCollectionSpecFromReader(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	return load(r)
}

func load(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	o, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(o.data))
	if missing := o.missing(spec, err); missing != "" {
		return nil, fmt.Errorf("the object uses %s, which it does not define and the kernel does not have: "+
			"link it with the object that has it (bpftool gen object)", missing)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range o.overridden {
		delete(spec.Programs, name)
	}
	for _, program := range spec.Programs {
		for i := range program.Instructions {
			if f := btf.FuncMetadata(&program.Instructions[i]); f != nil && o.hidden[f.Name] {
				f.Linkage = btf.StaticFunc
			}
		}
	}
	// The variable has a section of its own now. While it is in .kconfig,
	// cilium/ebpf looks it up in the kernel's configuration.
	if options := datasec(spec.Types, ".kconfig"); options != nil {
		options.Vars = slices.DeleteFunc(options.Vars, func(v btf.VarSecinfo) bool {
			return v.Type.TypeName() == cookieVariable
		})
	}
	return spec, nil
}

// datasec returns the variables of a section, nil if there is none.
func datasec(types *btf.Spec, name string) (section *btf.Datasec) {
	if types != nil && types.TypeByName(name, &section) != nil {
		return nil
	}
	return section
}

// object is an object file whose symbol table has been changed.
type object struct {
	data       []byte
	hidden     map[string]bool // functions
	overridden []string        // names given to functions that others override
	undefined  map[string]bool // symbols that the object uses and does not define
}

// read reads an object. A file of another kind stays as it is.
func read(r io.ReaderAt) (*object, error) {
	data, img, err := readImage(r)
	if err != nil {
		return nil, err
	}
	if len(img.sections) == 0 {
		return &object{data: data}, nil
	}
	symbols, err := readSymbols(img)
	if err != nil {
		return nil, err
	}
	o := &object{hidden: make(map[string]bool)}
	if o.undefined, err = symbols.change(o.hidden); err != nil {
		return nil, err
	}
	if o.overridden, err = symbols.fillGaps(); err != nil {
		return nil, err
	}
	if o.data, err = symbols.write(); err != nil {
		return nil, err
	}
	return o, nil
}

// missing returns a symbol that the object does not define, and that is neither
// the kernel's nor a variable of its configuration, "" if there is none. Where
// cilium/ebpf has refused the object, this may be why.
func (o *object) missing(spec *ebpf.CollectionSpec, refused error) string {
	if len(o.undefined) == 0 {
		return ""
	}
	var types *btf.Spec
	if refused != nil {
		types, _ = btf.LoadSpecFromReader(bytes.NewReader(o.data)) // nil: then none is declared
	} else {
		types = spec.Types
	}
	for _, name := range []string{".kconfig", ".ksyms"} { // what the kernel gives a value
		if section := datasec(types, name); section != nil {
			for _, v := range section.Vars {
				delete(o.undefined, v.Type.TypeName())
			}
		}
	}
	used := o.undefined
	if refused == nil {
		used = make(map[string]bool)
		for _, program := range spec.Programs {
			for i := range program.Instructions {
				name := program.Instructions[i].Reference()
				used[name] = o.undefined[name]
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name] {
			return name
		}
	}
	return ""
}

// symbolSize is the size of a symbol in a file.
const symbolSize = 24

// symbolTable is the symbols of an object, to be changed.
type symbolTable struct {
	img     *image
	section int
	list    []elf.Sym64
	names   []byte
}

// readSymbols reads the symbol table of an object, which is empty without one.
func readSymbols(img *image) (*symbolTable, error) {
	section := slices.IndexFunc(img.sections, func(s elf.Section64) bool {
		return elf.SectionType(s.Type) == elf.SHT_SYMTAB
	})
	if section < 0 {
		return &symbolTable{img: img}, nil
	}
	t := &symbolTable{img: img, section: section}
	b, err := img.contents(section)
	if err != nil {
		return nil, err
	}
	if t.names, err = img.contents(int(img.sections[section].Link)); err != nil {
		return nil, err
	}
	t.list = make([]elf.Sym64, len(b)/symbolSize)
	_, err = binary.Decode(b, img.order, t.list)
	return t, err
}

// write puts the changed symbols into the object and returns that.
func (t *symbolTable) write() ([]byte, error) {
	if len(t.list) > 0 {
		b, err := binary.Append(nil, t.img.order, t.list)
		if err != nil {
			return nil, err
		}
		t.img.setContents(t.section, b)
	}
	return t.img.finish()
}

// change makes the symbols acceptable to cilium/ebpf. It adds the hidden
// functions to a set, and returns the symbols that lack a value but must have
// one.
//
// Weak symbols that have a value become global ones: in a complete object
// nothing is left that could override them. One without a value stays weak, as
// it need not have one. The variable that says whether there is a BPF cookie
// gets a value in a section of its own.
func (t *symbolTable) change(hidden map[string]bool) (undefined map[string]bool, err error) {
	var cookie uint16 // its section
	undefined = make(map[string]bool)
	for i := range t.list {
		symbol := &t.list[i]
		name, bind := stringAt(t.names, symbol.Name), elf.ST_BIND(symbol.Info)
		kind, visibility := elf.ST_TYPE(symbol.Info), elf.ST_VISIBILITY(symbol.Other)
		switch {
		case elf.SectionIndex(symbol.Shndx) != elf.SHN_UNDEF:
			if kind == elf.STT_FUNC &&
				(visibility == elf.STV_HIDDEN || visibility == elf.STV_INTERNAL) {
				hidden[name] = true
			}
			if bind == elf.STB_WEAK {
				symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, kind)
			}
		case name == cookieVariable:
			if cookie == 0 {
				if cookie, err = t.img.addSection(cookieSection, []byte{0}, elf.Section64{
					Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addralign: 1,
				}); err != nil {
					return nil, err
				}
			}
			*symbol = elf.Sym64{Name: symbol.Name, Shndx: cookie, Size: 1,
				Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT)}
		case bind == elf.STB_GLOBAL && name != "":
			undefined[name] = true
		}
	}
	return undefined, nil
}

// fillGaps gives a symbol to code that has none, and returns the names.
//
// A linker of objects keeps the code of a weak function that another one
// overrides, and its part of .BTF.ext, but no symbol. cilium/ebpf does not
// count code without a symbol. So it applies what .BTF.ext says of the code
// after it, such as CO-RE relocations, to the wrong instructions.
func (t *symbolTable) fillGaps() (names []string, err error) {
	functions := slices.DeleteFunc(slices.Clone(t.list), func(symbol elf.Sym64) bool {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || int(symbol.Shndx) >= len(t.img.sections) {
			return true
		}
		s := &t.img.sections[symbol.Shndx]
		return elf.SectionType(s.Type) != elf.SHT_PROGBITS ||
			elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR == 0
	})
	slices.SortFunc(functions, func(a, b elf.Sym64) int {
		return cmp.Or(cmp.Compare(a.Shndx, b.Shndx), cmp.Compare(a.Value, b.Value))
	})
	var fillers []elf.Sym64
	section, end := uint16(0), uint64(0)
	for _, function := range functions {
		if function.Shndx != section {
			section, end = function.Shndx, 0
		}
		if function.Value > end {
			names = append(names, fmt.Sprintf("overridden.%d", len(names)))
			fillers = append(fillers, elf.Sym64{
				Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: section,
				Value: end, Size: function.Value - end,
			})
		}
		end = max(end, function.Value+function.Size)
	}
	if len(names) == 0 {
		return nil, nil
	}
	offsets, err := t.img.addStrings(int(t.img.sections[t.section].Link), names...)
	for i, offset := range offsets {
		fillers[i].Name = offset
	}
	t.list = append(t.list, fillers...)
	return names, err
}
