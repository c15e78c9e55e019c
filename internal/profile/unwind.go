// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/gousdt/gousdt/internal/unwind"
)

// maxDepth bounds an unwound stack: a damaged one may have no end.
const maxDepth = 512

// Unwind returns the addresses of a stack, the innermost first, as the kernel
// would if all code had frame pointers: from the registers and a copy of the
// memory, by the call frame information of the mapped files. Code that has none
// is taken to have frame pointers. The stack ends where that fails, or where
// the copy ends.
//
// It looks at processes as Frames does. Byte order is that of this machine.
func (p *Processes) Unwind(pid int, kernel elf.Machine, s unwind.State, m unwind.Memory) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	stack := []uint64{s.PC}
	for len(stack) < maxDepth && p.step(pid, kernel, &s, m) {
		stack = append(stack, s.PC)
	}
	return stack
}

// step goes on to the caller, if it can be found.
func (p *Processes) step(pid int, kernel elf.Machine, s *unwind.State, m unwind.Memory) bool {
	at := p.mapping(pid, s.Executes())
	if at != nil && at.machine != elf.EM_NONE {
		if at.machine != kernel {
			return false // such as i386's on x86-64: what is on the stack is of another size
		}
		err := at.step(s, m)
		if err == nil || !errors.Is(err, unwind.ErrNoEntry) {
			return err == nil
		}
	}
	// No stack is executed: what looks like a pointer to it is none to code.
	caller := *s
	if !unwind.StepByFramePointer(kernel, binary.NativeEndian, &caller, m) || caller.PC-m.Address < uint64(len(m.Bytes)) {
		return false
	}
	// Only code that no file holds is called by such code, or calls it.
	if at != nil && p.mapping(pid, caller.Executes()) == nil {
		return false
	}
	*s = caller
	return true
}

// step goes on to the caller by the call frame information of the file.
func (m *mapping) step(s *unwind.State, memory unwind.Memory) error {
	m.readTable()
	if m.table == nil {
		return unwind.ErrNoEntry
	}
	offset := s.Executes() - m.Start + m.Offset
	for _, segment := range m.segments {
		if segment.Offset <= offset && offset-segment.Offset < segment.FileSize {
			return m.table.Step(s, m.Start-m.Offset+segment.Offset-segment.Address, memory)
		}
	}
	return unwind.ErrNoEntry
}
