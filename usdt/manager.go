// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// What bpf/usdt.bpf.h declares.
const (
	specMapName        = "__bpf_usdt_specs"
	addressMapName     = "__bpf_usdt_ip_to_spec_id"
	cookieVariableName = "__bpf_usdt_has_cookie"
)

// ManagerOptions change how a Manager prepares programs. The zero value is the
// common case.
type ManagerOptions struct {
	// Mode forces how programs are attached; ModeAuto, the zero value, takes
	// the best that the kernel has. A program array refuses programs of mixed
	// attach types from kernel commit 4540aed51b12 on, which stable kernels
	// have too, so a collection with tail calls to programs of other kinds
	// needs ModeSingle.
	Mode Mode

	// MaxSpecs is the number of distinct specs that can be attached at a time,
	// a spec being the resolved arguments of a site together with the cookie.
	// One takes 208 bytes of kernel memory. 0 keeps what the object says: 256,
	// or its own BPF_USDT_MAX_SPEC_CNT.
	MaxSpecs uint32

	// MaxAddresses is the number of addresses that can be attached at a time in
	// ModeSingleIPMap. 0 keeps what the object says: four times the number of
	// specs, or its own BPF_USDT_MAX_IP_CNT. The other modes need none.
	MaxAddresses uint32

	// Programs names further programs of the collection that are going to be
	// attached to USDT probes, beside those whose section is "usdt" or begins
	// with "usdt/", "usdt.s" or "usdt.s/".
	Programs []string
}

// A Manager attaches the programs of one collection to USDT probes, and keeps
// what they need to read arguments: the maps of specs and addresses that
// bpf/usdt.bpf.h declares. All methods are safe for concurrent use.
//
// Keep a reference to it as long as programs are to be attached: what nothing
// refers to any more is detached by the garbage collector.
type Manager struct {
	mode      Mode
	sections  map[string]string // program's name in the collection: what its section says to attach to
	readers   map[string]bool   // by kernelName: whether the program looks specs up
	specs     *specTable        // nil where the object does not use the header
	addresses *addressTable     // likewise

	mu      sync.Mutex
	links   map[*Link]struct{}
	watches map[*Watch]struct{}
	checked map[weak.Pointer[ebpf.Program]]bool // what checkProgram has found out: asking the kernel takes 100 µs
	closed  bool

	closeOnce sync.Once
	closeErr  error
}

// NewManager prepares a collection for USDT probes, before it is loaded. It
// changes spec: the attach type of USDT programs, the size of the support maps,
// and the variable that tells the programs whether there is a BPF cookie. Then
// load the collection with CollectionOptions:
//
//	spec, err := loadProbes() // by bpf2go, or ebpf.LoadCollectionSpec
//	mgr, err := usdt.NewManager(spec, nil)
//	err = spec.LoadAndAssign(&objs, mgr.CollectionOptions())
//
// For two Managers of one object, give each its own spec.Copy().
//
// It creates the support maps, so it needs the privileges that loading needs.
// It returns an [*UnsupportedError] where the kernel lacks a forced mode, and a
// [*PermissionError] for want of privileges. Other errors say what is wrong
// with the object.
func NewManager(spec *ebpf.CollectionSpec, opts *ManagerOptions) (*Manager, error) {
	if opts == nil {
		opts = &ManagerOptions{}
	}
	mode, err := chooseMode(opts.Mode)
	if err != nil {
		return nil, err
	}

	m := &Manager{
		mode: mode, sections: make(map[string]string), readers: make(map[string]bool),
		links: make(map[*Link]struct{}), watches: make(map[*Watch]struct{}),
		checked: make(map[weak.Pointer[ebpf.Program]]bool),
	}
	makeHeaderFunctionsStatic(spec)
	if err := m.preparePrograms(spec, opts.Programs); err != nil {
		return nil, err
	}
	if err := m.createMaps(spec, opts); err != nil {
		m.Close()
		return nil, err
	}
	if v := spec.Variables[cookieVariableName]; v != nil {
		if err := v.Set(mode.cookie()); err != nil {
			m.Close()
			return nil, fmt.Errorf("setting %s: %w", cookieVariableName, err)
		}
	}
	return m, nil
}

func chooseMode(wanted Mode) (Mode, error) {
	if wanted > ModeSingleIPMap {
		return 0, fmt.Errorf("no such mode: %s", wanted)
	}
	kernel, err := KernelFeatures()
	if err != nil {
		return 0, err
	}
	if wanted == ModeAuto {
		return kernel.Mode(), nil
	}
	return wanted, kernel.Supports(wanted)
}

