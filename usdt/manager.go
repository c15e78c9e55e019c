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
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// The maps that bpf/usdt.bpf.h declares, and libbpf's header.
const (
	specMapName    = "__bpf_usdt_specs"
	addressMapName = "__bpf_usdt_ip_to_spec_id"
)

// cookieVariables are the names of the variable that tells programs whether
// they have a BPF cookie, in this module's header and in libbpf's.
var cookieVariables = []string{"__bpf_usdt_has_cookie", "LINUX_HAS_BPF_COOKIE"}

// ManagerOptions change how a Manager prepares programs. Nil, or the zero
// value, is the common case.
type ManagerOptions struct {
	// Mode is the way in which programs are attached. ModeAuto, the zero value,
	// takes the best mode that the kernel has, but not ModeMulti if the
	// collection has a program array. Since kernel commit 4540aed51b12, which
	// stable kernels have too, such an array refuses programs of different
	// attach types, and programs for ModeMulti have one of their own.
	Mode Mode

	// MaxSpecs is the number of distinct specs that there is room for. A spec
	// is the places of a site's arguments together with the cookie. It takes
	// 208 bytes of kernel memory, or 304 in objects made for libbpf 1.7. With 0
	// it is what the object says: 256, or its BPF_USDT_MAX_SPEC_CNT.
	MaxSpecs uint32

	// Programs names further programs of the collection for USDT probes. Those
	// whose section is "usdt" or "usdt.s", or begins with "usdt/" or "usdt.s/",
	// need not be named, with or without a "?" before that.
	Programs []string
}

// A Manager attaches the programs of one collection to USDT probes. It holds
// the maps by which the programs find their arguments, those of bpf/usdt.bpf.h
// or of libbpf's header of the same name. Its methods are safe for concurrent
// use.
//
// Keep a reference to the Manager as long as its programs are to be attached:
// the garbage collector detaches what nothing refers to.
type Manager struct {
	mode     Mode
	programs map[string]loadedProgram // of the collection, by their names, also cut
	extended bool                     // the collection has a program that replaces functions
	specs    *specTable               // nil where the object does not use the header
	slots    *slots                   // likewise, and in other modes than ModeSingleIPMap

	attaching attaching.Files

	mu     sync.Mutex
	closed bool
	open   map[*Link]struct{}
	loaded map[weak.Pointer[ebpf.Program]]loadedProgram // until the caller forgets the program

	done      chan struct{}
	closeOnce sync.Once
	closeErr  error
}

