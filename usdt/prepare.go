// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/privatestack"
)

// chooseModeFor returns how to attach the programs of a collection.
func chooseModeFor(spec *ebpf.CollectionSpec, wanted Mode) (Mode, error) {
	mode, err := wanted.Resolve()
	if err == nil && wanted == ModeAuto && mode == ModeMulti && programArray(spec) != "" {
		return ModeSingle, nil // kernels refuse programs of mixed attach types in one array
	}
	return mode, err
}

// programArray returns the name of a map of the collection that programs are
// put into, "" if there is none.
func programArray(spec *ebpf.CollectionSpec) string {
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if m.Type == ebpf.ProgramArray ||
			m.InnerMap != nil && m.InnerMap.Type == ebpf.ProgramArray {
			return name
		}
	}
	return ""
}

// preparePrograms sets the attach type of USDT programs, which the kernel fixes
// as it loads them, has them use no stack that threads share, and returns them
// by name.
func (m *Manager) preparePrograms(
	spec *ebpf.CollectionSpec, names []string,
) (map[string]*ebpf.ProgramSpec, error) {
	programs := make(map[string]*ebpf.ProgramSpec)
	for name, prog := range spec.Programs {
		// To libbpf a "?" means not to load the program unless it is asked to.
		// Here the caller says what is loaded.
		section, at, _ := strings.Cut(strings.TrimPrefix(prog.SectionName, "?"), "/")
		if section != "usdt" && section != "usdt.s" {
			continue
		}
		programs[name] = prog
		if namesPath(at) {
			m.sections[name] = at
		} else {
			m.placeless = append(m.placeless, name)
		}
	}
	slices.Sort(m.placeless)
	for _, name := range names {
		prog := spec.Programs[name]
		if prog == nil {
			return nil, fmt.Errorf("program %s is named by ManagerOptions.Programs, but is not in the collection", name)
		}
		programs[name] = prog
	}

	for _, prog := range spec.Programs {
		for _, ins := range prog.Instructions {
			if ins.Reference() == specMapName {
				m.readers[kernelName(prog.Name)] = true
				break
			}
		}
	}

	for name, prog := range programs {
		if prog.Type != ebpf.Kprobe {
			return nil, fmt.Errorf("program %s has the type %s, but programs for USDT probes have the type Kprobe", name, prog.Type)
		}
		prog.AttachType = ebpf.AttachNone
		if m.mode == ModeMulti {
			prog.AttachType = ebpf.AttachTraceUprobeMulti
		}
		var err error
		if prog.Instructions, err = privatestack.AvoidIn(prog.Instructions); err != nil {
			return nil, explain("asking for the kernel's version", err)
		}
	}
	return programs, nil
}

// kernelName is what the kernel keeps of a name: 15 bytes.
func kernelName(name string) string { return name[:min(len(name), 15)] }

// setCookieVariables tells programs whether they have a cookie.
func (m *Manager) setCookieVariables(spec *ebpf.CollectionSpec) error {
	found := false
	for _, name := range cookieVariables {
		v := spec.Variables[name]
		if v == nil {
			continue
		}
		found = true
		if err := v.Set(m.mode.cookie()); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	if found || m.specs == nil || m.mode.cookie() {
		return nil
	}
	kernel, err := askKernel()
	if err == nil && kernel.cookie {
		err = fmt.Errorf("mode %s: the object is compiled with the header of libbpf 0.8, "+
			"which uses the cookie wherever the kernel has it", m.mode)
	}
	return err
}
