// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
)

// Select finds the sites of the probes that match any of the patterns, or of
// all probes of the file if there is no pattern. Close the Selection when it is
// not needed any more.
//
// The error is a [*NotFoundError] if no probe matches, or the file has no
// probes, and that of the first site if none of the sites can be attached. It
// wraps
//
//   - proc.ErrGone if the target's process does not exist,
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
	s := &Selection{opened: o, pid: target.PID,
		machines: sitespec.Machines{Kernel: kernel, Program: o.elf.Header().Machine},
		maxSites: target.MaxSites, watched: o.kept != nil}
	if err := s.find(patterns); err != nil {
		o.close()
		return nil, err
	}
	return s, nil
}

// sitesTogether is the number of sites that are found before others get memory
// of their own.
const sitesTogether = 1024

func (s *Selection) find(patterns []elfnote.Pattern) error {
	usable := false
	count := 0                            // of the sites that match
	var full [][]Site                     // so that many sites are copied once, and not at each growth
	var firstMalformed *elffile.NoteError // of any probe
	for site, err := range s.opened.sites {
		if err != nil {
			var note *elffile.NoteError
			if !errors.As(err, &note) {
				return fmt.Errorf("%s: %w", s.opened.name, err)
			}
			if firstMalformed == nil {
				firstMalformed = note
			}
			// A note is known to be of a probe only if its names can be read.
			if note.Name != "" && pattern.MatchAny(patterns, note.Provider, note.Name) {
				if s.skippedCount++; s.skippedCount <= maxMalformed {
					s.skipped = append(s.skipped, &SiteError{path: s.opened.name, Err: note,
						Site: elfnote.Site{Provider: note.Provider, Name: note.Name}})
				}
			}
			continue
		}
		usable = true
		if !pattern.MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		count++
		s.semaphores = s.semaphores || site.SemaphoreOffset != 0
		if s.maxSites > 0 && count > s.maxSites {
			continue // they are counted only
		}
		if n := len(s.sites); n == sitesTogether {
			full, s.sites = append(full, s.sites), make([]Site, 0, sitesTogether)
		} else if n == cap(s.sites) {
			s.sites = slices.Grow(s.sites, min(n+1, sitesTogether-n))
		}
		if s.watched { // a session may hold it for long, and not those between
			copyStrings(&site, s.sites)
		}
		s.sites = append(s.sites, Site{Site: site, Instruction: site.Location})
	}
	s.sites = slices.Concat(append(full, s.sites)...) // without the rest of the room
	if s.maxSites > 0 && count > s.maxSites {
		return s.tooMany("sites", s.maxSites, count)
	}

	switch {
	case len(s.sites) > 0:
	case len(s.skipped) > 0:
		return s.skipped[0]
	case !usable && firstMalformed != nil:
		return fmt.Errorf("%s: none of its probes can be used: %w", s.opened.name, firstMalformed)
	case !usable:
		return &NotFoundError{path: s.opened.name}
	default:
		return &NotFoundError{path: s.opened.name, Patterns: patterns, Probes: s.opened.probes()}
	}
	if err := s.check(); err != nil {
		return err
	}
	return s.decodeArguments()
}

func (o *opened) probes() (probes []elfnote.Site) {
	seen := make(map[[2]string]bool)
	for site, err := range o.sites {
		key := [2]string{site.Provider, site.Name}
		if err == nil && !seen[key] && len(probes) < maxProbes {
			seen[key] = true
			probes = append(probes, elfnote.Site{Provider: site.Provider, Name: site.Name})
		}
	}
	return probes
}

