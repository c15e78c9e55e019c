// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/proc"
)

// watchDriver attaches the programs of a Watch where a follow.Follower finds a
// place for them. The parts of a file are its probes for each program.
type watchDriver struct {
	manager  *Manager
	programs []WatchProgram
	names    []string          // of the programs: what is left behind may fail when they are closed
	patterns []elfnote.Pattern // of all programs together
	opts     WatchOptions
}

// Open checks the sites of a file, once for all processes and all programs.
func (d *watchDriver) Open(pair *proc.ProcessFile) (*watchedFile, error) {
	sel, err := Select(Target{ProcessFile: pair},
		&SelectOptions{MaxSites: d.opts.Limits.fileSites()}, d.patterns...)
	if err != nil {
		return nil, err
	}
	return newWatchedFile(sel, d.programs), nil
}

func (d *watchDriver) Release(file *watchedFile) { file.selection.Close() }

// PerProcess reports whether a file is attached in each process by itself. In
// ModeSingleIPMap the programs know a site by its address, which is the same
// everywhere only for an executable that is not position-independent.
func (d *watchDriver) PerProcess(file *proc.CachedFile) bool {
	return d.opts.PerProcess || d.manager.mode == ModeSingleIPMap &&
		file.ELF().Kind() != elfnote.Executable
}

func (d *watchDriver) Attach(
	n int, file *watchedFile, pair *proc.ProcessFile, pid int,
) (*Link, bool, error) {
	program, part := &d.programs[n], &file.parts[n]
	if part.selection == nil {
		return nil, false, part.err
	}
	options := program.options(pair)
	lnk, err := d.manager.AttachSelection(program.Program, part.selection.ForPID(pid), &options)
	if err != nil {
		return nil, false, err
	}
	lnk.sel.opened.name = pair.Path // the file may have been opened by another process's path
	if pid != 0 {
		lnk.process = pair.Process
	}
	return lnk, true, nil
}

// Sites counts what the kernel attaches for a part.
func (d *watchDriver) Sites(n int, file *watchedFile) int {
	if part := &file.parts[n]; part.selection != nil {
		return part.selection.weight()
	}
	return 0
}

func (d *watchDriver) Descriptors(l *Link) int { return l.descriptors() }

func (d *watchDriver) Detach(links []*Link) error { return CloseAll(links...) }

// Retry says when what failed is to be tried again. The maps of the Manager
// have room for what needs no more than they hold altogether, and are shared
// out.
func (d *watchDriver) Retry(err error) follow.When {
	var full *LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return follow.Never
	case full != nil:
		return follow.WithShare
	case errors.Is(err, errAddressInUse):
		return follow.WithRoom
	default:
		return follow.Classify(err)
	}
}

func (d *watchDriver) Explain(n int, pair *proc.ProcessFile, err error) error {
	failed := &WatchError{Path: pair.Path, Process: pair.Process, Err: limitOf(err)}
	if n != follow.WholeFile {
		failed.Program = d.programs[n].Program
		failed.program = d.names[n]
	}
	return failed
}

func (d *watchDriver) Changed(c *follow.Changes[*Link]) {
	if d.opts.Changed != nil && len(c.Attached)+len(c.Detached)+len(c.Errors) > 0 {
		d.opts.Changed(&WatchChanges{Attached: c.Attached, Detached: c.Detached, Errors: c.Errors})
	}
}

// patternsOf returns the patterns of all programs, none if one of the programs
// is for all probes.
func patternsOf(programs []WatchProgram) []elfnote.Pattern {
	var all []elfnote.Pattern
	for i := range programs {
		if len(programs[i].Patterns) == 0 {
			return nil
		}
		all = slices.Concat(all, programs[i].Patterns)
	}
	return all
}

// programNames returns what people call programs.
func programNames(programs []WatchProgram) (names []string) {
	for i := range programs {
		names = append(names, programName(programs[i].Program))
	}
	return names
}

func programName(prog *ebpf.Program) string {
	if info, err := prog.Info(); err == nil && info.Name != "" {
		return info.Name
	}
	return prog.String()
}