// NewManager prepares a collection for USDT probes, after it was read and
// before it is loaded with the Manager's CollectionOptions.
//
// NewManager changes spec: the attach type of USDT programs, the size of the
// support maps, and the variable that tells the programs whether there is a BPF
// cookie. In ModeSingleIPMap it puts instructions in the place of each call of
// bpf_get_attach_cookie in programs that read arguments. From Linux 6.13 on, on
// x86-64 and arm64, it also puts three instructions in front of each USDT
// program that has no tail call. They hold a tail call that is never made, so
// that the kernel does not give the program a stack that two threads may use at
// the same time.
//
// To load an object several times, give each Manager its own spec.Copy().
//
// NewManager creates the support maps, which takes the privileges of loading.
// The error wraps [errors.ErrUnsupported] if the kernel does not have the mode
// that the options ask for, or [os.ErrPermission] if the caller lacks a
// privilege. Other errors say what is wrong with the object.
func NewManager(spec *ebpf.CollectionSpec, opts *ManagerOptions) (*Manager, error) {
	if spec == nil {
		return nil, errors.New("there is no collection: read one by bpf2go or ebpf.LoadCollectionSpec")
	}
	if opts == nil {
		opts = &ManagerOptions{}
	}
	mode, err := opts.Mode.Resolve()
	if err != nil {
		return nil, err
	}
	for _, of := range spec.Maps {
		isArray := of.Type == ebpf.ProgramArray ||
			of.InnerMap != nil && of.InnerMap.Type == ebpf.ProgramArray
		if isArray && opts.Mode == ModeAuto && mode.by().isLink {
			mode = ModeSingle // kernels refuse programs of mixed attach types in one array
		}
	}

	m := &Manager{mode: mode, programs: make(map[string]loadedProgram), open: make(map[*Link]struct{}),
		done: make(chan struct{}), loaded: make(map[weak.Pointer[ebpf.Program]]loadedProgram)}
	makeHeaderFunctionsStatic(spec)
	if err := setCookieVariables(spec); err != nil {
		return nil, err
	}
	if err = m.createMaps(spec, opts); err == nil {
		err = m.preparePrograms(spec, opts)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Manager) createMaps(spec *ebpf.CollectionSpec, opts *ManagerOptions) error {
	if specs := spec.Maps[specMapName]; specs != nil {
		layout, err := sitespec.LayoutOf(specs.ValueSize, specs.Value)
		if err == nil && (specs.Type != ebpf.Array || specs.KeySize != 4) {
			err = fmt.Errorf("its type is %s, with keys of %d bytes", specs.Type, specs.KeySize)
		}
		if err != nil {
			return fmt.Errorf("map %s has a form that this version does not know: compile the object "+
				"with the bpf/usdt.bpf.h of this module, or with that of libbpf: %w", specMapName, err)
		}
		if opts.MaxSpecs != 0 {
			specs.MaxEntries = opts.MaxSpecs
		}
		specs.MaxEntries = min(specs.MaxEntries, math.MaxUint32-firstSpecID) + firstSpecID
		if m.specs, err = newSpecTable(specs, layout); err != nil {
			return err
		}
	}

	if addresses := spec.Maps[addressMapName]; addresses != nil {
		addresses.MaxEntries = 1 // nothing will ever be in it, and each entry would take memory
		if m.specs != nil && !m.mode.hasCookie() {
			kernel, err := askKernel()
			if err == nil {
				m.slots, err = newSlots(addresses, kernel.cookie)
			}
			return err
		}
	}
	return nil
}

// CollectionOptions returns the options to load the collection with, by
// [ebpf.CollectionSpec.LoadAndAssign] or [ebpf.NewCollectionWithOptions]. They
// replace the support maps of the object by those of the Manager. The caller
// may change the result, and add replacements for other maps.
func (m *Manager) CollectionOptions() *ebpf.CollectionOptions {
	replacements := make(map[string]*ebpf.Map)
	if m.specs != nil {
		replacements[specMapName] = m.specs.entries
	}
	if m.slots != nil {
		replacements[addressMapName] = m.slots.entries
	}
	return &ebpf.CollectionOptions{MapReplacements: replacements}
}

// Close closes the links of the Manager, all together, and releases the maps.
// It waits for calls of Attach, which fail, so that nothing stays attached. It
// waits for no more than 2 s, in other modes than ModeMulti 20 s, for a file
// system that does not answer: then the error wraps proc.ErrBlocked, and what
// the kernel still attaches is detached as soon as it has. It is safe to call
// Close again.
func (m *Manager) Close() error {
	m.closeOnce.Do(func() {
		m.mu.Lock()
		m.closed = true
		if m.done != nil { // of a zero Manager
			close(m.done)
		}
		open := slices.Collect(maps.Keys(m.open))
		clear(m.loaded)
		m.mu.Unlock()

		errs := []error{sys.CloseTogether(open), m.attaching.Wait(m.mode.by().patience)}
		if m.specs != nil {
			errs = append(errs, m.specs.close())
		}
		if m.slots != nil {
			errs = append(errs, m.slots.entries.Close())
		}
		m.closeErr = errors.Join(errs...)
	})
	return m.closeErr
}

// Done returns a channel that is closed when Close begins.
func (m *Manager) Done() <-chan struct{} { return m.done }

// begin notes that a file is being attached, until end is called.
func (m *Manager) begin(file string) (end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, sys.ClosedError("manager")
	}
	return m.attaching.Begin(file), nil
}

// keep remembers a link until it is closed. It returns false if the
// Manager has been closed in the meantime.
func (m *Manager) keep(l *Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.open[l] = struct{}{}
	}
	return !m.closed
}

