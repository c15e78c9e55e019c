// SPDX-License-Identifier: BSD-2-Clause

package sitespec

import (
	"math"

	"github.com/gousdt/gousdt/argspec"
)

// windowSize is how many bytes of memory the BPF side reads at once: room for
// MaxArgs words. More would take more of the 512 bytes of stack that a BPF
// program has.
const windowSize = MaxArgs * 8

// operand is an argument in memory at displacements start to end from the
// register in slot base.
type operand struct {
	start, end  int64
	base, index uint8 // index: of the argument
}

// encodeWindow looks for memory that holds several of the arguments, such as
// neighbours on the stack, and puts it into the spec, in which the arguments
// are encoded already. BPF_USDT reads that memory once, where it would read it
// once for each argument. What is read stays the same.
//
// Of all places where the window could begin, the one that holds the most
// arguments is taken.
func (s *Spec) encodeWindow(big bool, args []argspec.Arg) {
	var buffer [MaxArgs]operand
	operands := s.operands(buffer[:0], args)

	var base uint8
	var start, end int64
	most := 1 // a window pays from two arguments on
	for _, first := range operands {
		// Widened to a whole word, which is in the same page: registers that
		// point to the stack are multiples of 8. Where one is not, the worst is
		// a window that cannot be read, and then the arguments are read alone.
		from, to, count := first.start&^7, first.end, 0
		for _, o := range operands {
			if o.base == first.base && o.start >= from && o.end-from <= windowSize {
				to = max(to, o.end)
				count++
			}
		}
		if count > most {
			most, base, start, end = count, first.base, from, to
		}
	}
	if most == 1 {
		return
	}

	s[offsetWindowBase] = base
	s[offsetWindowSize] = uint8(end - start)
	putUint32(s[offsetWindowDisplacement:], big, uint32(start))
	for _, o := range operands {
		if o.base == base && o.start >= start && o.end <= end {
			s[int(o.index)*argumentSize+offsetPlace] = uint8(o.start-start) + 1
		}
	}
}

// operands appends the arguments that a window can hold: those at a register
// plus a displacement, each inside one word of 8 bytes counted from the
// register, because the BPF side takes it out of one.
func (s *Spec) operands(operands []operand, args []argspec.Arg) []operand {
	for i := range args {
		encoded := s[i*argumentSize:][:argumentSize]
		displacement, size := args[i].Displacement, int64(encoded[offsetSize])
		if encoded[offsetKind] != kindMemory || encoded[offsetFlags]&flagAddress32 != 0 ||
			encoded[offsetBase] == noSlot || encoded[offsetIndex] != noSlot ||
			displacement < math.MinInt32 || displacement > math.MaxInt32-8 ||
			displacement&7+size > 8 {
			continue
		}
		operands = append(operands,
			operand{displacement, displacement + size, encoded[offsetBase], uint8(i)})
	}
	return operands
}
