// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
)

// mappings remembers what traced processes have mapped to execute, for when
// they have ended.
type mappings struct {
	fs        *proc.FS
	processes map[int]*process
	files     map[proc.FileID]*file
}

// process is a traced process. Another one that gets its number takes its
// place: the sums in the kernel are by number.
type process struct {
	proc.Process
	mapped []mapping // by address
}

// mapping is where a process executes a file.
type mapping struct {
	proc.Mapping
	*file
}

// file is a file that some process maps.
type file struct {
	path    string
	buildID string
	symbols *symbols // nil if it could not be read
}

func newMappings() *mappings {
	return &mappings{fs: proc.NewFS(""), processes: make(map[int]*process), files: make(map[proc.FileID]*file)}
}

// follow looks at what a process has mapped when it is first traced. It is the
// handler of the watch.
func (m *mappings) follow(changes *proc.Changes) {
	for _, pair := range changes.Appeared {
		m.look(pair.Process)
	}
}

// refresh looks again: programs load libraries as they run.
func (m *mappings) refresh() {
	for _, p := range m.processes {
		if running, err := p.IsRunning(); err == nil && running {
			m.look(p.Process)
		}
	}
}

func (m *mappings) look(p proc.Process) {
	mapped, err := m.fs.Files(p.PID)
	if err != nil || len(mapped) == 0 {
		return // it has ended
	}
	known := &process{Process: p}
	for _, f := range mapped {
		for _, at := range f.Mappings {
			known.mapped = append(known.mapped, mapping{at, m.file(f)})
		}
	}
	m.processes[p.PID] = known
}

// file returns the file, read when it is first seen: later it may be gone, and
// programs that are made to run once must not be held open, each by a
// descriptor.
func (m *mappings) file(mapped *proc.MappedFile) *file {
	id, err := mapped.ID()
	if err != nil {
		return &file{path: mapped.Path}
	}
	f := m.files[id]
	if f != nil {
		return f
	}
	f = &file{path: mapped.Path}
	m.files[id] = f
	opened, err := mapped.Open()
	if err != nil {
		return f
	}
	defer opened.Close()
	if elf, err := elfnote.NewFile(opened); err == nil {
		f.buildID, _ = elf.BuildID() // "" if there is none
		f.symbols = readSymbols(elf)
	}
	return f
}

// find returns where an address of the process lies, nil if in no file.
func (p *process) find(address uint64) *mapping {
	for i := range p.mapped {
		if at := &p.mapped[i]; at.Start <= address && address < at.End {
			return at
		}
	}
	return nil
}

// name is what people call the process.
func (p *process) name() string { return fmt.Sprintf("%s (%d)", p.Command, p.PID) }
