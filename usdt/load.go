// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"

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
	if m.special == nil {
		return m.spec.LoadAndAssign(to, options)
	}
	return m.special.loadAndAssign(to, options)
}

// loadAndAssign also keeps the maps of what it loads.
func (s *specialiser) loadAndAssign(to any, opts *ebpf.CollectionOptions) error {
	value := reflect.ValueOf(to)
	if value.Kind() != reflect.Pointer || value.IsNil() || value.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("objects are assigned to a pointer to a struct with `ebpf` tags, not to %T", to)
	}
	programs, assigned := make(map[string]bool), make(map[string]bool)
	collectTags(value.Elem(), reflect.TypeFor[*ebpf.Program](), programs)
	collectTags(value.Elem(), reflect.TypeFor[*ebpf.Map](), assigned)
	wanted := make(map[string]bool) // by the programs
	for name := range programs {
		program := s.manager.spec.Programs[name]
		if program == nil {
			continue // which is reported below
		}
		for i := range program.Instructions {
			ins := &program.Instructions[i]
			if name := ins.Reference(); ins.IsLoadFromMap() && s.manager.spec.Maps[name] != nil {
				wanted[name] = true
			}
		}
	}
	// A struct of the caller's and of the maps that the caller did not ask for.
	names := slices.Sorted(maps.Keys(wanted))
	names = slices.DeleteFunc(names, func(name string) bool { return assigned[name] })
	fields := []reflect.StructField{{Name: "To", Type: value.Type()}}
	for i, name := range names {
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprint("Map", i),
			Type: reflect.TypeFor[*ebpf.Map](),
			Tag:  reflect.StructTag(fmt.Sprintf("ebpf:%q", name)),
		})
	}
	all := reflect.New(reflect.StructOf(fields))
	all.Elem().Field(0).Set(value)
	if err := s.manager.spec.LoadAndAssign(all.Interface(), opts); err != nil {
		return err
	}
	var kept []*ebpf.Map
	for i := range names {
		kept = append(kept, all.Elem().Field(1+i).Interface().(*ebpf.Map))
	}
	var errs []error
	eachTagged(value.Elem(), reflect.TypeFor[*ebpf.Map](), func(name string, field reflect.Value) {
		if !wanted[name] {
			return
		}
		loaded, _ := field.Interface().(*ebpf.Map)
		own, err := loaded.Clone()
		if err != nil {
			errs = append(errs, err)
			return
		}
		kept = append(kept, own)
	})
	if err := errors.Join(append(errs, s.keep(kept))...); err != nil {
		unassign(value.Elem())
		return err
	}
	return nil
}

// unassign closes what was loaded: an error says that nothing was assigned.
func unassign(to reflect.Value) {
	for _, kind := range []reflect.Type{reflect.TypeFor[*ebpf.Program](),
		reflect.TypeFor[*ebpf.Map](), reflect.TypeFor[*ebpf.Variable]()} {
		eachTagged(to, kind, func(_ string, field reflect.Value) {
			if loaded, ok := field.Interface().(io.Closer); ok && !field.IsNil() {
				loaded.Close()
			}
			field.SetZero()
		})
	}
}

// keep remembers maps by their IDs until the Manager is closed.
func (s *specialiser) keep(maps []*ebpf.Map) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range maps {
		info, err := m.Info()
		id, ok := ebpf.MapID(0), false
		if err == nil {
			id, ok = info.ID()
		}
		switch {
		case s.closed:
			err = sys.ClosedError("manager")
		case err == nil && !ok:
			err = errors.New("the kernel does not say the ID of a map")
		}
		if err != nil {
			for _, m := range maps[i:] {
				m.Close()
			}
			return err
		}
		if s.maps[id] != nil {
			s.maps[id].Close()
		}
		s.maps[id] = m
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

// collectTags adds the names that fields of a type have.
func collectTags(v reflect.Value, fieldType reflect.Type, names map[string]bool) {
	eachTagged(v, fieldType, func(name string, _ reflect.Value) { names[name] = true })
}

// eachTagged calls yield for the fields of a type that have a name, in a struct
// and in those inside it.
func eachTagged(
	v reflect.Value, fieldType reflect.Type, yield func(name string, field reflect.Value),
) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch tag := field.Tag.Get("ebpf"); {
		case tag != "" && field.Type == fieldType && v.Field(i).CanInterface():
			yield(tag, v.Field(i))
		case tag != "":
		case field.Type.Kind() == reflect.Struct:
			eachTagged(v.Field(i), fieldType, yield)
		case field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.Struct &&
			!v.Field(i).IsNil():
			eachTagged(v.Field(i).Elem(), fieldType, yield)
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
