// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/nearest"
)

// SelectOptions say what a selection must have. Nil, or the zero value, is the
// common case: what cannot be attached is skipped, and what cannot be fetched
// is an error where a program reads it.
type SelectOptions struct {
	// RequireAllSites makes a site that cannot be attached an error, a
	// [*SiteError]. Otherwise such sites are skipped, and [Selection.Skipped]
	// lists them.
	RequireAllSites bool

	// RequireArguments makes an argument that cannot be fetched an error, a
	// [*SiteError]. Otherwise reading that argument returns an error
	// (EOPNOTSUPP) in the program, and its Err in [Site].Args says why.
	RequireArguments bool

	// MaxSites makes it an error, a [*LimitError], if more sites match. A site
	// with a semaphore counts as eight, and so does a perf event. It also
	// bounds the different arguments of the sites, to four times as many. 0
	// means no limit but that on arguments which every file has, see [Select].
	MaxSites int
}

// Select finds the sites of the probes that match any of the patterns, or of
// all probes of the file if there is no pattern. Close the Selection when it is
// not needed any more.
//
// The error is
//
//   - a [*NotFoundError] if no probe matches, or the file has no probes,
//   - a [*SiteError] if none of the sites can be attached, or if one cannot be
//     and the options require all,
//   - a [*PermissionError] if the caller may not read the target's process.
//
// It wraps
//
//   - [proc.ErrGone] if the target's process does not exist,
//   - an [*elfnote.NoteError] if the notes of all matching probes, or of all
//     probes, are malformed,
//   - [os.ErrNotExist] or [os.ErrPermission] if the file cannot be opened,
//   - [elfnote.ErrNotELF] or another error of package elfnote if the file
//     cannot be read. It is [elfnote.ErrTooLarge] also if the probes have more
//     than 524,288 arguments altogether, or more than the options allow: then
//     it wraps a [*LimitError], too.
//
// Other errors say what is missing in the target, or that this kernel cannot
// run such a file.
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
	s := &Selection{opened: o, pid: target.PID, kernel: kernel, machine: o.elf.Header().Machine,
		maxSites: opts.MaxSites}
	if err := s.find(opts, patterns); err != nil {
		o.close()
		return nil, err
	}
	return s, nil
}

func (s *Selection) find(opts *SelectOptions, patterns []elfnote.Pattern) error {
	file := s.opened.elf

	found := newSiteCollector(file)
	weight, semaphores := 0, false        // of the sites that match, while there is a limit
	var firstMalformed *elfnote.NoteError // of whatever probe
	for site, err := range file.Sites() {
		if err != nil {
			var note *elfnote.NoteError
			if !errors.As(err, &note) {
				return fmt.Errorf("%s: %w", s.opened.name, err)
			}
			if firstMalformed == nil {
				firstMalformed = note
			}
			// Only a note that can be read up to its names is known to be of a
			// probe.
			if note.Name != "" && elfnote.MatchAny(patterns, note.Provider, note.Name) {
				if s.skippedCount++; s.skippedCount <= maxMalformed {
					s.skipped = append(s.skipped, &SiteError{
						File: s.opened.name, Provider: note.Provider, Name: note.Name, Err: note,
					})
				}
			}
			continue
		}
		wanted := elfnote.MatchAny(patterns, site.Provider, site.Name)
		if wanted && opts.MaxSites > 0 {
			weight++
			if site.SemaphoreOffset != 0 {
				weight += follow.SemaphoreSites - 1
				semaphores = true
			}
			if weight > opts.MaxSites {
				continue // they are counted only
			}
		}
		found.add(&site, wanted)
	}
	if opts.MaxSites > 0 && weight > opts.MaxSites {
		what := "sites"
		if semaphores {
			what = "sites (one with a semaphore counts as 8)"
		}
		return tooMany(s.opened.name, what, opts.MaxSites, weight)
	}
	s.sites = found.table()

	switch {
	case len(s.sites.rows) > 0:
	case len(s.skipped) > 0:
		return s.skipped[0]
	case found.seen == 0 && firstMalformed != nil:
		return fmt.Errorf("%s: none of its probes can be used: %w", s.opened.name, firstMalformed)
	case found.seen == 0:
		return &NotFoundError{File: s.opened.name}
	default:
		return &NotFoundError{File: s.opened.name, Patterns: joinPatterns(patterns),
			Nearest: nearest.Probes(file, patterns...)}
	}

	if opts.RequireAllSites && len(s.skipped) > 0 {
		return s.skipped[0]
	}
	if err := s.check(opts.RequireAllSites); err != nil {
		return err
	}
	if err := decodeArguments(file, &s.sites, opts.MaxSites); err != nil {
		return err
	}
	if opts.RequireArguments {
		return s.requireArguments()
	}
	return nil
}

// A small file can have a million sites that cannot be attached. A Selection
// lists maxSkipped of them, of which maxMalformed are malformed notes: these
// come first, and leave room for others.
const (
	maxSkipped   = 1024
	maxMalformed = 16
)

// check finds the sites that cannot be attached. If all are required the first
// one is an error. Otherwise they are skipped, and it is an error if no site is
// left.
func (s *Selection) check(requireAll bool) error {
	refused := false
	refuse := func(i int, err error) error {
		if requireAll {
			return s.siteError(i, err)
		}
		if s.skippedCount++; len(s.skipped) < maxSkipped {
			s.skipped = append(s.skipped, s.siteError(i, err))
		}
		refused = true
		s.sites.rows[i].skipped = true
		return nil
	}
	if err := checkCode(s.opened.elf, s.sites.rows, refuse); err != nil {
		return err
	}
	if err := s.checkClashes(refuse); err != nil {
		return err
	}
	if !refused {
		return nil
	}
	left := slices.DeleteFunc(s.sites.rows, func(row siteRow) bool { return row.skipped })
	s.sites.rows = slices.Clone(left)
	if s.Len() == 0 {
		return s.skipped[0]
	}
	return nil
}

// checkClashes finds probes at the same instruction with different semaphores,
// of which the kernel takes only one.
func (s *Selection) checkClashes(refuse func(i int, err error) error) error {
	if !s.sites.semaphores {
		return nil
	}
	semaphores := make(map[uint64]uint64, s.Len())
	for i := range s.sites.rows {
		site := &s.sites.rows[i]
		if site.skipped {
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
