// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

// What prepares a collection, for tests that run programs without a probe.
var (
	MakeHeaderFunctionsStatic = makeHeaderFunctionsStatic
	CookieVariables           = cookieVariables
)

const SpecMapName = specMapName

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
