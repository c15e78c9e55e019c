// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
)

// printer prints the probes of one file after the other.
type printer interface {
	// file prints the probes of a file, which may be none, and returns how many
	// it printed.
	file(*listing) (int, error)
	// failed tells of what could not be read. That is on stderr already.
	failed(failure)
	// close ends the output.
	close()
}

// failure is a file, or a process, that could not be read.
type failure struct {
	name string // of the file, "" for a process as a whole
	pid  int    // 0 if it is not about a process
	err  error
}

// listing is what is listed of a file.
type listing struct {
	path      string
	heading   bool    // whether the path has to be told, for a reader to know what was listed
	mapped    *mapped // for files of processes
	tellUsers bool    // whose they are
	elf       *elfnote.File
	probes    []elfnote.Probe
	args      *arguments
}

// lister goes through the files.
type lister struct {
	options *options
	proc    *proc.FS
	printer printer
	warn    func(format string, args ...any)

	matched []bool // which patterns picked a probe
}

// list lists everything asked for and returns the exit status.
func (l *lister) list() int {
	l.matched = make([]bool, len(l.options.patterns))
	found, failed, where := 0, false, "any of the files"
	if l.options.ofProcesses() {
		found, failed, where = l.listProcesses()
	} else {
		found, failed = l.listFiles()
	}
	l.printer.close()
	l.warnUnmatched(found, where)
	switch {
	case failed:
		return exitError
	case found == 0:
		return exitNothing
	}
	return exitFound
}

// several tells whether more than one file may be listed.
func (l *lister) several() bool { return len(l.options.files) > 1 || l.options.ofProcesses() }

// warnUnmatched tells which patterns picked nothing, and where there was
// nothing at all to pick. Of a single file that has nothing to list, more has
// been told already.
func (l *lister) warnUnmatched(found int, where string) {
	if found == 0 && (!l.several() || where == "") {
		return
	}
	if found == 0 && len(l.options.patterns) == 0 {
		l.warn("no probes in %s", where)
	}
	for i, p := range l.options.patterns {
		if !l.matched[i] {
			l.warn("no probe matches %s", p)
		}
	}
}

// listFiles lists the files and libraries named on the command line.
func (l *lister) listFiles() (found int, failed bool) {
	for _, name := range l.options.files {
		n, err := l.listFile(name)
		found += n
		if err != nil {
			failed = true
			l.warn("%v", err)
			l.printer.failed(failure{name: name, err: err})
		}
	}
	return found, failed
}

// listFile lists a file or library by its name and returns how many probes it
// listed. The error names the file.
func (l *lister) listFile(name string) (int, error) {
	path, searched, err := findFile(name)
	if err != nil {
		return 0, err
	}
	file, err := open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return l.listOpened(&listing{path: path, heading: searched || l.several(), elf: file})
}

// listOpened lists an opened file: the listing lacks but what is in it.
func (l *lister) listOpened(list *listing) (int, error) {
	path, file := list.path, list.elf
	all, err := file.Probes(l.options.patterns...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	l.mark(all.Probes)
	several := l.several()
	args, err := newArguments(file, l.options.debugFile, all.Probes)
	if several && errors.Is(err, elfnote.ErrOtherBuildID) {
		args, err = newArguments(file, "", all.Probes) // the debug file is another one's
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	defer args.close()

	l.warnBroken(path, all)
	if len(all.Probes) == 0 && !several {
		l.warnNothing(path, file)
	}
	list.probes, list.args = all.Probes, args
	printed, err := l.printer.file(list)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if missing := args.missing(); missing != "" {
		l.warn("%s: no symbol %s; if the file was stripped, its debug file has it (--debug-file, or a -dbgsym package)",
			path, missing)
	}
	return printed, nil
}

// open opens an ELF file. A pipe or device is refused before it is opened:
// that could block, or do something.
func open(path string) (*elfnote.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return elfnote.Open(path)
}

// mark remembers which patterns picked a probe.
func (l *lister) mark(probes []elfnote.Probe) {
	for i, p := range l.options.patterns {
		l.matched[i] = l.matched[i] || slices.ContainsFunc(probes, func(probe elfnote.Probe) bool {
			return p.Match(probe.Provider, probe.Name)
		})
	}
}

// maxWarnings is how many broken notes of a file are told one by one. It is
// less than elfnote.MaxMalformed.
const maxWarnings = 10

func (l *lister) warnBroken(path string, all *elfnote.Listing) {
	for i, note := range all.Malformed {
		if i == maxWarnings && all.MalformedCount > maxWarnings+1 {
			l.warn("%s: %d more broken notes (--json lists them all)", path, all.MalformedCount-i)
			return
		}
		l.warn("%s: skipped %v", path, note)
	}
}

// warnNothing says why the only file asked for has nothing to list.
func (l *lister) warnNothing(path string, file *elfnote.File) {
	hasProbes := false
	var similar []string
	for site, err := range file.Sites() {
		if err != nil {
			continue
		}
		hasProbes = true
		name := site.Provider + ":" + site.Name
		if l.similar(site) && !slices.Contains(similar, name) {
			similar = append(similar, name)
		}
		if len(similar) == maxSimilar {
			break
		}
	}
	switch {
	case !hasProbes:
		l.warn("%s: no probes", path)
	case len(similar) > 0:
		l.warn("%s: no probe matches (nearest: %s)", path, strings.Join(similar, ", "))
	default:
		l.warn("%s: no probe matches (without a pattern, all are listed)", path)
	}
}

// maxSimilar is how many names are suggested.
const maxSimilar = 3

// similar tells whether a site would be picked if the patterns were not so
// exact: people write query-start, as DTrace does, for query__start.
func (l *lister) similar(site elfnote.Site) bool {
	for _, p := range l.options.patterns {
		loose, err := elfnote.ParsePattern(simplify(p.String()))
		if err == nil && loose.Match(simplify(site.Provider), simplify(site.Name)) {
			return true
		}
	}
	return false
}

func simplify(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}
