// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"weak"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/specialise"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// maxSpecialPrograms is how many programs made for sites a Manager has at most.
// The kernel keeps some kilobytes for each. Where it takes more, such as one
// for each of thousands of processes with a cookie of their own, loading them
// takes longer than hits will save.
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

// specialKey tells the programs apart that are made of the same one, by the IDs
// of their specs, which are in ascending order.
type specialKey struct {
	origin weak.Pointer[ebpf.Program]
	ids    string
}

// A specialProgram is one that links share. The IDs of its specs are its own as
// long as one of these links exists.
type specialProgram struct {
	key  specialKey
	refs int

	loaded  chan struct{} // closed when it is loaded, or cannot be
	program *ebpf.Program
	err     error
}

func newSpecialiser(
	m *Manager, spec *ebpf.CollectionSpec, programs map[string]*ebpf.ProgramSpec,
) *specialiser {
	s := &specialiser{
		manager: m, programs: programs, maps: make(map[ebpf.MapID]*ebpf.Map),
		origins: make(map[weak.Pointer[ebpf.Program]]*origin),
		special: make(map[specialKey]*specialProgram),
	}
	switch array, extension := programArray(spec), extensionIn(spec); {
	case !m.mode.cookie():
		s.refusal = "programs have no BPF cookie in mode " + m.mode.String()
	case array != "":
		s.refusal = "the collection has the program array " + array
	case extension != "":
		s.refusal = "the collection has the program " + extension +
			", which replaces functions of another one"
	}
	return s
}

// extensionIn returns the name of a program of the collection that replaces a
// function of a loaded program, "" if there is none. It would not replace that
// of the programs that are made later.
func extensionIn(spec *ebpf.CollectionSpec) string {
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		if spec.Programs[name].Type == ebpf.Extension {
			return name
		}
	}
	return ""
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

// acquire returns a program that does for these sites what prog does. The
// error says why prog has to be attached itself. The program is to be released.
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
	switch {
	case shared == nil && len(s.special) >= maxSpecialPrograms:
		s.mu.Unlock()
		return nil, fmt.Errorf("the Manager has %d programs made for sites, and takes no more",
			maxSpecialPrograms)
	case shared == nil:
		shared = &specialProgram{key: key, loaded: make(chan struct{})}
		s.special[key] = shared
		shared.refs++
		s.mu.Unlock()
		shared.program, shared.err = s.load(prog, specs)
		close(shared.loaded)
	default:
		shared.refs++
		s.mu.Unlock()
		<-shared.loaded
	}
	if shared.err != nil {
		s.release(shared)
		return nil, shared.err
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
	if shared.program != nil {
		shared.program.Close()
	}
}

// distinct returns the specs of the sites, in ascending order of their IDs,
// without repetitions.
func (h *holding) distinct(sel *Selection) []specialise.Spec {
	lists := make(map[uint32]int32)
	for i, cookie := range h.cookies {
		if id := uint32(cookie); len(lists) <= specialise.MaxSpecs {
			lists[id] = sel.sites.rows[i].list
		}
	}
	var specs []specialise.Spec
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		specs = append(specs, specialise.Spec{ID: id, Args: sel.sites.lists[lists[id]].args})
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
	machine, err := kernelMachine()
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
