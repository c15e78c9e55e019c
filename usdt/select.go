// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"debug/elf"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/suggest"
	"github.com/gousdt/gousdt/internal/sys"
)

// Select finds the sites of the probes that match any of the patterns, or of
// all probes of the file if there is no pattern. Close the Selection when it is
// not needed any more.
//
// The error is a [*NotFoundError] if no probe matches, or the file has no
// probes, and that of the first site if none of the sites can be attached. It
// wraps
//
//   - [proc.ErrGone] if the target's process does not exist,
//   - [os.ErrNotExist] or [os.ErrPermission] if the file cannot be opened,
//   - [elfnote.ErrNotELF] if it is no ELF file.
//
// Other errors say that the file is malformed, that its probes have more than
// 524,288 arguments altogether or more sites than the target's MaxSites allows,
// that the target names no file or several, or that this kernel cannot attach
// to such a file.
func Select(target Target, patterns ...elfnote.Pattern) (*Selection, error) {
	if target.Selection != nil {
		return target.Selection.selectAgain(&target, patterns)
	}
	kernel, err := sys.KernelMachine()
	if err != nil {
		return nil, err
	}
	o, err := target.open()
	if err != nil {
		return nil, err
	}
	s := &Selection{opened: o, pid: target.PID, kernel: kernel, machine: o.elf.Header().Machine,
		maxSites: target.MaxSites}
	if err := s.find(patterns); err != nil {
		o.close()
		return nil, err
	}
	return s, nil
}

func (s *Selection) find(patterns []elfnote.Pattern) error {
	usable := false
	weight := 0                           // of the sites that match
	var firstMalformed *elffile.NoteError // of any probe
	for site, err := range s.opened.elf.Sites() {
		if err != nil {
			var note *elffile.NoteError
			if !errors.As(err, &note) {
				return fmt.Errorf("%s: %w", s.opened.name, err)
			}
			if firstMalformed == nil {
				firstMalformed = note
			}
			// A note is known to be of a probe only if its names can be read.
			if note.Name != "" && elfnote.MatchAny(patterns, note.Provider, note.Name) {
				if s.skippedCount++; s.skippedCount <= maxMalformed {
					s.skipped = append(s.skipped, &follow.SiteError{
						Path: s.opened.name, Provider: note.Provider, Name: note.Name, Err: note,
					})
				}
			}
			continue
		}
		usable = true
		if !elfnote.MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		weight += weightOf(&site)
		s.semaphores = s.semaphores || site.SemaphoreOffset != 0
		if s.maxSites > 0 && weight > s.maxSites {
			continue // they are counted only
		}
		if n := len(s.sites); n == cap(s.sites) {
			s.sites = slices.Grow(s.sites, n+1) // twice as many: append adds a quarter, and copies more
		}
		s.sites = append(s.sites, Site{Site: site, Instruction: site.Location})
	}
	if s.maxSites > 0 && weight > s.maxSites {
		what := "sites"
		if s.semaphores {
			what = "sites (one with a semaphore counts as 8)"
		}
		return follow.TooMany(s.opened.name, what, s.maxSites, weight)
	}

	switch {
	case s.Len() > 0:
	case len(s.skipped) > 0:
		return s.skipped[0]
	case !usable && firstMalformed != nil:
		return fmt.Errorf("%s: none of its probes can be used: %w", s.opened.name, firstMalformed)
	case !usable:
		return &NotFoundError{path: s.opened.name}
	default:
		return &NotFoundError{path: s.opened.name, patterns: patterns,
			Nearest: suggest.Probes(s.opened.elf.Sites(), patterns...)}
	}

	if err := s.check(); err != nil {
		return err
	}
	return s.decodeArguments()
}

// A NotFoundError says that a file has none of the probes asked for.
type NotFoundError struct {
	Nearest []string // up to three probes of the file, PROVIDER:NAME, that are spelled most alike

	path     string
	patterns []elfnote.Pattern // none if the file has no probes at all
}

func (e *NotFoundError) Error() string {
	if len(e.patterns) == 0 {
		return e.path + ": the file has no USDT probes"
	}
	var texts []string
	for _, pattern := range e.patterns {
		texts = append(texts, pattern.String())
	}
	return e.path + ": " + suggest.NoMatch(strings.Join(texts, " or "), "", e.Nearest)
}

// A small file can have a million sites that cannot be attached. A Selection
// lists maxSkipped of them. The malformed notes come first: they are at most
// maxMalformed, to leave room for others.
const (
	maxSkipped   = 1024
	maxMalformed = 16
)

// check leaves out the sites that cannot be attached. One must be left.
func (s *Selection) check() error {
	refused := make(map[int]bool)
	refuse := func(i int, err error) {
		if s.skippedCount++; len(s.skipped) < maxSkipped {
			s.skipped = append(s.skipped, s.siteError(i, err))
		}
		refused[i] = true
	}
	checkCode(s.opened.elf, s.sites, refuse)
	if s.semaphores { // the kernel takes only one for an instruction
		semaphores := make(map[uint64]uint64, s.Len())
		for i := range s.sites {
			site := &s.sites[i]
			switch first, twice := semaphores[site.uprobeOffset()]; {
			case refused[i]:
			case !twice:
				semaphores[site.uprobeOffset()] = site.SemaphoreOffset
			case first != site.SemaphoreOffset:
				refuse(i, errSharedInstruction)
			}
		}
	}
	if len(refused) == 0 {
		return nil
	}
	all := s.sites
	s.sites = make([]Site, 0, len(all)-len(refused))
	for i, site := range all {
		if !refused[i] {
			s.sites = append(s.sites, site)
		}
	}
	if s.Len() == 0 {
		return s.skipped[0]
	}
	return nil
}