func (m *Manager) forget(l *Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, l)
}

// preparePrograms sets the attach type of USDT programs, which cannot be
// changed later, and keeps them from having a stack that threads share.
func (m *Manager) preparePrograms(spec *ebpf.CollectionSpec, opts *ManagerOptions) error {
	programs := make(map[string]*ebpf.ProgramSpec) // those for USDT probes
	for name, prog := range spec.Programs {
		// To libbpf a "?" means not to load and attach the program unless asked
		// to. Here the caller decides which programs are loaded.
		section, _, _ := strings.Cut(strings.TrimPrefix(prog.SectionName, "?"), "/")
		if section == "usdt" || section == "usdt.s" {
			programs[name] = prog
		}
		reads := slices.ContainsFunc(prog.Instructions, func(ins asm.Instruction) bool {
			return ins.Reference() == specMapName
		})
		calls := attaching.HasTailCall(prog.Instructions)
		for _, name := range []string{prog.Name, kernelName(prog.Name)} {
			one := m.programs[name] // another with the same name when it is cut
			m.programs[name] = loadedProgram{one.reads || reads, one.callsOn || calls,
				one.sleeps || isSleepable(prog)}
		}
		if m.slots != nil && reads && !isSleepable(prog) {
			var err error
			if prog.Instructions, err = m.slots.findIn(prog.Instructions); err != nil {
				return fmt.Errorf("program %s: %w", name, err)
			}
		}
		m.extended = m.extended || prog.Type == ebpf.Extension
	}
	for _, name := range opts.Programs {
		prog := spec.Programs[name]
		if prog == nil {
			return fmt.Errorf("ManagerOptions.Programs: the collection has no program %s", name)
		}
		programs[name] = prog
	}
	kernel, _ := sys.KernelMachine() // if it is not known, nothing can be attached
	for name, prog := range programs {
		if prog.Type != ebpf.Kprobe {
			return fmt.Errorf("program %s has the type %s, but USDT probes need Kprobe", name, prog.Type)
		}
		prog.AttachType = m.mode.by().attachType
		var err error
		prog.Instructions, err = attaching.AvoidPrivateStackIn(prog.Instructions, kernel)
		if err != nil {
			return explain("asking for the kernel's version", err)
		}
	}
	return nil
}

// kernelName returns the part of a name that the kernel keeps: 15 bytes.
func kernelName(name string) string { return name[:min(len(name), 15)] }

// setCookieVariables has the programs ask for their BPF cookie. In
// ModeSingleIPMap they then find something else in its place.
func setCookieVariables(spec *ebpf.CollectionSpec) error {
	for _, name := range cookieVariables {
		if v := spec.Variables[name]; v != nil {
			if err := v.Set(true); err != nil {
				return fmt.Errorf("setting %s: %w", name, err)
			}
		}
	}
	for _, prog := range spec.Programs {
		assumeCookie(prog.Instructions)
	}
	return nil
}

// headerFunctions are the functions of the header that programs call. They are
// hidden: an object that is linked from several files has one of each for every
// file.
var headerFunctions = []string{"bpf_usdt_arg", "bpf_usdt_arg_address", "bpf_usdt_arg_size",
	"__bpf_usdt_read_many"}

// makeHeaderFunctionsStatic makes these functions static, so that the verifier
// checks them together with their callers. It checks a global function alone,
// and refuses these, because they get pointers into the stack of a caller.
func makeHeaderFunctionsStatic(spec *ebpf.CollectionSpec) {
	for _, prog := range spec.Programs {
		for i := range prog.Instructions {
			ins := &prog.Instructions[i]
			f := btf.FuncMetadata(ins)
			if f == nil || !slices.Contains(headerFunctions, f.Name) || f.Linkage == btf.StaticFunc {
				continue
			}
			// Programs, and copies of the collection, share what describes the
			// function.
			static := *f
			static.Linkage = btf.StaticFunc
			*ins = btf.WithFuncMetadata(*ins, &static)
		}
	}
}
