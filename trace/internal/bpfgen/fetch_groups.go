// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

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

// group is arguments in memory that lie close together, at constant distances
// from the same base and index.
type group struct {
	base, index argspec.Register
	extension   argspec.Extension
	scale       uint8
	wraps       bool  // addresses wrap at 32 bits
	low, high   int64 // displacement of the first byte and of the one behind the last
	args        []int
}

func (g *group) span() int { return int(g.high - g.low) }

// lead is how many bytes to leave free in front of a group so that an argument
// that is aligned in the traced process is so in the copy.
func (g *group) lead() int {
	if len(g.args) == 1 {
		return 0
	}
	return int(uint64(g.low) % 8)
}

// distance is where in the group an argument begins.
func (g *group) distance(args []argspec.Arg, index int) int {
	return int(args[index].Displacement - g.low)
}

// groups puts arguments in memory together.
func (f *fetcher) groups(indices []int) []group {
	sorted := slices.Clone(indices)
	slices.SortStableFunc(sorted, func(a, b int) int {
		x, y := &f.args[a], &f.args[b]
		return cmp.Or(
			cmp.Compare(f.slot(x.Base), f.slot(y.Base)),
			cmp.Compare(f.slot(x.Index), f.slot(y.Index)),
			cmp.Compare(x.Scale, y.Scale),
			cmp.Compare(x.IndexExtension, y.IndexExtension),
			cmp.Compare(x.Displacement, y.Displacement),
		)
	})
	var groups []group
	for _, i := range sorted {
		arg := &f.args[i]
		high := arg.Displacement + int64(arg.Size)
		if len(groups) > 0 {
			if last := &groups[len(groups)-1]; f.joins(last, arg, high) {
				last.high = max(last.high, high)
				last.args = append(last.args, i)
				continue
			}
		}
		groups = append(groups, *newGroup(i, arg))
	}
	return groups
}

// newGroup returns the group of one argument alone.
func newGroup(index int, arg *argspec.Arg) *group {
	return &group{
		base: arg.Base, index: arg.Index, extension: arg.IndexExtension, scale: arg.Scale, wraps: arg.Address32,
		low: arg.Displacement, high: arg.Displacement + int64(arg.Size), args: []int{index},
	}
}

func (f *fetcher) joins(g *group, arg *argspec.Arg, high int64) bool {
	first := &f.args[g.args[0]]
	return f.slot(g.base) == f.slot(arg.Base) && f.slot(g.index) == f.slot(arg.Index) &&
		g.scale == arg.Scale && g.extension == arg.IndexExtension && g.wraps == arg.Address32 &&
		near(g.low) && near(arg.Displacement) &&
		arg.Displacement-g.high <= maxGap && max(g.high, high)-g.low <= maxSpan &&
		aligned(first) && aligned(arg)
}

// near reports whether a displacement is one that can be calculated with: no
// code has others.
func near(displacement int64) bool { return fits32(uint64(displacement)) }

// aligned reports whether the copy of an argument can be loaded by one
// instruction, which the kernel wants aligned.
func aligned(arg *argspec.Arg) bool { return uint64(arg.Displacement)%uint64(arg.Size) == 0 }

func (f *fetcher) slot(r argspec.Register) int {
	if slot, ok := r.Slot(f.kernel.Machine); ok {
		return slot
	}
	return -1
}
