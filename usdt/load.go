// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/bpfobject"
	"github.com/gousdt/gousdt/internal/sys"
)

// LoadAndAssign loads programs and maps of the collection, and assigns them to
// the fields of a struct, as [ebpf.CollectionSpec.LoadAndAssign] does with the
// [Manager.CollectionOptions]. opts may be nil, or have options of the
// caller's; map replacements are added to it.
//
//	var objs tracerObjects
//	err := mgr.LoadAndAssign(&objs, nil)
//
// With [ManagerOptions].Specialise the Manager keeps the maps of the programs
// until it is closed, and attaching needs no CAP_SYS_ADMIN.
func (m *Manager) LoadAndAssign(to any, opts *ebpf.CollectionOptions) error {
	options := m.CollectionOptions()
	if opts != nil {
		replacements := options.MapReplacements
		*options = *opts
		options.MapReplacements = replacements
		for name, replacement := range opts.MapReplacements {
			if replacements[name] != nil {
				return fmt.Errorf("map %s is the Manager's, and cannot be replaced", name)
			}
			replacements[name] = replacement
		}
	}
	if m.special != nil {
		if err := m.special.loadMaps(to, options); err != nil {
			return err
		}
	}
	return m.spec.LoadAndAssign(to, options)
}

// loadMaps loads the maps of the programs that are to be assigned, and keeps
// them. It adds them to the map replacements.
func (s *specialiser) loadMaps(to any, opts *ebpf.CollectionOptions) error {
	spec := s.manager.spec.Copy()
	wanted := make(map[string]bool)
	eachTagged(reflect.ValueOf(to), reflect.TypeFor[*ebpf.Program](), func(name string, _ reflect.Value) {
		if program := spec.Programs[name]; program != nil {
			for i := range program.Instructions {
				if ins := &program.Instructions[i]; ins.IsLoadFromMap() {
					wanted[ins.Reference()] = true
				}
			}
		}
	})
	spec.Programs = nil
	maps.DeleteFunc(spec.Maps, func(name string, m *ebpf.MapSpec) bool {
		// A map that the object fills with programs is loaded with these.
		return !wanted[name] || opts.MapReplacements[name] != nil ||
			m.Type == ebpf.ProgramArray && len(m.Contents) > 0
	})
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool {
		return spec.Maps[v.SectionName] == nil
	})
	loading := *opts
	loading.MapReplacements = nil
	coll, err := ebpf.NewCollectionWithOptions(spec, loading)
	if err != nil {
		return err
	}
	var kept []*ebpf.Map
	for name, m := range opts.MapReplacements {
		if own, err := m.Clone(); wanted[name] && err == nil {
			kept = append(kept, own)
		}
	}
	for name, m := range coll.Maps {
		opts.MapReplacements[name] = m
		kept = append(kept, m)
	}
	return s.keep(kept)
}

// keep remembers maps by their IDs until the Manager is closed.
func (s *specialiser) keep(maps []*ebpf.Map) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range maps {
		var id ebpf.MapID
		if info, err := m.Info(); err == nil {
			id, _ = info.ID()
		}
		if old := s.maps[id]; old != nil {
			old.Close()
		}
		s.maps[id] = m
	}
	if s.closed {
		for _, m := range maps {
			m.Close()
		}
		return sys.ClosedError("manager")
	}
	return nil
}

// open returns a map by its ID, to be closed.
func (s *specialiser) open(id ebpf.MapID) (*ebpf.Map, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.maps[id]; kept != nil {
		return kept.Clone()
	}
	return ebpf.NewMapFromID(id)
}

// close releases the maps that are kept.
func (s *specialiser) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, m := range s.maps {
		m.Close()
	}
	clear(s.maps)
}

// eachTagged calls yield for the fields of a type that have a name, in a struct
// and in those inside it, or at a pointer.
func eachTagged(
	v reflect.Value, fieldType reflect.Type, yield func(name string, field reflect.Value),
) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		field, tag := v.Field(i), v.Type().Field(i).Tag.Get("ebpf")
		switch {
		case tag == "":
			eachTagged(field, fieldType, yield)
		case field.Type() == fieldType && field.CanInterface():
			yield(tag, field)
		}
	}
}

// LoadCollectionSpec reads an object whose programs were compiled with the
// header usdt.bpf.h, that of libbpf or this module's. Objects made for libbpf
// 0.8 and newer need no change, also if "bpftool gen object" has linked them
// from several files. [NewManager] then prepares the
// collection:
//
//	spec, err := usdt.LoadCollectionSpec("probes.bpf.o")
//	mgr, err := usdt.NewManager(spec, nil)
//	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
//	links, err := mgr.AttachSections(coll, 0, nil)
//
// It reads objects without USDT programs, too. The result differs from that of
// [ebpf.LoadCollectionSpec] in three ways:
//
//   - weak maps are maps like others,
//   - hidden functions are verified with what their callers pass, as libbpf
//     does,
//   - the variable LINUX_HAS_BPF_COOKIE, which libbpf's header declares, is
//     among CollectionSpec.Variables, where NewManager sets it.
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
// not a file, such as one that is embedded in the program:
//
//	//go:embed probes.bpf.o
//	var object []byte
//
//	spec, err := usdt.LoadCollectionSpecFromReader(bytes.NewReader(object))
func LoadCollectionSpecFromReader(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	return bpfobject.Load(r)
}
