// SPDX-License-Identifier: BSD-2-Clause

package bpfobject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// CookieVariable is the name of the variable, in the object and in the
// collection, that says whether the kernel gives a program a BPF cookie. It is
// one byte, and 0 unless the caller sets it.
const CookieVariable = "LINUX_HAS_BPF_COOKIE"

// cookieSection holds the variable. cilium/ebpf makes a read-only map of each
// section whose name begins with .rodata.
const cookieSection = ".rodata.usdt"

// Load reads an object and returns its programs and maps.
func Load(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	o, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	return o.collection()
}

type hiddenKey struct{}

// MarkHidden marks the first instruction of a function that was compiled as a
// hidden one, before it is made static: the compiler has left the parameters of
// such a function as they are declared.
func MarkHidden(ins *asm.Instruction) { ins.Metadata.Set(hiddenKey{}, true) }

// IsHidden reports whether a function was marked, by its first instruction.
func IsHidden(ins *asm.Instruction) bool { return ins.Metadata.Get(hiddenKey{}) != nil }

// object is an object file whose symbol table has been changed.
type object struct {
	data       []byte
	hidden     map[string]bool // functions
	overridden []string        // code that is not used
	undefined  []string        // symbols that the object uses and does not define
}

// read reads an object. A file of another kind stays as it is.
func read(r io.ReaderAt) (*object, error) {
	data, img, err := readImage(r)
	if err != nil {
		return nil, err
	}
	if img == nil || len(img.sections) == 0 {
		return &object{data: data}, nil
	}
	symbols, err := readSymbols(img)
	if err != nil {
		return nil, err
	}
	o := &object{}
	if o.hidden, o.undefined, err = symbols.change(); err != nil {
		return nil, err
	}
	if o.overridden, err = symbols.fillGaps(); err != nil {
		return nil, err
	}
	if err := symbols.write(); err != nil {
		return nil, err
	}
	o.data, err = img.finish()
	return o, err
}

// collection has the object parsed, and changes what a symbol table cannot say.
func (o *object) collection() (*ebpf.CollectionSpec, error) {
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
				MarkHidden(&program.Instructions[i])
			}
		}
	}
	if err := removeCookieVariable(spec); err != nil {
		return nil, err
	}
	return spec, nil
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
	undefined := slices.DeleteFunc(slices.Clone(o.undefined), func(name string) bool {
		return isDeclared(types, name)
	})
	if refused != nil && len(undefined) > 0 {
		return undefined[0]
	}
	if refused == nil {
		for _, program := range spec.Programs {
			for i := range program.Instructions {
				if name := program.Instructions[i].Reference(); slices.Contains(undefined, name) {
					return name
				}
			}
		}
	}
	return ""
}

// isDeclared reports whether a symbol is one that the kernel gives a value.
func isDeclared(types *btf.Spec, name string) bool {
	if types == nil {
		return false
	}
	for _, section := range []string{".kconfig", ".ksyms"} {
		var declared *btf.Datasec
		if types.TypeByName(section, &declared) == nil && slices.ContainsFunc(declared.Vars,
			func(v btf.VarSecinfo) bool { return v.Type.TypeName() == name }) {
			return true
		}
	}
	return false
}

// removeCookieVariable removes the variable, which has a section of its own
// now, from those that cilium/ebpf looks up in the kernel's configuration. It
// looks up all of them, or none.
func removeCookieVariable(spec *ebpf.CollectionSpec) error {
	if spec.Types == nil {
		return nil
	}
	var configuration *btf.Datasec
	switch err := spec.Types.TypeByName(".kconfig", &configuration); {
	case errors.Is(err, btf.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("variables of the kernel's configuration: %w", err)
	}
	configuration.Vars = slices.DeleteFunc(configuration.Vars, func(v btf.VarSecinfo) bool {
		return v.Type.TypeName() == CookieVariable
	})
	return nil
}
