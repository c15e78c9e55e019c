// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// origin is what a loaded program of the user's was loaded from.
type origin struct {
	spec *ebpf.ProgramSpec
	maps map[string]ebpf.MapID // by what instructions call them

	// refused is set once the kernel has refused what was made of the program:
	// to try again for other sites would take as long, and end alike.
	refused atomic.Pointer[refusedProgram]
}

// A refusedProgram is one that the kernel's verifier has refused, mostly for
// taking too long to check. It may take one for fewer specs.
type refusedProgram struct {
	specs int
	err   *ebpf.VerifierError
}

func (o *origin) openMaps(s *specialiser) (map[string]*ebpf.Map, error) {
	opened := make(map[string]*ebpf.Map)
	for name, id := range o.maps {
		m, err := s.open(id)
		if err != nil {
			return opened, fmt.Errorf("opening map %s of the program, which needs CAP_SYS_ADMIN if it was not loaded by Manager.LoadAndAssign: %w", name, err)
		}
		opened[name] = m
	}
	return opened, nil
}

func closeMaps(opened map[string]*ebpf.Map) {
	for _, m := range opened {
		m.Close()
	}
}

// originOf finds out what a program was loaded from.
func (s *specialiser) originOf(prog *ebpf.Program) (*origin, error) {
	key := weak.Make(prog)
	s.mu.Lock()
	known := s.origins[key]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	info, err := prog.Info()
	if err != nil {
		return nil, explain("asking the kernel for the program", err)
	}
	var found []*ebpf.ProgramSpec
	for _, spec := range s.programs {
		// The kernel keeps the beginning of a name; the rest is in BTF.
		if spec.Name == info.Name || kernelName(spec.Name) == info.Name {
			found = append(found, spec)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d programs of the collection have the name %s",
			len(found), info.Name)
	}
	known = &origin{spec: found[0]}
	if err := known.check(info); err != nil {
		return nil, err
	}
	if err := known.findMaps(info); err != nil {
		return nil, err
	}
	if mine, err := s.manager.specs.id(); err != nil || known.maps[specMapName] != mine {
		return nil, errors.Join(errors.New("the kernel lists the maps of the program in another order than it refers to them"), err)
	}
	s.mu.Lock()
	forgetDead(s.origins)
	s.origins[key] = known
	s.mu.Unlock()
	return known, nil
}

// forgetDead removes what is known of programs that are no more, whenever a map
// has doubled.
func forgetDead[T any](known map[weak.Pointer[ebpf.Program]]T) {
	if n := len(known); n >= 16 && n&(n-1) == 0 {
		maps.DeleteFunc(known, func(program weak.Pointer[ebpf.Program], _ T) bool {
			return program.Value() == nil
		})
	}
}

var errChanged = errors.New("the program in the collection is not the one that was loaded")

// check returns an error if the program has been changed since it was loaded.
// The kernel has a hash of the instructions.
func (o *origin) check(info *ebpf.ProgramInfo) error {
	instructions := slices.Clone(o.spec.Instructions)
	for i := range instructions {
		if btf.CORERelocationMetadata(&instructions[i]) != nil || instructions[i].IsKfuncCall() {
			return nil // they were changed as they were loaded
		}
	}
	// This gives calls between functions their distances.
	if err := instructions.Marshal(io.Discard, nativeOrder()); err != nil {
		return err
	}
	same, err := instructions.HasTag(info.Tag, nativeOrder())
	if err != nil {
		return err
	}
	if !same {
		return errChanged
	}
	return nil
}

// nativeOrder returns the byte order of this machine by its own name, which
// cilium/ebpf asks for.
func nativeOrder() binary.ByteOrder {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// findMaps finds out which maps the program was loaded with. The kernel lists
// them in the order in which instructions first refer to them.
func (o *origin) findMaps(info *ebpf.ProgramInfo) error {
	const kconfig = "" // instructions that refer to the kernel's configuration have no name for it
	var names []string
	for i := range o.spec.Instructions {
		ins := &o.spec.Instructions[i]
		if !ins.IsLoadFromMap() {
			continue
		}
		name := ins.Reference()
		if name == kconfig && int32(ins.Constant) > 0 {
			return errors.New("the program refers to a map by its descriptor")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	ids, ok := info.MapIDs()
	if !ok || len(ids) != len(names) {
		return fmt.Errorf("the kernel lists %d maps of the program, which refers to %d",
			len(ids), len(names))
	}
	o.maps = make(map[string]ebpf.MapID, len(ids))
	for i, name := range names {
		if name != kconfig {
			o.maps[name] = ids[i]
		}
	}
	return nil
}

// load loads the program with other instructions, and with the same maps.
func (o *origin) load(s *specialiser, instructions asm.Instructions) (*ebpf.Program, error) {
	shared, err := o.openMaps(s)
	defer closeMaps(shared)
	if err != nil {
		return nil, err
	}
	spec := o.spec.Copy()
	spec.Instructions = slices.Clone(instructions)
	for i := range spec.Instructions {
		ins := &spec.Instructions[i]
		if name := ins.Reference(); ins.IsLoadFromMap() && name != "" {
			if err := ins.AssociateMap(shared[name]); err != nil {
				return nil, fmt.Errorf("map %s: %w", name, err)
			}
		}
	}
	return ebpf.NewProgram(spec)
}
