// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/closed"
	"github.com/gousdt/gousdt/internal/tracee"
	"github.com/gousdt/gousdt/internal/unsupported"
	"github.com/gousdt/gousdt/proc"
)

// addresses returns for each site the addresses at which the selection's
// process, or every process, passes it: what a program finds in the instruction
// pointer. There is one for an ET_EXEC, which runs where it was linked for. A
// library or position-independent program needs a PID; there may be several
// addresses where the process has mapped it more than once.
func (s *Selection) addresses() ([][]uint64, error) {
	s.opened.mu.RLock()
	defer s.opened.mu.RUnlock()
	if s.opened.closed {
		return nil, closed.Error("selection")
	}
	all := make([][]uint64, s.Len())
	if s.opened.elf.Kind() == elfnote.Executable {
		for i := range s.sites.rows {
			all[i] = []uint64{s.sites.rows[i].instruction()}
		}
		return all, nil
	}
	if s.pid == 0 {
		return nil, fmt.Errorf("%s: %w", s.opened.name, &unsupported.Error{
			Feature: "BPF cookies on uprobes", Since: "5.15",
			Hint: "without them a library or position-independent program can be attached for one PID only"})
	}

	files, err := proc.NewFS("").Files(s.pid)
	if err != nil && len(files) == 0 {
		return nil, explainProcess(s.pid, err)
	}
	want, err := proc.IdentifyFile(s.opened.elf.OSFile())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.opened.name, err)
	}
	mapped := false
	for _, file := range files {
		if got, err := file.ID(); err != nil || !got.MayBe(want) {
			continue
		}
		mapped = true
		for _, m := range file.Mappings {
			for i := range s.sites.rows {
				if address, ok := m.Address(s.sites.rows[i].uprobeOffset()); ok {
					all[i] = append(all[i], address)
				}
			}
		}
	}
	if !mapped {
		if err := tracee.Check(s.pid); err != nil { // it has ended meanwhile
			return nil, err
		}
		return nil, fmt.Errorf("process %d has not mapped %s", s.pid, s.opened.name)
	}
	return all, nil
}
