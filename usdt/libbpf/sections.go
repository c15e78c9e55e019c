// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
)

// AttachSections attaches all programs whose section names a file and a probe:
// SEC("usdt/PATH:PROVIDER:NAME"), or "usdt.s/..." for programs that sleep. PATH
// is absolute, relative, or a bare name as for [FindFile].
//
// The collection is the one that the Manager was made for. loaded holds the
// loaded programs: an *ebpf.Collection, or a pointer to a struct with fields
// tagged `ebpf:"program_name"`, as bpf2go generates it and LoadAndAssign fills
// it. Programs that are not in it are not attached. It is an error if none is
// left.
//
// Programs whose section names no file, such as SEC("usdt") and
// SEC("usdt/provider/name"), are for [usdt.Manager.Attach]. So are programs
// whose section begins with "?".
//
// The target is that of [usdt.Manager.Attach] without a file: the sections have
// the paths. The zero value is every process. If one program fails, none stays
// attached. Errors are as those of [usdt.Manager.Attach], with the name of the
// program.
func AttachSections(
	m *usdt.Manager, spec *ebpf.CollectionSpec, loaded any, target usdt.Target,
	opts *usdt.AttachOptions,
) ([]*usdt.Link, error) {
	if target.Path != "" || target.ELF != nil || target.Selection != nil {
		return nil, errors.New("the sections name the files: set none in the target")
	}
	if m == nil || spec == nil {
		return nil, errors.New("there is no Manager, or no collection that it was made for")
	}
	programs, err := programsOf(loaded)
	if err != nil {
		return nil, err
	}

	var links []*usdt.Link
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		// To libbpf a "?" means not to load and attach the program unless asked
		// to.
		section, at, _ := strings.Cut(spec.Programs[name].SectionName, "/")
		if programs[name] == nil || section != "usdt" && section != "usdt.s" ||
			!strings.Contains(at, ":") {
			continue
		}
		var lnk *usdt.Link
		path, provider, probe, err := splitSection(at)
		// With a PID the name is that of a file that the process has mapped.
		if target.Path = path; err == nil && target.PID == 0 {
			target.Path, err = FindFile(path)
		}
		if err == nil {
			lnk, err = m.Attach(programs[name], target, opts, elfnote.Exact(provider, probe))
		}
		if err != nil {
			sys.CloseTogether(links)
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
		links = append(links, lnk)
	}
	if len(links) == 0 {
		return nil, errors.New("no loaded program says in its section where to attach: " +
			`SEC("usdt/PATH:PROVIDER:NAME"), without a "?" before it`)
	}
	return links, nil
}

// FindFile returns the path of a program or library on this host by a bare
// name, such as "python3" or "libc.so.6", as libbpf looks up the path of a
// probe: in $PATH, and in /etc/ld.so.cache. A name with a slash is returned as
// it is. The error wraps [os.ErrNotExist] if there is no such file. For a
// process with a root directory of its own, give its PID instead: see
// [usdt.Target].
func FindFile(name string) (string, error) { return ldso.Path(name) }

// splitSection takes PATH:PROVIDER:NAME apart. The provider ends at the first
// single colon, pairs counted from the left as in elfnote.ParsePattern: a C++
// or Rust name has pairs.
func splitSection(at string) (path, provider, name string, err error) {
	parts := regexp.MustCompile(`(?s)^([^:]+):((?:[^:]|::)+):([^:].*)$`).FindStringSubmatch(at)
	if parts == nil {
		return "", "", "", fmt.Errorf("section usdt/%s: want usdt/PATH:PROVIDER:NAME", at)
	}
	return parts[1], parts[2], parts[3], nil
}

// programsOf returns the loaded programs by their names in the collection.
func programsOf(loaded any) (map[string]*ebpf.Program, error) {
	if coll, ok := loaded.(*ebpf.Collection); ok && coll != nil {
		return coll.Programs, nil
	}
	v := reflect.ValueOf(loaded)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("programs are taken from an *ebpf.Collection or a pointer to a struct "+
			"with `ebpf` tags, not from %T", loaded)
	}
	programs := make(map[string]*ebpf.Program)
	eachProgram(v, func(name string, prog *ebpf.Program) {
		if prog != nil {
			programs[name] = prog
		}
	})
	return programs, nil
}

// eachProgram calls yield for the programs with an `ebpf` tag in a struct, at a
// pointer to one, and in the structs inside it.
func eachProgram(v reflect.Value, yield func(name string, program *ebpf.Program)) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("ebpf")
		if tag == "" {
			eachProgram(v.Field(i), yield)
		} else if v.Field(i).CanInterface() {
			if field, ok := v.Field(i).Interface().(*ebpf.Program); ok {
				yield(tag, field)
			}
		}
	}
}
