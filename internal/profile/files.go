// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"debug/elf"
	"errors"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/proc"
)

const (
	// maxOpen bounds the files that are held open. Of others is remembered what
	// they may be asked for, which takes time to read and memory, and may be
	// for nothing.
	maxOpen = 32

	// maxFiles bounds the files that are known. A large host has some hundreds.
	maxFiles = 4096

	// maxRemembered bounds what is remembered of files that are not open, in
	// bytes.
	maxRemembered = 256 << 20
)

// files are those that the remembered processes map.
type files struct {
	known      map[proc.FileID]*file
	open       []*file // the first opened first
	remembered []*file // those that are not open any more, the first closed first
	size       int     // of what is remembered of these
}

// file is a file that some process maps, or mapped.
type file struct {
	path     string
	identity proc.FileID
	users    int // mappings

	machine  elf.Machine // EM_NONE if it could not be opened or is no ELF file
	segments []elffile.Segment
	buildID  string

	elf       *elffile.File      // while it is open
	functions *elffile.Functions // nil until asked for
	table     *unwind.Table      // nil if there is none, or not yet
	tableRead bool
}

func (f *files) isFull() bool { return len(f.known) >= maxFiles }

// get returns the file, opened when it is first seen: later it may be gone.
func (f *files) get(mapped *proc.MappedFile) *file {
	id, err := mapped.ID()
	if known := f.known[id]; err == nil && known != nil {
		return known
	}
	this := &file{path: mapped.Path, identity: id}
	if err != nil || f.isFull() {
		return this
	}
	f.known[id] = this
	opened, err := mapped.Open()
	if err != nil {
		return this
	}
	if this.elf, err = elffile.New(opened); err != nil {
		opened.Close()
		return this
	}
	this.machine = this.elf.Machine
	this.segments = this.elf.Segments
	this.buildID, _ = this.elf.BuildID() // "" if there is none
	f.open = append(f.open, this)
	if len(f.open) > maxOpen {
		f.remember(f.open[0])
	}
	return this
}

// remember reads what a file may be asked for and closes it.
func (f *files) remember(this *file) {
	this.readFunctions()
	this.readTable()
	_ = this.close() // it was only read
	f.open = without(f.open, this)
	f.remembered = append(f.remembered, this)
	f.size += this.size()
	for f.size > maxRemembered {
		oldest := f.remembered[0]
		f.drop(oldest)
		oldest.functions, oldest.table = new(elffile.Functions), nil
	}
}

// drop takes a file from those that are remembered.
func (f *files) drop(this *file) {
	f.remembered = without(f.remembered, this)
	f.size -= this.size()
}

// release forgets the files that nobody maps any more but these mappings.
func (f *files) release(mapped []mapping) {
	for _, m := range mapped {
		this := m.file
		if this.users--; this.users > 0 || f.known[this.identity] != this {
			continue
		}
		delete(f.known, this.identity)
		_ = this.close() // it was only read
		f.open = without(f.open, this)
		if slices.Contains(f.remembered, this) {
			f.drop(this)
		}
	}
}

func (f *files) close() error {
	var errs []error
	for _, this := range f.open {
		errs = append(errs, this.close())
	}
	f.open = nil
	return errors.Join(errs...)
}

func without(all []*file, one *file) []*file {
	return slices.DeleteFunc(all, func(f *file) bool { return f == one })
}

func (f *file) close() error {
	if f.elf == nil {
		return nil
	}
	opened := f.elf.OSFile() // since proc.MappedFile.Open
	f.elf = nil
	return opened.Close()
}

// size is what the file takes in memory, in bytes.
func (f *file) size() int {
	size := 0
	if f.functions != nil {
		size += f.functions.Size()
	}
	if f.table != nil {
		size += f.table.Size()
	}
	return size
}

// readTable reads the call frame information of the file, if it has any.
func (f *file) readTable() {
	if !f.tableRead && f.elf != nil {
		f.tableRead = true
		f.table, _ = unwind.Read(f.elf)
	}
}
