// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/specialise"
	"github.com/gousdt/gousdt/internal/sys"
)

// maxSpecialPrograms is the most programs made for sites that a Manager has.
// The kernel keeps some kilobytes for each. Loading one for each of thousands
// of processes would take more time than they save.
const maxSpecialPrograms = 256

// A specialKey identifies a program made for sites by the one that it was made
// of, and by the IDs of its specs in ascending order.
type specialKey struct {
	program *loadedProgram
	ids     string
}

// A specialProgram is a program made for sites. Links share it, and keep the
// IDs of its specs from being given to other specs.
type specialProgram struct {
	key  specialKey
	refs int
	load func() (*ebpf.Program, error) // once
}

// acquireSpecial returns a program that does the same at these sites as the
// loaded one, or says why the loaded one has to be attached. ids has the spec
// ID of each site. The caller releases the program.
func (m *Manager) acquireSpecial(
	loaded *loadedProgram, sel *Selection, ids []uint64,
) (*specialProgram, error) {
	lists := make(map[uint32][]argspec.Arg)
	for i, id := range ids {
		if len(lists) <= specialise.MaxSpecs {
			lists[uint32(id)] = sel.sites[i].Args
		}
	}
	key := specialKey{program: loaded}
	var specs []specialise.Spec
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		specs = append(specs, specialise.Spec{ID: id, Args: lists[id]})
		key.ids += strconv.Itoa(int(id)) + " "
	}

	m.mu.Lock()
	shared := m.special[key]
	if shared == nil && len(m.special) >= maxSpecialPrograms {
		m.mu.Unlock()
		return nil, fmt.Errorf("the Manager has %d programs made for sites, which is the limit",
			maxSpecialPrograms)
	}
	if shared == nil {
		shared = &specialProgram{key: key, load: sync.OnceValues(func() (*ebpf.Program, error) {
			return m.loadSpecial(loaded, specs)
		})}
		m.special[key] = shared
	}
	shared.refs++
	m.mu.Unlock()
	if _, err := shared.load(); err != nil {
		m.releaseSpecial(shared)
		return nil, err
	}
	return shared, nil
}

// releaseSpecial gives back a program that no site runs any more.
func (m *Manager) releaseSpecial(shared *specialProgram) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if shared.refs--; shared.refs > 0 {
		return
	}
	delete(m.special, shared.key)
	if program, err := shared.load(); err == nil {
		program.Close()
	}
}

// A refusedProgram is one that the kernel's verifier has refused, mostly
// because it takes too long to check. One for fewer specs may be accepted.
type refusedProgram struct {
	specs int
	err   *ebpf.VerifierError
}

func (m *Manager) loadSpecial(
	loaded *loadedProgram, specs []specialise.Spec,
) (*ebpf.Program, error) {
	from, err := loaded.origin()
	if err != nil {
		return nil, err
	}
	refusal := func(err error) error {
		return fmt.Errorf("the kernel refuses the program that was made for its sites: %w", err)
	}
	if refused := loaded.refused.Load(); refused != nil && len(specs) >= refused.specs {
		return nil, refusal(refused.err)
	}
	machine, err := sys.KernelMachine()
	if err != nil {
		return nil, err
	}
	general := specialise.Program{
		Instructions: from.spec.Instructions, Machine: machine,
		BigEndian: nativeOrder() == binary.BigEndian, Libbpf: m.specs.layout.IsLibbpf,
	}
	for {
		instructions, err := general.For(specs)
		if err != nil {
			return nil, err
		}
		special, err := m.loadWith(loaded, instructions)
		var refused *ebpf.VerifierError // cilium/ebpf has it also for what is lacking for a moment
		lacks := func(errno unix.Errno) bool { return errors.Is(err, errno) }
		switch {
		case err == nil:
			return special, nil
		case !errors.As(err, &refused) || slices.ContainsFunc([]unix.Errno{unix.EMFILE, unix.ENFILE,
			unix.ENOMEM, unix.EAGAIN}, lacks):
			return nil, fmt.Errorf("loading the program that was made for its sites: %w", err)
		case !general.Apart && len(specs) == 1:
			general.Apart = true // the program may have used too much of the stack
		default:
			loaded.refused.Store(&refusedProgram{len(specs), refused})
			return nil, refusal(err)
		}
	}
}

// loadWith loads a program with other instructions, and with the same maps.
func (m *Manager) loadWith(
	loaded *loadedProgram, instructions asm.Instructions,
) (*ebpf.Program, error) {
	from, err := loaded.origin()
	if err != nil {
		return nil, err
	}
	shared := make(map[string]*ebpf.Map)
	defer func() { sys.CloseTogether(slices.Collect(maps.Values(shared))) }()
	for name, id := range from.maps {
		m.mu.Lock()
		kept := loaded.maps[id]
		opened, err := kept.Clone() // nil for nil
		m.mu.Unlock()
		if kept == nil {
			opened, err = ebpf.NewMapFromID(id)
		}
		if err != nil {
			return nil, fmt.Errorf("opening map %s of the program, which needs CAP_SYS_ADMIN "+
				"if it was not loaded by Manager.LoadAndAssign: %w", name, err)
		}
		shared[name] = opened
	}
	spec := from.spec.Copy()
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

// An origin is the spec and the maps that a program was loaded with.
type origin struct {
	spec *ebpf.ProgramSpec
	maps map[string]ebpf.MapID // by the names that instructions have for them
}

// originOf finds the spec of a loaded program by its name, and checks it by its
// tag and maps.
func (m *Manager) originOf(info *ebpf.ProgramInfo) (*origin, error) {
	var found []*ebpf.ProgramSpec
	for _, spec := range m.programs {
		// The kernel keeps the beginning of a name; the rest is in BTF.
		if spec.Name == info.Name || kernelName(spec.Name) == info.Name {
			found = append(found, spec)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d programs of the collection have the name %s", len(found), info.Name)
	}
	from := &origin{spec: found[0], maps: make(map[string]ebpf.MapID)}
	instructions := slices.Clone(from.spec.Instructions)
	changed := false   // as it was loaded
	const kconfig = "" // instructions that refer to the kernel's configuration have no name for it
	var names []string
	for i := range instructions {
		ins := &instructions[i]
		changed = changed || btf.CORERelocationMetadata(ins) != nil || ins.IsKfuncCall()
		if !ins.IsLoadFromMap() {
			continue
		}
		name := ins.Reference()
		if name == kconfig && int32(ins.Constant) > 0 {
			return nil, errors.New("the program refers to a map by its descriptor")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	if !changed { // the kernel has a hash of the instructions
		// Marshal gives calls between functions their distances.
		if err := instructions.Marshal(io.Discard, nativeOrder()); err != nil {
			return nil, err
		}
		if same, err := instructions.HasTag(info.Tag, nativeOrder()); err != nil {
			return nil, err
		} else if !same {
			return nil, errors.New("the program in the collection is not the one that was loaded")
		}
	}

	// The kernel lists maps in the order in which instructions first refer to
	// them.
	ids, ok := info.MapIDs()
	if !ok || len(ids) != len(names) {
		return nil, fmt.Errorf("the kernel lists %d maps of a program with %d", len(ids), len(names))
	}
	for i, name := range names {
		if name != kconfig {
			from.maps[name] = ids[i]
		}
	}
	if from.maps[specMapName] != m.specs.id {
		return nil, errors.New("the kernel lists the maps in another order than the program has them")
	}
	return from, nil
}

// nativeOrder is binary.NativeEndian as cilium/ebpf asks for it.
func nativeOrder() binary.ByteOrder {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}