var errSharedInstruction = errors.New("the file has another probe at the same instruction with " +
	"another semaphore, and the kernel takes one: attach the two probes one at a time")

// A Selection is the sites of some probes in one file, checked and ready to be
// attached. Each site lies in executable code and holds a nop on which the
// kernel can safely put a breakpoint.
//
// [Manager.Attach] makes and closes its own. Make one with [Select]
//
//   - to know which sites would be attached, and which would be skipped and
//     why,
//   - to attach the same sites several times, as [Target].Selection,
//   - to attach a program that needs no Manager, with [Selection.AttachRaw].
//
// Its methods are safe for concurrent use.
type Selection struct {
	opened       *opened
	borrowed     bool // the file belongs to the selection that this was made from
	pid          int
	kernel       elf.Machine
	machine      elf.Machine // of the file
	sites        []Site
	semaphores   bool // some site has one
	skipped      []*follow.SiteError
	skippedCount int
	maxSites     int // of the target
}

// Len returns the number of sites.
func (s *Selection) Len() int { return len(s.sites) }

// Sites iterates over the sites, in the order of the file's notes. Each has an
// index from 0, which [Selection.AttachRaw] takes.
func (s *Selection) Sites() iter.Seq2[int, Site] { return slices.All(s.sites) }

// String returns the file, the process, and the number of sites, as in
// "/usr/bin/python3 in process 7: 3 sites". Paths are arbitrary bytes: escape
// them before they reach a terminal.
func (s *Selection) String() string {
	where, plural := s.opened.name, "s"
	if s.pid != 0 {
		where = fmt.Sprintf("%s in process %d", where, s.pid)
	}
	if s.Len() == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s: %d site%s", where, s.Len(), plural)
}

// Skipped returns the sites of the selected probes that cannot be attached, and
// their number. At most 1,024 are listed. They are not among Sites. A site
// cannot be attached if
//
//   - there is no nop,
//   - the kernel refuses a breakpoint on that nop, or would damage the traced
//     program (a five-byte nop on x86-64, Linux 6.18 to 7.1),
//   - another probe with another semaphore is at the same instruction,
//   - its note is malformed. At most 16 of these are listed.
func (s *Selection) Skipped() (sites []*follow.SiteError, count int) {
	return s.skipped, s.skippedCount
}

// Name returns the name of the file: its path, as the target's process sees it
// if the file was found through a process.
func (s *Selection) Name() string { return s.opened.name }

// File returns the file. It is open until Close. It is nil for what
// [Link.Selection] returns.
func (s *Selection) File() *elfnote.File { return s.opened.elf }

// PID returns the process that the selection is restricted to, or 0 for every
// process.
func (s *Selection) PID() int { return s.pid }

// ForPID returns the same selection for another process, or for every process
// if pid is 0. It is valid until s is closed, and closing it does not close s.
// The PID is checked when the selection is attached.
func (s *Selection) ForPID(pid int) *Selection {
	other := *s
	other.borrowed = true
	other.pid = pid
	return &other
}

// weight is the number of sites that the selection counts for.
func (s *Selection) weight() (weight int) {
	if !s.semaphores {
		return s.Len()
	}
	for i := range s.sites {
		weight += weightOf(&s.sites[i].Site)
	}
	return weight
}

func weightOf(site *elfnote.Site) int {
	if site.SemaphoreOffset != 0 {
		return follow.SemaphoreSites
	}
	return 1
}

// selectAgain selects among the sites of a selection.
func (s *Selection) selectAgain(target *Target, patterns []elfnote.Pattern) (*Selection, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	if target.PID != 0 {
		return nil, errors.New("the target has a Selection, which has its own PID: use Selection.ForPID")
	}
	part := s.ForPID(s.pid)
	if len(patterns) > 0 {
		other := func(site Site) bool { return !elfnote.MatchAny(patterns, site.Provider, site.Name) }
		if slices.ContainsFunc(s.sites, other) {
			part.sites = slices.DeleteFunc(slices.Clone(s.sites), other)
		}
		part.skipped = slices.DeleteFunc(slices.Clone(s.skipped), func(site *follow.SiteError) bool {
			return !elfnote.MatchAny(patterns, site.Provider, site.Name)
		})
		if len(part.skipped) < len(s.skipped) {
			part.skippedCount = len(part.skipped)
		}
	}
	if target.MaxSites > 0 {
		part.maxSites = target.MaxSites
		if weight := part.weight(); weight > target.MaxSites {
			return nil, follow.TooMany(s.opened.name, "sites", target.MaxSites, weight)
		}
	}
	switch {
	case part.Len() > 0 || len(patterns) == 0:
		return part, nil
	case len(part.skipped) > 0:
		return nil, part.skipped[0]
	default:
		return nil, &NotFoundError{path: s.opened.name, patterns: patterns}
	}
}

// Close releases the file. Links made from the selection stay attached. It is
// safe to call it again.
func (s *Selection) Close() error {
	if s.borrowed {
		return nil
	}
	return s.opened.close()
}

func (s *Selection) siteError(i int, err error) *follow.SiteError {
	site := &s.sites[i]
	return &follow.SiteError{Path: s.opened.name, Provider: site.Provider, Name: site.Name,
		Location: site.Location, Err: err}
}
