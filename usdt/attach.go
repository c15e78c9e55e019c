// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"weak"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// AttachOptions change how a program is attached. Nil, or the zero value, is
// the common case.
type AttachOptions struct {
	// Cookie is a number that the program reads with bpf_usdt_cookie, and so do
	// the programs of the same Manager that it tail-calls.
	//
	// Where the kernel has BPF cookies, bpf_get_attach_cookie returns it to
	// programs of a collection without bpf/usdt.bpf.h. In others it does so to
	// a program that reads no arguments and makes no tail calls, unless one of
	// the collection replaces functions.
	//
	// Package trace has the cookie in each event, and its filters and
	// aggregations can use it.
	Cookie uint64

	// SiteCookie, if set, returns the cookie of each site, and Cookie is
	// ignored. It is called once for each site, one call after the other, by
	// the goroutine that attaches, before the site is attached, and again for
	// the others where the kernel has refused some. With it a program tells its
	// probes apart. Each cookie takes a spec of its own, so
	// more than 256 cookies need [ManagerOptions].MaxSpecs.
	SiteCookie func(Site) uint64
}

// Attach attaches a program to the probes of a file that match any of the
// patterns, or to all its probes if there is no pattern. [elfnote.Exact] names
// one probe. All sites of all probes are attached, and the Link stands for all
// of them. [AttachOptions].SiteCookie lets the program tell them apart. A site
// that cannot be attached is skipped, see [Selection.Skipped], unless the
// target is a Selection: then all of its sites are attached.
//
// The program must belong to the collection that the Manager was made for, and
// must have been loaded with [Manager.CollectionOptions]. [Selection.AttachRaw]
// is for other programs.
// Attach is all or nothing: if it fails, nothing stays attached.
//
// The error is one of those of [Select], a [*SiteError] if the kernel refuses a
// site, or a [*LimitError] if there is no room for the specs. It wraps
//
//   - [ErrWritten] or [ErrNotStarted],
//   - [errors.ErrUnsupported] if a probe has a semaphore and the kernel cannot
//     count it; in ModeMulti, if there is a PID and the kernel would take it
//     for a thread,
//   - [os.ErrClosed] after [Manager.Close].
//
// Other errors say that the program was not loaded for this Manager.
func (m *Manager) Attach(
	prog *ebpf.Program, target Target, opts *AttachOptions, patterns ...elfnote.Pattern,
) (*Link, error) {
	sel, err := Select(target, patterns...)
	if err != nil {
		return nil, err
	}
	defer sel.Close()
	for {
		lnk, err := m.attach(prog, sel, opts)
		rest, ok := sel.WithoutRefused(err)
		if !ok || target.Selection != nil {
			return lnk, err
		}
		sel = rest
	}
}

