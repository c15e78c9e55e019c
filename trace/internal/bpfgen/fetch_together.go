// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"maps"
	"slices"

	"github.com/gousdt/gousdt/internal/argcode"
)

// placedGroup is a group that has a place on the stack.
type placedGroup struct {
	argcode.Group
	at int // of its first byte
}

// together emits code that reads arguments and has no other effects. In it,
// neighbours in memory are read by one call, where the first of them is needed.
// If that call fails, the code starts again in a second version, which reads
// each argument by a call of its own: an argument that cannot be read matters
// only if it is needed.
func (f *fetcher) together(indices []int, emit func()) {
	if !f.merge(indices) {
		emit()
		return
	}
	before := maps.Clone(f.loaded)
	done := f.Label()
	f.merging, f.restart = true, f.Label()
	emit()
	f.Jump(done)
	merged := f.loaded

	f.Place(f.restart)
	f.merging, f.loaded = false, before
	emit()
	f.Place(done)
	f.loaded = common(f.loaded, merged)
}

// merge finds groups among arguments, gives them a place, and reports whether
// there are any.
func (f *fetcher) merge(indices []int) bool {
	var wanted []int
	found := false
	for _, i := range indices {
		switch {
		case f.alone || !f.inMemory(i) || f.loaded[i] || slices.Contains(wanted, i):
		case f.merged[i] != nil:
			found = found || f.usable(f.merged[i])
		default:
			wanted = append(wanted, i)
		}
	}
	for _, g := range f.Groups(wanted) {
		if len(g.Args) == 1 {
			continue
		}
		found = true
		lead := g.Lead()
		placed := &placedGroup{Group: g, at: f.Alloc(lead+g.Span()) + lead}
		for _, i := range g.Args {
			f.merged[i] = placed
			f.stack[i] = placed.at + g.Distance(f.Args, i)
		}
	}
	return found
}

// usable reports whether a group is to be read: not what has been read already
// and may have changed since.
func (f *fetcher) usable(g *placedGroup) bool {
	return g != nil && !slices.ContainsFunc(g.Args, func(i int) bool { return f.loaded[i] })
}

// common returns what is loaded on both of two paths.
func common(a, b map[int]bool) map[int]bool {
	both := maps.Clone(a)
	maps.DeleteFunc(both, func(index int, _ bool) bool { return !b[index] })
	return both
}
