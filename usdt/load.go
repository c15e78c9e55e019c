// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/bpfobject"
	"github.com/gousdt/gousdt/internal/sys"
)

// LoadAndAssign loads programs and maps of the collection, and assigns them to
// the fields of a struct, as [ebpf.CollectionSpec.LoadAndAssign] does with the
// [Manager.CollectionOptions]. opts may be nil. If it has map replacements,
// they are added to those of the Manager; replacing a map of the Manager is an
// error.
//
// With [ManagerOptions].Specialise the Manager keeps the maps of the programs
// until it is closed or nothing refers to the programs any more, and attaching
// them needs no CAP_SYS_ADMIN.
func (m *Manager) LoadAndAssign(to any, opts *ebpf.CollectionOptions) error {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return sys.ClosedError("manager")
	}
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
	objects := reflect.ValueOf(to)
	if m.generic != "" || objects.Kind() != reflect.Pointer ||
		objects.Elem().Kind() != reflect.Struct {
		return m.spec.LoadAndAssign(to, options)
	}

	// Load into a struct that has the maps of the programs, too.
	fields := []reflect.StructField{{Name: "Objects", Type: objects.Type()}}
	has := make(map[string]bool)
	eachTagged(objects, func(name string, _ *ebpf.Map) { has[name] = true })
	eachTagged(objects, func(program string, _ *ebpf.Program) {
		if m.spec.Programs[program] == nil {
			return // which is an error of loading
		}
		for _, ins := range m.spec.Programs[program].Instructions {
			name := ins.Reference()
			spec := m.spec.Maps[name]
			// A map that the object fills with programs has to be the caller's.
			if !ins.IsLoadFromMap() || spec == nil || has[name] ||
				spec.Type == ebpf.ProgramArray && len(spec.Contents) > 0 {
				continue
			}
			has[name] = true
			fields = append(fields, reflect.StructField{Name: fmt.Sprint("Map", len(fields)),
				Type: reflect.TypeFor[*ebpf.Map](),
				Tag:  reflect.StructTag(fmt.Sprintf("ebpf:%q", name))})
		}
	})
	all := reflect.New(reflect.StructOf(fields))
	all.Elem().Field(0).Set(objects)
	if err := m.spec.LoadAndAssign(all.Interface(), options); err != nil {
		return err
	}
	kept := make(map[ebpf.MapID]*ebpf.Map)
	keep := func(own *ebpf.Map, err error) {
		if err != nil {
			return
		}
		var id ebpf.MapID
		if info, err := own.Info(); err == nil {
			id, _ = info.ID()
		}
		if kept[id] != nil {
			own.Close()
			return
		}
		kept[id] = own
	}
	eachTagged(objects, func(_ string, theirs *ebpf.Map) { keep(theirs.Clone()) })
	for i := 1; i < len(fields); i++ {
		keep(all.Elem().Field(i).Interface().(*ebpf.Map), nil)
	}
	eachTagged(objects, func(_ string, program *ebpf.Program) {
		if loaded, err := m.loadedProgram(program); err == nil {
			m.mu.Lock()
			loaded.maps = kept
			m.mu.Unlock()
		}
	})
	return nil
}

// eachTagged calls yield for the fields of type T with an `ebpf` tag, in a
// struct or at a pointer to one, and in the structs inside it.
func eachTagged[T any](v reflect.Value, yield func(name string, field T)) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("ebpf")
		if tag == "" {
			eachTagged(v.Field(i), yield)
		} else if v.Field(i).CanInterface() {
			if field, ok := v.Field(i).Interface().(T); ok {
				yield(tag, field)
			}
		}
	}
}

// LoadCollectionSpec reads an object whose programs were compiled with the
// header usdt.bpf.h, that of libbpf or this module's. Objects made for libbpf
// 0.8 and newer need no change, also if "bpftool gen object" has linked them
// from several files. [NewManager] then prepares the collection:
//
//	spec, err := usdt.LoadCollectionSpec("probes.bpf.o")
//	mgr, err := usdt.NewManager(spec, nil)
//	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
//	links, err := mgr.AttachSections(coll, 0, nil)
//
// The result differs from that of [ebpf.LoadCollectionSpec] in three ways:
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
// embedded in the program, by bytes.NewReader.
func LoadCollectionSpecFromReader(r io.ReaderAt) (*ebpf.CollectionSpec, error) {
	return bpfobject.Load(r)
}