// attach attaches to all sites of a selection, which may be closed afterwards.
func (m *Manager) attach(
	prog *ebpf.Program, sel *Selection, opts *AttachOptions,
) (_ *Link, err error) {
	end, err := m.begin(sel.Name())
	if err != nil {
		return nil, err
	}
	defer end()
	loaded, err := m.loadedProgram(prog)
	if err != nil {
		return nil, err
	}
	if opts == nil {
		opts = &AttachOptions{}
	}
	cookies := make([]uint64, len(sel.sites)) // that the kernel hands to the program
	for i := range cookies {
		cookies[i] = opts.Cookie
		if opts.SiteCookie != nil {
			cookies[i] = opts.SiteCookie(sel.sites[i])
		}
	}

	var held []func() // give back what the link needs
	release := func() {
		for _, giveBack := range slices.Backward(held) {
			giveBack()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	mode, dispatch := m.mode, (*dispatcher)(nil)
	if loaded.reads || loaded.callsOn {
		if m.specs.layout.IsLibbpf {
			sel = sel.limitedTo(m.specs.layout)
		}
		specs, which := sel.encode(m.specs.layout, cookies)
		entries, err := m.specs.acquire(specs)
		if err != nil {
			return nil, err
		}
		held = append(held, func() { m.specs.release(entries) })
		for i, n := range which {
			cookies[i] = uint64(entries[n].id)
		}
		switch {
		case mode.hasCookie():
		case loaded.sleeps:
			mode = ModeSingle // kernels that have such programs have BPF cookies
		case m.slots == nil:
			return nil, fmt.Errorf("the collection has no map %s: compile it with bpf/usdt.bpf.h",
				addressMapName)
		default:
			if dispatch, err = m.slots.dispatcher(prog); err != nil {
				return nil, err
			}
			held = append(held, func() { dispatch.program.Close() })
		}
	}

	lnk, err := sel.attach(prog, mode, cookies, dispatch)
	if err != nil {
		return nil, err
	}
	isOpen := m.keep(lnk)
	lnk.whenEnded(func() {
		release()
		m.forget(lnk)
	})
	if !isOpen {
		lnk.Close()
		held = nil // Close has given it back
		return nil, sys.ClosedError("manager")
	}
	return lnk, nil
}

// encode returns the specs of the sites with these cookies, and for each site
// the index of its spec. Sites that share a list of arguments and have the same
// cookie share a spec. Two specs may be equal.
func (s *Selection) encode(layout *sitespec.Layout, cookies []uint64) (specs []string, which []int) {
	type key struct {
		list   *argspec.Arg
		cookie uint64
	}
	which = make([]int, len(s.sites))
	known := make(map[key]int)
	spec := make([]byte, layout.Size)
	for i := range s.sites {
		k := key{s.sites[i].argumentList(), cookies[i]}
		n, isKnown := known[k]
		if !isKnown {
			n = len(specs)
			known[k] = n
			layout.Encode(spec, s.machines, binary.NativeEndian, k.cookie, s.sites[i].Args)
			specs = append(specs, string(spec))
		}
		which[i] = n
	}
	return specs, which
}

// limitedTo returns the selection with those arguments unavailable that the
// layout cannot describe. Mostly there are none, and all links share the sites.
func (s *Selection) limitedTo(layout *sitespec.Layout) *Selection {
	limited := s
	known := make(map[*argspec.Arg][]argspec.Arg)
	for i := range s.sites {
		list := s.sites[i].argumentList()
		args, isKnown := known[list]
		if !isKnown {
			for n := range s.sites[i].Args {
				if err := layout.Check(s.machines, &s.sites[i].Args[n]); err != nil {
					if args == nil {
						args = slices.Clone(s.sites[i].Args)
					}
					args[n].Kind, args[n].Err = argspec.Unavailable, err
				}
			}
			known[list] = args
		}
		if args == nil {
			continue
		}
		if limited == s {
			limited = s.ForPID(s.pid, "")
			limited.sites = slices.Clone(s.sites)
		}
		limited.sites[i].Args = args
	}
	return limited
}

// A loadedProgram is what a program does. Asking the kernel takes 100 µs.
type loadedProgram struct {
	reads   bool // it looks specs up
	callsOn bool // it may reach another program, which may look specs up
	sleeps  bool
}

var errNoProgram = errors.New("there is no program to attach: was it loaded?")

// loadedProgram returns an error if the program would find nothing in its maps,
// because they are not the Manager's.
func (m *Manager) loadedProgram(prog *ebpf.Program) (loadedProgram, error) {
	if prog == nil {
		return loadedProgram{}, errNoProgram
	}
	key := weak.Make(prog)
	m.mu.Lock()
	known, isKnown := m.loaded[key]
	m.mu.Unlock()
	switch {
	case isKnown:
		return known, nil
	case m.specs == nil:
		return loadedProgram{}, nil
	}
	info, err := prog.Info()
	if err != nil {
		return loadedProgram{}, explain("asking the kernel for the program", err)
	}
	ids, _ := info.MapIDs()
	others, calls := m.askMaps(info.Name, ids)
	known = loadedProgram{reads: slices.Contains(ids, m.specs.id), callsOn: calls || m.extended,
		sleeps: m.programs[info.Name].sleeps}
	if !known.reads && others {
		return loadedProgram{}, fmt.Errorf("program %s was loaded without this Manager's maps: pass Manager."+
			"CollectionOptions() to CollectionSpec.LoadAndAssign or NewCollectionWithOptions", info.Name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.loaded, func(other weak.Pointer[ebpf.Program], _ loadedProgram) bool {
		return other.Value() == nil
	})
	if !m.closed {
		m.loaded[key] = known
	}
	return known, nil
}

// Check returns the error with which Attach would refuse a program, whatever
// the target: it was not loaded for this Manager.
func (m *Manager) Check(prog *ebpf.Program) error {
	_, err := m.loadedProgram(prog)
	return err
}

// askMaps reports whether one of a program's maps is another Manager's map of
// specs, and whether one is a program array, which any tail call needs. Opening
// maps needs CAP_SYS_ADMIN. Without it the program of that name in the
// collection decides; one that is not in it may make tail calls.
func (m *Manager) askMaps(name string, ids []ebpf.MapID) (others, calls bool) {
	for _, id := range ids {
		if id == m.specs.id {
			continue
		}
		opened, err := ebpf.NewMapFromID(id)
		if err != nil {
			named, known := m.programs[name]
			return named.reads, named.callsOn || !known
		}
		calls = calls || opened.Type() == ebpf.ProgramArray
		info, err := opened.Info()
		opened.Close()
		others = others || err == nil && info.Name == kernelName(specMapName)
	}
	return others, calls
}
