// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/providers"
)

// printer prints the probes of one file after the other.
type printer interface {
	// file prints the probes of a file, which may be none, and returns how many
	// it printed.
	file(*listing) (int, error)
	// failed takes what could not be read. Standard error has it already.
	failed(failure)
	// close ends the output.
	close()
}

// failure is a file, or a process, that could not be read.
type failure struct {
	name    string // of the file, "" for a process as a whole
	pid     int    // 0 if it is not about a process
	err     error
	leftOut bool // it was not asked for by itself, and may not be read: no error
}

// listing is what is listed of a file.
type listing struct {
	path      string
	member    string  // of the static library at path, "" if it is none
	heading   bool    // a reader cannot know the path otherwise
	mapped    *mapped // nil if it is not a file of processes
	showUsers bool    // the processes that map it
	elf       *elfnote.File
	probes    []elfnote.Probe
	args      *arguments
}

// name returns the file's path, with the member of a static library behind it.
func (l *listing) name() string {
	if l.member != "" {
		return memberName(l.path, l.member)
	}
	return l.path
}

// lister goes through the files.
type lister struct {
	options *options
	proc    *proc.FS
	printer printer
	out     *bufio.Writer // what the printer prints to
	*messages.Messages

	definitions *providers.Definitions // nil without names

	matched []bool // which patterns picked a probe
}

// list lists everything asked for and returns the exit status.
func (l *lister) list() int {
	l.matched = make([]bool, len(l.options.patterns))
	found, failed, where := 0, false, "any of the files"
	switch {
	case l.options.ofProcesses():
		found, failed, where = l.listProcesses()
	case l.options.many():
		found, failed = l.listMany()
	default:
		found, failed = l.listFiles()
	}
	l.printer.close()
	l.warnUnmatched(found, where)
	if found == 0 && len(l.options.pids) > 0 && len(l.options.files) > 0 && where != "" {
		l.warnOthers()
	}
	hint := " (--json lists them all)"
	if l.options.format == formatJSON {
		hint = ""
	}
	l.Rest(hint)
	switch {
	case failed:
		return exitError
	case found == 0:
		return exitNothing
	}
	return exitFound
}

// several reports whether more than one file may be listed.
func (l *lister) several() bool {
	return len(l.options.files) > 1 || l.options.many() || l.options.ofProcesses()
}

// listOpened lists an opened file, and completes the listing with what is in
// it.
func (l *lister) listOpened(list *listing) (int, error) {
	path, file := list.name(), list.elf
	all, err := file.Probes(l.options.patterns...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	l.mark(all.Probes)
	several := l.several()
	if l.options.debugFile != "" {
		err := file.UseDebugFile(l.options.debugFile)
		if err != nil &&
			!((several || list.member != "") && errors.Is(err, elfnote.ErrOtherBuildID)) {
			return 0, fmt.Errorf("%s: --debug-file: %w", path, err)
		}
	}
	args := newArguments(file, l.definitions)

	l.warnMalformed(path, all)
	if len(all.Probes) == 0 && !several && list.member == "" {
		l.warnNothing(path, file)
	}
	list.probes, list.args = all.Probes, args
	printed, err := l.printer.file(list)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if args.missing != "" {
		l.Warn("%s: no symbol for %s; if the file was stripped, its debug file has it (--debug-file, or a -dbgsym package)",
			path, args.missing)
	}
	return printed, nil
}

// mark remembers which patterns picked a probe.
func (l *lister) mark(probes []elfnote.Probe) {
	for i, p := range l.options.patterns {
		l.matched[i] = l.matched[i] || slices.ContainsFunc(probes, func(probe elfnote.Probe) bool {
			return p.Match(probe.Provider, probe.Name)
		})
	}
}
