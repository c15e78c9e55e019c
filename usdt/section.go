// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
)

// AttachSections attaches all programs whose section names a file and a probe:
// SEC("usdt/PATH:PROVIDER:NAME"), or "usdt.s/..." for programs that sleep. PATH
// is as [Target].Path: absolute, relative, or a bare name of a library.
//
// loaded is what the collection was loaded into: an *ebpf.Collection, or a
// pointer to a struct with fields tagged `ebpf:"program_name"`, as bpf2go
// generates it and LoadAndAssign fills it. Programs that are not in it are not
// attached. It is an error if none is left.
//
// Programs whose section names no file, such as SEC("usdt") and
// SEC("usdt/provider/name"), are for [Manager.Attach]:
// [Manager.ProgramsWithoutPath] returns their names.
//
// The programs are attached to the process with this PID, or to every process
// if pid is 0.
//
// It is all or nothing: if it fails, no program stays attached. Errors are as
// those of [Manager.Attach], with the name of the program.
func (m *Manager) AttachSections(loaded any, pid int, opts *AttachOptions) ([]*Link, error) {
	programs, err := programsOf(loaded)
	if err != nil {
		return nil, err
	}

	var links []*Link
	for _, name := range slices.Sorted(maps.Keys(m.sections)) {
		prog := programs[name]
		if prog == nil {
			continue
		}
		lnk, err := m.attachSection(prog, m.sections[name], pid, opts)
		if err != nil {
			CloseAll(links...)
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
		links = append(links, lnk)
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("no loaded program says in its section where to attach: SEC(\"usdt/PATH:PROVIDER:NAME\")")
	}
	return links, nil
}

// ProgramsWithoutPath returns the names of the collection's USDT programs that
// [Manager.AttachSections] does not attach, because their sections do not say
// in which file their probes are. It does not return those of
// ManagerOptions.Programs.
func (m *Manager) ProgramsWithoutPath() []string { return slices.Clone(m.placeless) }

func (m *Manager) attachSection(
	prog *ebpf.Program, at string, pid int, opts *AttachOptions,
) (*Link, error) {
	path, provider, name, err := splitSection(at)
	if err != nil {
		return nil, err
	}
	return m.Attach(prog, Target{Path: path, PID: pid}, opts, elfnote.Exact(provider, name))
}

// namesPath reports whether the section of a program is meant to say what to
// attach to.
func namesPath(at string) bool { return strings.Contains(at, ":") }

// splitSection takes PATH:PROVIDER:NAME apart. A colon may be part of a
// provider or a name only where it is doubled, as in a C++ or Rust name.
func splitSection(at string) (path, provider, name string, err error) {
	path, probe, ok := strings.Cut(at, ":")
	if ok {
		provider, name, ok = cutProbe(probe)
	}
	if !ok || path == "" || provider == "" || name == "" {
		return "", "", "", fmt.Errorf("section usdt/%s: want usdt/PATH:PROVIDER:NAME", at)
	}
	return path, provider, name, nil
}

// cutProbe splits PROVIDER:NAME at the first single colon, pairs counted from
// the left as in elfnote.ParsePattern.
func cutProbe(s string) (provider, name string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != ':':
		case i+1 < len(s) && s[i+1] == ':':
			i++
		default:
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// programsOf finds the loaded programs by their names in the collection.
func programsOf(loaded any) (map[string]*ebpf.Program, error) {
	if coll, ok := loaded.(*ebpf.Collection); ok && coll != nil {
		return coll.Programs, nil
	}
	v := reflect.ValueOf(loaded)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("programs are taken from an *ebpf.Collection or a pointer to a struct with `ebpf` tags, "+
			"not from %T", loaded)
	}
	programs := make(map[string]*ebpf.Program)
	eachTagged(v.Elem(), reflect.TypeFor[*ebpf.Program](), func(name string, field reflect.Value) {
		if prog, ok := field.Interface().(*ebpf.Program); ok && prog != nil {
			programs[name] = prog
		}
	})
	return programs, nil
}
