// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/specialise"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// maxSpecialPrograms is how many programs made for sites a Manager has at most.
// The kernel keeps some kilobytes for each. If there were more, such as one for
// each of thousands of processes with cookies of their own, loading them would
// take more time than they save.
const maxSpecialPrograms = 256

// A specialiser makes programs for the sites that a program is attached to. The
// Manager has one where ManagerOptions.Specialise is set.
type specialiser struct {
	manager  *Manager
	programs map[string]*ebpf.ProgramSpec // the collection's, by name
	refusal  string                       // why nothing is made for any program, "" if something may be

	mu      sync.Mutex
	origins map[weak.Pointer[ebpf.Program]]*origin
	maps    map[ebpf.MapID]*ebpf.Map // those of programs that the Manager has loaded
	closed  bool
	special map[specialKey]*specialProgram
}

// A specialKey identifies a program by the one that it was made of, and by the
// IDs of its specs in ascending order.
type specialKey struct {
	origin weak.Pointer[ebpf.Program]
	ids    string
}

// A specialProgram is a program made for sites. Links share it, and keep the
// IDs of its specs from being given to other specs.
type specialProgram struct {
	key  specialKey
	refs int
	load func() (*ebpf.Program, error) // once
}

func newSpecialiser(
	m *Manager, spec *ebpf.CollectionSpec, programs map[string]*ebpf.ProgramSpec,
) *specialiser {
	s := &specialiser{
		manager: m, programs: programs, maps: make(map[ebpf.MapID]*ebpf.Map),
		origins: make(map[weak.Pointer[ebpf.Program]]*origin),
		special: make(map[specialKey]*specialProgram),
	}
	// A program that replaces a function of a loaded program would not replace
	// that of the programs that are made later.
	extension := ""
	for name, program := range spec.Programs {
		if program.Type == ebpf.Extension && (extension == "" || name < extension) {
			extension = name
		}
	}
	switch {
	case !m.mode.cookie():
		s.refusal = "programs have no BPF cookie in mode " + m.mode.String()
	case extension != "":
		s.refusal = "the collection has the program " + extension +
			", which replaces functions of another one"
	}
	return s
}

// specialise takes a program made for the sites, or says why there is none.
func (h *holding) specialise(prog *ebpf.Program, sel *Selection, reads bool) (generic string) {
	switch s := h.manager.special; {
	case s == nil:
		return "ManagerOptions.Specialise is not set"
	case !reads:
		return "the program reads no arguments"
	default:
		special, err := s.acquire(prog, sel, h)
		if err != nil {
			return err.Error()
		}
		h.special = special
		return ""
	}
}

// acquire returns a program that does the same as prog at these sites. The
// caller releases it. The error says why prog itself has to be attached.
func (s *specialiser) acquire(
	prog *ebpf.Program, sel *Selection, held *holding,
) (*specialProgram, error) {
	if s.refusal != "" {
		return nil, errors.New(s.refusal)
	}
	specs := held.distinct(sel)
	key := specialKey{origin: weak.Make(prog)}
	var ids []byte
	for _, spec := range specs {
		ids = binary.NativeEndian.AppendUint32(ids, spec.ID)
	}
	key.ids = string(ids)

	s.mu.Lock()
	shared := s.special[key]
	if shared == nil && len(s.special) >= maxSpecialPrograms {
		s.mu.Unlock()
		return nil, fmt.Errorf("the Manager has %d programs made for sites, and takes no more",
			maxSpecialPrograms)
	}
	if shared == nil {
		shared = &specialProgram{key: key, load: sync.OnceValues(func() (*ebpf.Program, error) {
			return s.load(prog, specs)
		})}
		s.special[key] = shared
	}
	shared.refs++
	s.mu.Unlock()
	if _, err := shared.load(); err != nil {
		s.release(shared)
		return nil, err
	}
	return shared, nil
}

// release gives back a program that no site runs any more.
func (s *specialiser) release(shared *specialProgram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared.refs--; shared.refs > 0 {
		return
	}
	delete(s.special, shared.key)
	if program, err := shared.load(); err == nil {
		program.Close()
	}
}

// distinct returns the specs of the sites, in ascending order of their IDs,
// without repetitions.
func (h *holding) distinct(sel *Selection) []specialise.Spec {
	lists := make(map[uint32][]argspec.Arg)
	for i, cookie := range h.cookies {
		if len(lists) <= specialise.MaxSpecs {
			lists[uint32(cookie)] = sel.sites[i].Args
		}
	}
	var specs []specialise.Spec
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		specs = append(specs, specialise.Spec{ID: id, Args: lists[id]})
	}
	return specs
}

// load makes a program for specs and loads it.
func (s *specialiser) load(prog *ebpf.Program, specs []specialise.Spec) (*ebpf.Program, error) {
	from, err := s.originOf(prog)
	if err != nil {
		return nil, err
	}
	if refused := from.refused.Load(); refused != nil && len(specs) >= refused.specs {
		return nil, refusal(refused.err)
	}
	machine, err := sys.KernelMachine()
	if err != nil {
		return nil, err
	}
	general := specialise.Program{
		Instructions: from.spec.Instructions,
		Kernel: specialise.Kernel{Machine: machine,
			BigEndian: nativeOrder() == binary.BigEndian},
		Libbpf: !sitespec.IsOwn(s.manager.specs.layout),
	}
	for {
		instructions, err := general.For(specs)
		if err != nil {
			return nil, err
		}
		special, err := from.load(s, instructions)
		var refused *ebpf.VerifierError
		switch {
		case err == nil:
			return special, nil
		case errors.As(err, &refused) && !general.Apart && len(specs) == 1:
			general.Apart = true // it may have taken too much of the stack
		case errors.As(err, &refused):
			from.refused.Store(&refusedProgram{len(specs), refused})
			return nil, refusal(err)
		default:
			return nil, fmt.Errorf("loading the program that was made for its sites: %w", err)
		}
	}
}

func refusal(err error) error {
	return fmt.Errorf("the kernel refuses the program that was made for its sites: %w", err)
}

// origin is what a loaded program of the user's was loaded from.
type origin struct {
	spec *ebpf.ProgramSpec
	maps map[string]ebpf.MapID // by what instructions call them

	// refused is set once the kernel has refused a program that was made of
	// this one. Another try, for other sites, would take as long and fail, too.
	refused atomic.Pointer[refusedProgram]
}

// A refusedProgram is one that the kernel's verifier has refused, mostly
// because it takes too long to check. One for fewer specs may be accepted.
type refusedProgram struct {
	specs int
	err   *ebpf.VerifierError
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
		return nil, follow.Explain("asking the kernel for the program", err)
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
	if known.maps[specMapName] != s.manager.specs.id {
		return nil, errors.New("the kernel lists the maps of the program in another order than it refers to them")
	}
	s.mu.Lock()
	forgetDead(s.origins)
	s.origins[key] = known
	s.mu.Unlock()
	return known, nil
}

// forgetDead removes programs that have been freed from a map, each time the
// map has doubled.
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
	if err == nil && !same {
		err = errChanged
	}
	return err
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
	shared := make(map[string]*ebpf.Map)
	defer func() {
		for _, m := range shared {
			m.Close()
		}
	}()
	for name, id := range o.maps {
		m, err := s.open(id)
		if err != nil {
			return nil, fmt.Errorf("opening map %s of the program, which needs CAP_SYS_ADMIN "+
				"if it was not loaded by Manager.LoadAndAssign: %w", name, err)
		}
		shared[name] = m
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
