// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/nearest"
)

// A Site is one place in a file where a probe is, with its arguments.
type Site struct {
	elfnote.Site

	// Instruction is the address of the instruction that gets the breakpoint,
	// and so what the instruction pointer holds at a hit. It is the Location,
	// but for sites that hold a one-byte nop followed by a ten-byte one: there
	// it is the ten-byte nop on kernels that make a fast call of it, without a
	// trap (x86-64, Linux 7.2).
	Instruction uint64

	// Args are the arguments, in their order. One that cannot be fetched is
	// among them, with the reason. The slice is shared with other sites and
	// must not be changed.
	Args []argspec.Arg
}

// A Selection is the sites of some probes in one file, checked and ready to be
// attached: each lies in executable code and holds a nop that the kernel can
// safely put a breakpoint on.
//
// Managers make and close their own. Make one yourself to see what an Attach
// would do, or to attach a program that reads arguments by itself and needs no
// Manager.
//
// Its methods may be called by several goroutines at once.
type Selection struct {
	opened     *opened
	borrowed   bool // the file belongs to the selection that this was made from
	pid        int
	kernel     elf.Machine
	machine    elf.Machine // of the file
	sites      siteTable
	broken     []*elfnote.NoteError
	unfit      []*SiteError
	unfitCount int
}

// SelectOptions say what a selection must have. Nil, or the zero value, is the
// common case: what cannot be attached or fetched is left out and listed.
type SelectOptions struct {
	// RequireAllSites makes a site that cannot be attached an error, a
	// [*SiteError]. Otherwise such sites are skipped: [Selection.Skipped] lists
	// them.
	RequireAllSites bool

	// RequireArguments makes an argument that cannot be fetched an error, a
	// [*SiteError]. Otherwise that argument reads as an error (EOPNOTSUPP) in
	// the program, and Err of the [Site]'s argument says why.
	RequireArguments bool
}

// Select finds the sites of the probes that match any of the patterns; without
// patterns, of all probes of the target's file.
//
// It returns a [*NotFoundError] if no probe matches, or the file has none; a
// [*SiteError] if no site can be attached (see [Selection.Skipped]), or one
// cannot and [SelectOptions] ask for all; a [*PermissionError] if the process
// may not be looked into; and an error that wraps
//
//   - an [*elfnote.NoteError] if all notes of the probes are malformed,
//   - [proc.ErrGone] if the target's process does not exist,
//   - fs.ErrNotExist or fs.ErrPermission if the file cannot be opened,
//   - elfnote.ErrNotELF and others of package elfnote if it cannot be read,
//     among them elfnote.ErrTooLarge also for more than 524,288
//     arguments.
//
// Other errors say what the target lacks, or that this kernel cannot attach to
// such a file.
func Select(target Target, opts *SelectOptions, patterns ...elfnote.Pattern) (*Selection, error) {
	if opts == nil {
		opts = &SelectOptions{}
	}
	kernel, err := kernelMachine()
	if err != nil {
		return nil, err
	}
	o, err := target.open()
	if err != nil {
		return nil, err
	}
	s := &Selection{opened: o, pid: target.PID, kernel: kernel, machine: o.elf.Machine()}
	if err := s.find(target, opts, patterns); err != nil {
		o.close()
		return nil, err
	}
	return s, nil
}

func (s *Selection) find(target Target, opts *SelectOptions, patterns []elfnote.Pattern) error {
	file := s.opened.elf

	found := newSiteCollector(file)
	var damaged *elfnote.NoteError // the first one, of whatever probe
	for site, err := range file.Sites() {
		if err != nil {
			var broken *elfnote.NoteError
			if !errors.As(err, &broken) {
				return fmt.Errorf("%s: %w", s.opened.name, err)
			}
			if damaged == nil {
				damaged = broken
			}
			// Only a note that is broken past its names can be told to be of
			// the probe.
			if len(s.broken) < elfnote.MaxMalformed && broken.Name != "" && elfnote.MatchAny(patterns, broken.Provider, broken.Name) {
				s.broken = append(s.broken, broken)
			}
			continue
		}
		found.look(&site, elfnote.MatchAny(patterns, site.Provider, site.Name))
	}
	s.sites = found.table()

	switch {
	case len(s.sites.rows) > 0:
	case len(s.broken) > 0:
		return fmt.Errorf("%s: %w", s.opened.name, s.broken[0])
	case found.seen == 0 && damaged != nil:
		return fmt.Errorf("%s: none of its probes can be used: %w", s.opened.name, damaged)
	case found.seen == 0:
		return &NotFoundError{File: s.opened.name}
	default:
		return &NotFoundError{File: s.opened.name, Patterns: joinPatterns(patterns),
			Nearest: nearest.Probes(file, patterns...)}
	}

	if err := s.check(opts.RequireAllSites); err != nil {
		return err
	}
	if err := decodeArguments(file, target.DebugFile, &s.sites); err != nil {
		return err
	}
	if opts.RequireArguments {
		return s.requireArguments()
	}
	return nil
}

