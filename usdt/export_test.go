// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"weak"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
)

// What prepares a collection, for tests that run programs without a probe.
var (
	MakeHeaderFunctionsStatic = makeHeaderFunctionsStatic
	CookieVariables           = cookieVariables
)

const SpecMapName = specMapName

func (m *Manager) Mode() Mode { return m.mode }

// Links returns what the Manager has attached, in no order.
func (m *Manager) Links() (links []*Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for opened := range m.open {
		links = append(links, opened)
	}
	return links
}

// Programs returns how many programs the Manager remembers.
func (m *Manager) Programs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loaded)
}

// Subset returns a selection of some of the sites.
func (s *Selection) Subset(sites []int) *Selection {
	subset := s.ForPID(s.pid, "")
	subset.sites = nil
	for _, i := range sites {
		subset.sites = append(subset.sites, s.sites[i])
	}
	return subset
}

// SpecsInUse returns how many specs are in use by the links of the Manager, and
// how many there is room for.
func (m *Manager) SpecsInUse() (used, capacity int) {
	if m.specs == nil {
		return 0, 0
	}
	return m.specs.inUse(), m.specs.capacity
}

// inUse returns the number of entries that links hold.
func (t *specTable) inUse() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.used)
}

// AttachBy has the sites of a selection, and of those made from it, attached by
// a function in the kernel's place.
func (s *Selection) AttachBy(by multiAttach) { s.opened.attach = by }

// IsWritten does what is done when the file of a selection is to be written to.
func (s *Selection) IsWritten() { s.opened.holder.guard.detach() }

// AttachRest is Attach where the kernel may refuse some of the sites.
func (m *Manager) AttachRest(
	prog *ebpf.Program, sel *Selection, opts *AttachOptions, patterns ...elfnote.Pattern,
) (*Link, error) {
	sel, err := Select(Target{Selection: sel}, patterns...)
	if err != nil {
		return nil, err
	}
	for {
		l, err := m.attach(prog, sel, opts)
		rest, ok := sel.WithoutRefused(err)
		if !ok {
			return l, err
		}
		sel = rest
	}
}

// Assume has the Manager take a program for one of its collection that reads
// arguments.
func (m *Manager) Assume(prog *ebpf.Program) {
	m.loaded[weak.Make(prog)] = loadedProgram{reads: true}
}
