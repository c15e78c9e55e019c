// SPDX-License-Identifier: BSD-2-Clause

package argcode

import (
	"cmp"
	"slices"

	"github.com/gousdt/gousdt/argspec"
)

const (
	// maxSpan bounds what one read brings for several arguments. A read costs
	// the same for any size up to about this one, and the bytes between the
	// arguments take room in the record or on the stack.
	maxSpan = 128

	// maxGap bounds the bytes between two arguments that are read together:
	// more of them cost more, in room and in copying, than the call that is
	// saved.
	maxGap = 48
)

// A Group is arguments in memory that lie close together, at constant distances
// from the same base and index.
type Group struct {
	Args []int // their indices

	base, index argspec.Register
	extension   argspec.Extension
	scale       uint8
	wraps       bool  // addresses wrap at 32 bits
	low, high   int64 // displacement of the first byte and of the one behind the last
}

// Low is the displacement of the first byte.
func (g *Group) Low() int64 { return g.low }

// Span is how many bytes a group has, with those between its arguments.
func (g *Group) Span() int { return int(g.high - g.low) }

// Lead is how many bytes to leave free in front of a group so that an argument
// that is aligned in the traced process is so in the copy.
func (g *Group) Lead() int {
	if len(g.Args) == 1 {
		return 0
	}
	return int(uint64(g.low) % 8)
}

// Distance is where in the group an argument begins.
func (g *Group) Distance(args []argspec.Arg, index int) int {
	return int(args[index].Displacement - g.low)
}

// Groups puts arguments in memory together.
func (f *Fetcher) Groups(indices []int) []Group { return f.GroupsWithin(indices, maxSpan) }

// GroupsWithin is Groups, but no group of several arguments has more bytes than
// that.
func (f *Fetcher) GroupsWithin(indices []int, room int) []Group {
	room = min(room, maxSpan)
	sorted := slices.Clone(indices)
	slices.SortStableFunc(sorted, func(a, b int) int {
		x, y := &f.Args[a], &f.Args[b]
		return cmp.Or(
			cmp.Compare(f.slot(x.Base), f.slot(y.Base)),
			cmp.Compare(f.slot(x.Index), f.slot(y.Index)),
			cmp.Compare(x.Scale, y.Scale),
			cmp.Compare(x.IndexExtension, y.IndexExtension),
			cmp.Compare(x.Displacement, y.Displacement),
		)
	})
	var groups []Group
	for _, i := range sorted {
		arg := &f.Args[i]
		high := arg.Displacement + int64(arg.Size)
		if len(groups) > 0 {
			if last := &groups[len(groups)-1]; f.joins(last, arg, high, room) {
				last.high = max(last.high, high)
				last.Args = append(last.Args, i)
				continue
			}
		}
		groups = append(groups, *NewGroup(i, arg))
	}
	return groups
}

// NewGroup returns the group of one argument alone.
func NewGroup(index int, arg *argspec.Arg) *Group {
	return &Group{
		base: arg.Base, index: arg.Index, extension: arg.IndexExtension, scale: arg.Scale,
		wraps: arg.Address32,
		low:   arg.Displacement, high: arg.Displacement + int64(arg.Size), Args: []int{index},
	}
}

func (f *Fetcher) joins(g *Group, arg *argspec.Arg, high int64, room int) bool {
	first := &f.Args[g.Args[0]]
	return f.slot(g.base) == f.slot(arg.Base) && f.slot(g.index) == f.slot(arg.Index) &&
		g.scale == arg.Scale && g.extension == arg.IndexExtension && g.wraps == arg.Address32 &&
		near(g.low) && near(arg.Displacement) &&
		arg.Displacement-g.high <= maxGap && max(g.high, high)-g.low <= int64(room) &&
		aligned(first) && aligned(arg)
}

// near reports whether a displacement is one that can be calculated with: no
// code has others.
func near(displacement int64) bool { return Fits32(uint64(displacement)) }

// aligned reports whether the copy of an argument can be loaded by one
// instruction, which the kernel wants aligned.
func aligned(arg *argspec.Arg) bool { return uint64(arg.Displacement)%uint64(arg.Size) == 0 }

func (f *Fetcher) slot(r argspec.Register) int {
	if slot, ok := r.Slot(f.Machine); ok {
		return slot
	}
	return -1
}