// check finds the sites that cannot be attached. Where all are wanted the first
// is an error, else they are left out, and an error if they are all there are.
func (s *Selection) check(all bool) error {
	refuse := func(i int, err error) error {
		if all {
			return s.siteError(i, err)
		}
		if s.unfitCount++; s.unfitCount <= maxSkipped {
			s.unfit = append(s.unfit, s.siteError(i, err))
		}
		s.sites.rows[i].unfit = true
		return nil
	}
	if err := checkCode(s.opened.elf, s.sites.rows, refuse); err != nil {
		return err
	}
	if err := s.checkClashes(refuse); err != nil {
		return err
	}
	if s.unfitCount == 0 {
		return nil
	}
	s.sites.rows = slices.Clone(slices.DeleteFunc(s.sites.rows, func(row siteRow) bool { return row.unfit }))
	if s.Len() == 0 {
		return s.unfit[0]
	}
	return nil
}

// checkClashes finds probes at the same instruction with different semaphores,
// of which the kernel takes one alone.
func (s *Selection) checkClashes(refuse func(i int, err error) error) error {
	if !s.sites.semaphores {
		return nil
	}
	semaphores := make(map[uint64]uint64, s.Len())
	for i := range s.sites.rows {
		site := &s.sites.rows[i]
		if site.unfit {
			continue
		}
		if first, twice := semaphores[site.uprobeOffset()]; !twice {
			semaphores[site.uprobeOffset()] = site.semaphoreOffset
		} else if first != site.semaphoreOffset {
			if err := refuse(i, errSharedInstruction); err != nil {
				return err
			}
		}
	}
	return nil
}

var errSharedInstruction = errors.New("the file has another probe at the same instruction with another semaphore, " +
	"and the kernel takes one: attach them by different tracers, one at a time")

// joinPatterns says what was asked for.
func joinPatterns(patterns []elfnote.Pattern) string {
	texts := make([]string, 0, len(patterns))
	for _, pattern := range patterns {
		texts = append(texts, pattern.String())
	}
	return strings.Join(texts, " or ")
}

// Len returns the number of sites.
func (s *Selection) Len() int { return len(s.sites.rows) }

// Site returns the site with an index, from 0 to Len()-1, in the order of the
// file's notes.
func (s *Selection) Site(i int) Site { return s.sites.site(i) }

// String returns what is selected, as in "/usr/bin/python3 in process 7: 3
// sites". Paths are arbitrary bytes: escape them before they reach a terminal.
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

// Malformed returns the notes of the selected probes that are damaged, and so
// are not among the sites: the first elfnote.MaxMalformed of them.
func (s *Selection) Malformed() []*elfnote.NoteError { return s.broken }

// maxSkipped is how many sites that cannot be attached a Selection describes. A
// small file can have a million of them.
const maxSkipped = 1024

// Skipped returns the sites of the selected probes that cannot be attached, and
// so are not among the sites, the first 1,024 of them: without a nop, with
// one that the kernel could not safely put a breakpoint on, or at the same
// instruction as another probe with another semaphore. With
// SelectOptions.RequireAllSites there are none.
func (s *Selection) Skipped() []*SiteError { return s.unfit }

// SkippedCount returns how many sites of the selected probes cannot be attached
// altogether.
func (s *Selection) SkippedCount() int { return s.unfitCount }

// Name returns the name of the file, as errors have it: its path, as the process
// sees it if the target is found through a process.
func (s *Selection) Name() string { return s.opened.name }

// File returns the file, open until Close. That of [Link.Selection] is nil.
func (s *Selection) File() *elfnote.File { return s.opened.elf }

// PID returns the process that the selection is restricted to, 0 for every
// process.
func (s *Selection) PID() int { return s.pid }

// KernelMachine returns the machine of the running kernel, which lays out the
// registers that argspec.Register.Slot is about.
func (s *Selection) KernelMachine() elf.Machine { return s.kernel }

// ForPID returns the same selection restricted to another process, or to none
// for PID 0. It shares the file with s: it is valid until s is closed, and
// closing it does nothing to s. Whether the PID is that of a process is found
// out when it is attached.
func (s *Selection) ForPID(pid int) *Selection {
	other := *s
	other.borrowed = true
	other.pid = pid
	return &other
}

// Subset returns a selection of some of the sites, given by their index in
// Sites, in that order. It shares the file with s: it is valid until s is
// closed, and closing it does nothing to s.
func (s *Selection) Subset(sites []int) *Selection {
	subset := *s
	subset.borrowed = true
	subset.sites.rows = make([]siteRow, 0, len(sites))
	for _, i := range sites {
		subset.sites.rows = append(subset.sites.rows, s.sites.rows[i])
	}
	return &subset
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
	return &SiteError{File: s.opened.name, Provider: probe.provider, Name: probe.name, Location: row.location, Err: err}
}