// preparePrograms sets the attach type of USDT programs, which the kernel fixes
// as it loads them.
func (m *Manager) preparePrograms(spec *ebpf.CollectionSpec, names []string) error {
	programs := make(map[string]*ebpf.ProgramSpec)
	for name, prog := range spec.Programs {
		if section, at, _ := strings.Cut(prog.SectionName, "/"); section == "usdt" || section == "usdt.s" {
			programs[name] = prog
			if at != "" {
				m.sections[name] = at
			}
		}
	}
	for _, name := range names {
		prog := spec.Programs[name]
		if prog == nil {
			return fmt.Errorf("program %s is named by ManagerOptions.Programs, but is not in the collection", name)
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
			return fmt.Errorf("program %s has the type %s, but programs for USDT probes have the type Kprobe", name, prog.Type)
		}
		prog.AttachType = ebpf.AttachNone
		if m.mode == ModeMulti {
			prog.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	return nil
}

// kernelName is what the kernel keeps of a name: 15 bytes.
func kernelName(name string) string { return name[:min(len(name), 15)] }

func (m *Manager) createMaps(spec *ebpf.CollectionSpec, opts *ManagerOptions) error {
	if specs := spec.Maps[specMapName]; specs != nil {
		if specs.Type != ebpf.Array || specs.KeySize != 4 || specs.ValueSize != sitespec.Size {
			return fmt.Errorf("map %s has values of %d bytes where %d are expected: compile the object with the "+
				"bpf/usdt.bpf.h of this module's version", specMapName, specs.ValueSize, sitespec.Size)
		}
		if opts.MaxSpecs != 0 {
			specs.MaxEntries = opts.MaxSpecs
		}
		specs.MaxEntries = min(specs.MaxEntries, math.MaxUint32-firstSpecID) + firstSpecID
		created, err := ebpf.NewMap(specs)
		if err != nil {
			return explain("creating the map of specs", err)
		}
		m.specs = newSpecTable(created)
	}

	if addresses := spec.Maps[addressMapName]; addresses != nil {
		switch {
		case m.mode != ModeSingleIPMap:
			// Nothing will ever be in it, and each entry would take memory.
			addresses.MaxEntries = 1
		case opts.MaxAddresses != 0:
			addresses.MaxEntries = opts.MaxAddresses
		}
		created, err := ebpf.NewMap(addresses)
		if err != nil {
			return explain("creating the map of addresses", err)
		}
		m.addresses = newAddressTable(created)
	}
	return nil
}

// CollectionOptions returns what to load the collection with: the Manager's
// maps in the place of those that the object declares. The result is the
// caller's to extend.
func (m *Manager) CollectionOptions() *ebpf.CollectionOptions {
	replacements := make(map[string]*ebpf.Map)
	if m.specs != nil {
		replacements[specMapName] = m.specs.specs
	}
	if m.addresses != nil {
		replacements[addressMapName] = m.addresses.addresses
	}
	return &ebpf.CollectionOptions{MapReplacements: replacements}
}

// Mode returns how this Manager attaches programs. It is never ModeAuto.
func (m *Manager) Mode() Mode { return m.mode }

// SpecsInUse returns how many entries of the spec map the links of this Manager
// hold, and how many there are.
func (m *Manager) SpecsInUse() (used, capacity int) {
	if m.specs == nil {
		return 0, 0
	}
	return m.specs.inUse(), m.specs.capacity()
}

// Close closes all links that are still attached, all at a time, closes all
// watches, and releases the maps. It is safe to call it again.
func (m *Manager) Close() error {
	m.closeOnce.Do(func() {
		m.mu.Lock()
		m.closed = true
		clear(m.checked)
		links := slices.Collect(maps.Keys(m.links))
		watches := slices.Collect(maps.Keys(m.watches))
		m.mu.Unlock()

		for _, w := range watches {
			w.follower.Stop()
		}
		errs := []error{CloseAll(links...)}
		for _, w := range watches {
			_ = w.Close() // closing the links has told what it may fail with
		}
		if m.specs != nil {
			errs = append(errs, m.specs.close())
		}
		if m.addresses != nil {
			errs = append(errs, m.addresses.close())
		}
		m.closeErr = errors.Join(errs...)
	})
	return m.closeErr
}

// keep remembers a link until it is closed, unless the Manager has been closed
// in the meantime.
func (m *Manager) keep(lnk *Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.links[lnk] = struct{}{}
	return true
}

func (m *Manager) forget(lnk *Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.links, lnk)
}

// keepWatch remembers a watch until it is closed, unless the Manager has been
// closed in the meantime.
func (m *Manager) keepWatch(w *Watch) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.watches[w] = struct{}{}
	return true
}

func (m *Manager) forgetWatch(w *Watch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watches, w)
}