// maxProbes bounds the probes that an error has.
const maxProbes = 10_000

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
	if s.pid == 0 && !s.watched {
		for i := range s.sites {
			if s.sites[i].isMiscounted() && !refused[i] {
				refuse(i, errMiscounted)
			}
		}
	}
	if s.semaphores { // the kernel takes only one for an instruction
		semaphores := make(map[uint64]uint64, len(s.sites))
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
	if len(s.sites) == 0 {
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
	borrowed     bool       // the file belongs to the selection that this was made from
	whole        *Selection // that AttachRaw was given indices of, or nil
	pid          int
	name         string // "" for that of the file
	machines     sitespec.Machines
	sites        []Site
	semaphores   bool // some site has one
	skipped      []*SiteError
	skippedCount int
	maxSites     int  // of the target
	watched      bool // it may become one for each process
}

// Sites returns the sites, in the order of the file's notes. The caller must
// not change the slice. [Selection.AttachRaw] takes its indices.
func (s *Selection) Sites() []Site { return s.sites }

// Skipped returns the sites of the selected probes that cannot be attached, and
// their number. At most 1,024 are listed. They are not among Sites. A site
// cannot be attached if
//
//   - there is no nop,
//   - the kernel refuses a breakpoint on that nop, or would damage the traced
//     program (a five-byte nop on x86-64, Linux 6.18 to 7.1),
//   - it lies in a writable segment, where the kernel puts no breakpoint,
//   - another probe with another semaphore is at the same instruction,
//   - the kernel would count its semaphore wrongly without a PID, see
//     [elfnote.Site].SemaphoreMiscounted,
//   - its note is malformed. At most 16 of these are listed.
//
// In [Link.Selection] these are also the sites that [Manager.Attach] has left
// out: those that another tracer holds with another semaphore, or without one,
// and those whose semaphore the kernel cannot count.
func (s *Selection) Skipped() (sites []*SiteError, count int) {
	return slices.Clone(s.skipped), s.skippedCount
}

// Name returns the name of the file: its path, as the target's process sees it
// if the file was found through a process.
func (s *Selection) Name() string { return cmp.Or(s.name, s.file().name) }

// File returns the file. It is open until Close. It is nil for what
// [Link.Selection] returns.
func (s *Selection) File() *elfnote.File { return s.file().elf }

// Symbols returns what has the symbols of the file: what [Target].Symbols has
// returned, else the file. It is nil where File is.
func (s *Selection) Symbols() argspec.File { return s.file().symbols }

// file is that of the selection, a closed one for a zero Selection.
func (s *Selection) file() *opened {
	if s.opened == nil {
		return &opened{closed: true}
	}
	return s.opened
}

// PID returns the process that the selection is restricted to, or 0 for every
// process.
func (s *Selection) PID() int { return s.pid }

// ForPID returns the same selection for another process, or for every process
// if pid is 0. Its Name is name, or the same if that is "". It is valid until s
// is closed, and closing it does not close s. The PID is checked when the
// selection is attached.
func (s *Selection) ForPID(pid int, name string) *Selection {
	other := *s
	other.borrowed = true
	other.pid = pid
	other.name = cmp.Or(name, s.name)
	return &other
}

// copyStrings replaces the strings of a site by copies, which do not keep the
// memory alive that elfnote shares among sites, or by equal ones of the last.
func copyStrings(site *elfnote.Site, before []Site) {
	if n := len(before); n > 0 {
		last := &before[n-1]
		if last.Provider == site.Provider && last.Name == site.Name && last.Arguments == site.Arguments {
			site.Provider, site.Name, site.Arguments = last.Provider, last.Name, last.Arguments
			return
		}
	}
	all, provider := site.Provider+site.Name+site.Arguments, len(site.Provider)
	name := provider + len(site.Name)
	site.Provider, site.Name, site.Arguments = all[:provider], all[provider:name], all[name:]
}

func (s *Selection) selectAgain(target *Target, patterns []elfnote.Pattern) (*Selection, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	if target.PID != 0 {
		return nil, errors.New("the target has a Selection, which has its own PID: use Selection.ForPID")
	}
	part := s.ForPID(s.pid, "")
	if len(patterns) > 0 {
		other := func(site Site) bool { return !pattern.MatchAny(patterns, site.Provider, site.Name) }
		if slices.ContainsFunc(s.sites, other) {
			part.sites = slices.DeleteFunc(slices.Clone(s.sites), other)
		}
		part.skipped = slices.DeleteFunc(slices.Clone(s.skipped), func(site *SiteError) bool {
			return !pattern.MatchAny(patterns, site.Provider, site.Name)
		})
		if len(part.skipped) < len(s.skipped) {
			part.skippedCount = len(part.skipped)
		}
	}
	if target.MaxSites > 0 {
		part.maxSites = target.MaxSites
		if len(part.sites) > target.MaxSites {
			return nil, s.tooMany("sites", target.MaxSites, len(part.sites))
		}
	}
	switch {
	case len(part.sites) > 0 || len(patterns) == 0:
		return part, nil
	case len(part.skipped) > 0:
		return nil, part.skipped[0]
	default:
		return nil, &NotFoundError{path: s.Name(), Patterns: patterns}
	}
}

// Close releases the file. Links made from the selection stay attached. It is
// safe to call it again.
func (s *Selection) Close() error {
	if s.borrowed {
		return nil
	}
	return s.file().close()
}

func (s *Selection) siteError(i int, err error) *SiteError {
	return &SiteError{path: s.opened.name, Site: s.sites[i].Site, Err: err}
}

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

// isMiscounted reports whether this kernel counts the semaphore in the wrong
// segment until a process has started.
func (s *Site) isMiscounted() bool {
	return s.SemaphoreMiscounted-1 < uint64(os.Getpagesize())
}

// uprobeOffset is the file offset of Instruction.
func (s *Site) uprobeOffset() uint64 { return s.Offset + (s.Instruction - s.Location) }

// argumentList identifies the list of arguments, which sites share.
func (s *Site) argumentList() *argspec.Arg {
	if len(s.Args) == 0 {
		return nil
	}
	return &s.Args[0]
}

// maxArguments is the most arguments that the sites of a Selection may have.
// Sites with equal arguments count once. A file is untrusted, and an argument
// of a few bytes in it takes some 170 in memory: this many take 90 MB, or 240
// MB if each names another symbol. Of real files libjvm has the most, 750 sites
// with 2,000 arguments. The error for more of them wraps elffile.ErrTooLarge.
const maxArguments = 1 << 19

// argumentsPerSite is the number of arguments allowed for each site of
// [Target].MaxSites.
const argumentsPerSite = 4

// decodeArguments decodes the arguments of the sites, whose instructions are
// known. A string that means the same at each site is decoded once: most sites
// of a file share few.
func (s *Selection) decodeArguments() error {
	known, count := make(map[string][]argspec.Arg), 0
	for i := range s.sites {
		site := &s.sites[i]
		args, isKnown := known[site.Arguments]
		if !isKnown {
			args = argspec.Decode(nil, s.opened.symbols, site.Instruction, site.Arguments)
			if !slices.ContainsFunc(args, isRelative) {
				known[site.Arguments] = args
			}
			count += len(args)
		}
		site.Args = args
		if limit := argumentsPerSite * s.maxSites; limit > 0 && count > limit {
			return s.tooMany("different arguments", limit, count)
		}
		if count > maxArguments {
			return fmt.Errorf("%s: more than %d arguments of probes: %w", s.opened.name, maxArguments,
				elffile.ErrTooLarge)
		}
	}
	return nil
}

// isRelative reports whether an argument depends on the address of its site.
func isRelative(a argspec.Arg) bool {
	return a.Base.Name == "rip" || a.Base.Name == "eip" || a.Base.Name == "pc"
}

// Sites closer together than nearSites are read by one call: copying that much
// costs less than another call. No read is longer than the buffer, which stays
// in the processor's second-level cache.
const nearSites = 4 << 10

// readCode calls found with the index of each site and the machine code there,
// up to n bytes: fewer where the file ends, and then err may say why. It reads
// neighbouring sites together, in the order of their offsets. The bytes are
// valid during the call.
func readCode(
	file *elfnote.File, sites []Site, n uint64, found func(i int, code []byte, err error),
) {
	order := make([]int32, len(sites))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(sites[a].Offset, sites[b].Offset), cmp.Compare(a, b))
	})
	buffer := elffile.NewBuffer()
	defer buffer.Free()
	for from, to := 0, 0; from < len(order); from = to {
		first := sites[order[from]].Offset
		end := first + n
		for to = from + 1; to < len(order); to++ {
			next := sites[order[to]].Offset
			if next > end+nearSites || next+n-first > uint64(len(buffer)) {
				break
			}
			end = next + n
		}

		code := buffer[:end-first]
		read, err := elffile.OSFile(file).ReadAt(code, int64(first))
		for _, i := range order[from:to] {
			at := min(int(sites[i].Offset-first), read)
			found(int(i), code[at:min(at+int(n), read)], err)
		}
	}
}

// attachable returns an error if the kernel can attach to no site of a file.
func attachable(file *elfnote.File) error {
	switch {
	case file.IsDebugFile():
		return errors.New("a separate debug file has no machine code: attach to the file it belongs to")
	case file.Header().Type == elf.ET_REL:
		return errors.New("an object file is not linked yet: attach to what is made of it")
	}
	kernel, err := sys.KernelMachine()
	if err != nil {
		return err
	}
	if header := file.Header(); !attaches(kernel, header.Machine) ||
		header.ByteOrder.Uint16([]byte{1, 0}) != binary.NativeEndian.Uint16([]byte{1, 0}) {
		return fmt.Errorf("the file is for %s, this kernel attaches to programs for %s",
			elffile.MachineName(header.Machine, header.Class, header.ByteOrder),
			elffile.MachineName(kernel, elf.ELFCLASS64, binary.NativeEndian))
	}
	return nil
}

// attaches reports whether a kernel of one machine takes uprobes in programs
// for another. A kernel for arm64 runs 32-bit programs, but takes no uprobes in
// them (arch_uprobe_analyze_insn).
func attaches(kernel, program elf.Machine) bool {
	return kernel == program || kernel == elf.EM_X86_64 && program == elf.EM_386
}
