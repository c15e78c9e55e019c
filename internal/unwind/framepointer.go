// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "debug/elf"

// HasFramePointer reports whether the function at an address in the file has
// set up a frame pointer there, so that a stack can be walked from it without
// call frame information; ok is false if that is not known.
func (t *Table) HasFramePointer(address uint64) (has, ok bool) {
	t.unwinder.Work = max(t.unwinder.Work, workOfFramePointer)
	r, err := t.row(address)
	if err != nil {
		return false, false
	}
	n := t.framePointer
	switch t.machine {
	case machines[elf.EM_X86_64], machines[elf.EM_RISCV]:
		// The frame is found by it.
		return r.frame.kind == isRegister && int(r.frame.register) == n, true
	case machines[elf.EM_AARCH64]:
		// It is saved, with the return address beside it.
		for _, rule := range r.rules {
			if rule.number == n {
				return rule.kind == isSaved, true
			}
		}
		return false, true
	}
	return false, false
}

// workOfFramePointer is what it may take to find out.
const workOfFramePointer = 1 << 16
