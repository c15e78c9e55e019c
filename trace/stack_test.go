// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procmaps"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

// The copy reaches from the stack pointer to the end of the stack, which is
// near enough in a small program.
func TestStackCopy(t *testing.T) {
	testprog.RequireBPF(t)
	const size = 64 << 10
	p := start(t, "target-pie")
	s := open(t, p, "gousdt_test:three", &trace.SessionOptions{
		Events: &trace.EventOptions{StackCopy: size}})
	p.Fire("three", 1)
	event := next(t, s, 1)[0]
	registers := &event.Registers

	file, err := elfnote.Open(p.path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Check(t, qt.Equals(registers.Machine, file.Header().Machine))
	qt.Check(t, qt.Equals(registers.PC, addressOf(t, p, event.Site.Offset)))

	end := stackEnd(t, p.PID)
	copied := uint64(len(event.StackCopy))
	qt.Assert(t, qt.Equals(copied, min(end-registers.SP, size)))
	// What main's callers have there has not changed since.
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()
	now := make([]byte, copied)
	_, err = memory.ReadAt(now, int64(registers.SP))
	qt.Assert(t, qt.IsNil(err))
	unchanged := copied * 3 / 4
	qt.Check(t, qt.DeepEquals(event.StackCopy[unchanged:], now[unchanged:]))
	qt.Check(t, qt.SliceContains(registers.General, registers.SP))
}

// addressOf returns where an offset in the program's file is in the process.
func addressOf(t *testing.T, p *traced, offset uint64) uint64 {
	t.Helper()
	files, err := procmaps.Files(procfs.NewFS(""), p.PID)
	qt.Assert(t, qt.IsNil(err))
	for _, file := range files {
		for _, m := range file.Mappings {
			if address, ok := m.Address(offset); ok && file.Path == p.path {
				return address
			}
		}
	}
	t.Fatal("not mapped")
	return 0
}

func stackEnd(t *testing.T, pid int) uint64 {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[stack]\n") {
			var start, end uint64
			_, err := fmt.Sscanf(line, "%x-%x", &start, &end)
			qt.Assert(t, qt.IsNil(err))
			return end
		}
	}
	t.Fatal("no stack")
	return 0
}

func TestStackCopyErrors(t *testing.T) {
	for _, size := range []int{-1, 64<<10 + 1} {
		_, err := trace.New(&trace.SessionOptions{Events: &trace.EventOptions{StackCopy: size}})
		qt.Check(t, qt.ErrorMatches(err, "option StackCopy: .* is not between 0 and 65536"))
	}
}
