// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"fmt"
	"iter"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// A Site is one place in a file where a probe is, with its arguments.
type Site struct {
	elfnote.Site

	// Instruction is the address of the instruction that gets the breakpoint:
	// the instruction pointer at a hit. It is the same as Location, except on
	// kernels that turn a ten-byte nop into a call without a trap (x86-64,
	// Linux 7.2). There, if the site holds a one-byte nop followed by a
	// ten-byte one, it is the address of the ten-byte one.
	Instruction uint64

	// Args are the arguments, in their order. An argument that cannot be
	// fetched is among them, and its Err says why. The slice is shared with
	// other sites and must not be changed.
	Args []argspec.Arg
}

// A Selection is the sites of some probes in one file, checked and ready to be
// attached. Each site lies in executable code and holds a nop on which the
// kernel can safely put a breakpoint.
//
// [Manager.Attach] makes and closes its own. Make one with [Select]
//
//   - to know which sites would be attached, and which would be skipped and
//     why,
//   - to attach the same sites several times, with [Manager.AttachSelection],
//   - to attach a program that needs no Manager, with [Selection.AttachRaw].
//
// Its methods are safe for concurrent use.
type Selection struct {
	opened       *opened
	borrowed     bool // the file belongs to the selection that this was made from
	pid          int
	kernel       elf.Machine
	machine      elf.Machine // of the file
	sites        siteTable
	skipped      []*SiteError
	skippedCount int
	maxSites     int // of SelectOptions
}

// Len returns the number of sites.
func (s *Selection) Len() int { return len(s.sites.rows) }

// Sites iterates over the sites, in the order of the file's notes. Each has an
// index from 0, which is its place among the cookies of [Selection.AttachRaw].
func (s *Selection) Sites() iter.Seq2[int, Site] {
	return func(yield func(int, Site) bool) {
		for i := range s.sites.rows {
			if !yield(i, s.sites.site(i)) {
				return
			}
		}
	}
}

// String returns the file, the process, and the number of sites, as in
// "/usr/bin/python3 in process 7: 3 sites". Paths are arbitrary bytes: escape
// them before they reach a terminal.
func (s *Selection) String() string {
	where, sites := s.opened.name, "1 site"
	if s.pid != 0 {
		where = fmt.Sprintf("%s in process %d", where, s.pid)
	}
	if s.Len() != 1 {
		sites = fmt.Sprintf("%d sites", s.Len())
	}
	return where + ": " + sites
}

// Skipped returns the sites of the selected probes that cannot be attached, and
// how many these are: there may be more of them than the 1,024 that are listed.
// They are not among Sites. A site cannot be attached if
//
//   - there is no nop,
//   - the kernel refuses a breakpoint on that nop, or would damage the traced
//     program (a five-byte nop on x86-64, Linux 6.18 to 7.1),
//   - another probe with another semaphore is at the same instruction,
//   - its note is malformed: then the error wraps an [*elfnote.NoteError]. 16
//     of these are listed.
func (s *Selection) Skipped() (sites []*SiteError, count int) { return s.skipped, s.skippedCount }

// Name returns the name of the file: its path, as the target's process sees it
// if the file was found through a process.
func (s *Selection) Name() string { return s.opened.name }

// File returns the file. It is open until Close. It is nil for what
// [Link.Selection] returns.
func (s *Selection) File() *elfnote.File { return s.opened.elf }

// PID returns the process that the selection is restricted to, or 0 for every
// process.
func (s *Selection) PID() int { return s.pid }

// KernelMachine returns the machine of the running kernel. A program that reads
// arguments by itself needs it to find their registers, see
// [argspec.Register.Slot].
func (s *Selection) KernelMachine() elf.Machine { return s.kernel }

// ForPID returns the same selection restricted to another process, or to none
// if pid is 0. It shares the file with s: it is valid until s is closed, and
// closing it does not close s. The PID is checked when the selection is
// attached.
func (s *Selection) ForPID(pid int) *Selection {
	other := *s
	other.borrowed = true
	other.pid = pid
	return &other
}

// Subset returns a selection of some of the sites, given by their indices, in
// that order. It shares the file with s: it is valid until s is closed, and
// closing it does not close s.
func (s *Selection) Subset(sites []int) *Selection {
	subset := *s
	subset.borrowed = true
	subset.sites.rows = make([]siteRow, 0, len(sites))
	for _, i := range sites {
		subset.sites.rows = append(subset.sites.rows, s.sites.rows[i])
	}
	return &subset
}

// Matching returns the sites of those probes that match any of the patterns, or
// of all if there is no pattern, and the skipped ones among those that are
// listed. There may be none. It shares the file with s: it is valid until s is
// closed, and closing it does not close s.
func (s *Selection) Matching(patterns ...elfnote.Pattern) *Selection {
	var which []int
	for i, site := range s.Sites() {
		if elfnote.MatchAny(patterns, site.Provider, site.Name) {
			which = append(which, i)
		}
	}
	part := s.Subset(which)
	part.skipped, part.skippedCount = nil, 0
	for _, site := range s.skipped {
		if elfnote.MatchAny(patterns, site.Provider, site.Name) {
			part.skipped = append(part.skipped, site)
			part.skippedCount++
		}
	}
	return part
}

// Close releases the file. Links made from the selection stay attached. It is
// safe to call it again.
func (s *Selection) Close() error {
	if s.borrowed {
		return nil
	}
	return s.opened.close()
}

// siteError returns the error for a site.
func (s *Selection) siteError(i int, err error) *SiteError {
	row := &s.sites.rows[i]
	probe := &s.sites.probes[row.probe]
	return &SiteError{File: s.opened.name, Provider: probe.provider, Name: probe.name,
		Location: row.location, Err: err}
}
