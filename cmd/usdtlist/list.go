// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

type failure struct {
	name    string // of the file, "" for a process as a whole
	pid     int    // 0 if it is not about a process
	err     error
	leftOut bool // what was asked for may not be in it, and it may not be read: no error
}

type listing struct {
	path      string
	heading   bool    // a reader cannot know the path otherwise
	mapped    *mapped // nil if it is not a file of processes
	showUsers bool    // the processes that map it
	elf       *elfnote.File
	probes    []defs.FileProbe
	args      *arguments
	shared    map[uint64][]string // probes where the file has several, with -v
}

type lister struct {
	options *options
	args    []string // the command line
	proc    procfs.FS
	out     *bufio.Writer
	json    *jsonPrinter // nil for another format
	printed bool         // a file
	*commandline.Messages

	definitions *defs.Definitions // nil without names

	matched   []bool // which patterns picked a probe
	elsewhere string // names a file with probes if the named ones have none
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
	if l.json != nil {
		l.json.close()
	}
	l.warnUnmatched(found, where)
	if l.elsewhere != "" {
		l.Warn("%s", l.elsewhere)
	}
	hint := " (--json lists them all)"
	if l.json != nil {
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

// failed keeps a failure for the JSON document. Standard error has it already.
func (l *lister) failed(f failure) {
	if l.json != nil {
		l.json.errors = append(l.json.errors, f)
	}
}

func (l *lister) several() bool {
	return len(l.options.files) > 1 || l.options.many() || l.options.ofProcesses()
}

// listOpened lists an opened file, and completes the listing with its probes.
func (l *lister) listOpened(list *listing) (int, error) {
	path, file, several := list.path, list.elf, l.several()
	symbols := debuginfo.AddDebugFile(file, "")
	all, err := defs.List(file, l.options.patterns...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for i, p := range l.options.patterns {
		l.matched[i] = l.matched[i] || slices.ContainsFunc(all.Probes,
			func(probe defs.FileProbe) bool { return p.Match(probe.Provider, probe.Name) })
	}
	if l.options.debugFile != "" {
		named, err := withDebugFile(file, l.options.debugFile)
		if err == nil {
			symbols = named
		} else if !several || !errors.Is(err, debuginfo.ErrOtherBuildID) {
			return 0, fmt.Errorf("%s: --debug-file: %w", path, err)
		}
	}
	writable := 0
	for i := range all.Probes {
		for j := range all.Probes[i].Sites {
			if file.HasWritableCode(&all.Probes[i].Sites[j]) {
				writable++
			}
		}
	}
	if writable > 0 {
		l.WarnOf("files with writable code", "%s: %d of the sites cannot be traced: their code is in a "+
			"writable segment (RWX), where the kernel puts no breakpoint", path, writable)
	}
	args := &arguments{file: symbols, definitions: l.definitions}
	if l.options.debuginfod {
		fetched, err := fetchDebugFile(symbols, all.Probes)
		if err != nil {
			l.Warn("%s: --debuginfod: %v", path, err)
		}
		args.file = cmp.Or(fetched, symbols)
	}

	const malformed = "skipped notes"
	for _, note := range all.Malformed {
		l.WarnOf(malformed, "%s: skipped %v", path, note)
	}
	l.More(malformed, all.MalformedCount-len(all.Malformed))
	if len(all.Probes) == 0 && !several {
		l.warnNothing(path, file, l.elsewhereThan(path))
	}
	list.probes, list.args = all.Probes, args
	printed, err := l.print(list)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if args.missing != "" {
		l.Warn("%s: no symbol for %s; if the file was stripped, its debug file has it "+
			"(--debug-file, --debuginfod, or a -dbgsym package)", path, args.missing)
	}
	return printed, nil
}

// fetchDebugFile fetches the debug file if arguments name symbols that are not
// known. It returns nil if there is no need, or with an error.
func fetchDebugFile(
	file *debuginfo.WithDebugFile, probes []defs.FileProbe,
) (*debuginfo.WithDebugFile, error) {
	args := &arguments{file: file}
	for _, probe := range probes {
		for i := range probe.Sites {
			args.decode(&probe.Sites[i])
		}
	}
	buildID, err := file.BuildID()
	if args.missing == "" || err != nil {
		return nil, nil
	}
	// usdttrace has the client: what speaks with servers would take a third of
	// the time of each list.
	fetcher, err := usdttrace()
	if err != nil {
		return nil, err
	}
	command := exec.Command(fetcher, commandline.FetchDebugFile, buildID)
	command.Stderr = os.Stderr
	path, err := command.Output()
	if err != nil {
		return nil, errors.New("the debug file could not be fetched")
	}
	return withDebugFile(file.File, strings.TrimSuffix(string(path), "\n"))
}

// withDebugFile has symbols searched for in a debug file, if it is the file's.
func withDebugFile(file *elfnote.File, path string) (*debuginfo.WithDebugFile, error) {
	with := debuginfo.AddDebugFile(file, path)
	debug, err := with.DebugFile()
	if err != nil {
		return nil, err
	}
	return with, debug.Close()
}

// usdttrace returns the path of the other command, which is beside this one.
func usdttrace() (string, error) {
	self, err := os.Executable()
	if err == nil {
		path := filepath.Join(filepath.Dir(self), "usdttrace")
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("usdttrace")
	if err != nil {
		err = errors.New("usdttrace, which fetches debug files, is neither beside usdtlist nor in PATH")
	}
	return path, err
}

// listFiles lists the files and libraries named on the command line. It lists
// none if one of the words was perhaps meant to pick probes: all probes of the
// files would then be listed.
func (l *lister) listFiles() (found int, failed bool) {
	if i := slices.IndexFunc(l.options.files, commandline.IsMistaken); i >= 0 {
		l.options.files = l.options.files[i : i+1]
	}
	for _, name := range l.options.files {
		n := 0
		path, searched, err := findFile(name)
		if err == nil {
			n, err = l.listPath(path, searched || l.several())
		}
		found += n
		if err != nil {
			failed = true
			of, script := path, new(ldso.ScriptError)
			if errors.As(err, &script) {
				of = script.Path
			}
			l.Warn("%v%s", err, l.elsewhereThan(of))
			l.failed(failure{name: name, err: err})
		}
	}
	return found, failed
}

func (l *lister) listPath(path string, heading bool) (int, error) {
	if err := checkRegular(path); err != nil {
		return 0, err
	}
	file, err := elfnote.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return l.listOpened(&listing{path: path, heading: heading, elf: file})
}

// findFile returns the path of a file or library named on the command line, and
// whether it was searched for.
func findFile(name string) (path string, searched bool, err error) {
	if strings.Contains(name, "/") || commandline.IsFileHere(name) {
		return name, false, nil
	}
	path, err = ldso.Find(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(name, ".so") {
		// Perhaps it was meant to pick probes.
		err = fmt.Errorf("%w; for the probes of that name, write -e %s", err, name)
	}
	return path, true, err
}

// checkRegular refuses a pipe or device before it is opened: opening it could
// block, or have effects.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, commandline.WithoutPath(err))
	case info.IsDir():
		return fmt.Errorf("%s: is a directory (-r lists what is in it)", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file", path)
	}
	return nil
}

// batchSize is how many files are scanned together: many enough that passing
// them on costs nothing beside opening them, and few enough that all processors
// have something to do to the end.
const batchSize = 128

// batchesAhead is for each processor how many batches may wait to be printed.
// It bounds the memory: a file early in the order may take longest.
const batchesAhead = 8

// listMany lists the files with probes among many: those in directories, and
// those of lists. All processors scan for files with probes. Those are then
// listed one after the other, in order.
func (l *lister) listMany() (found int, failed bool) {
	var count atomic.Int64
	batches := make(chan chan []scanned, runtime.GOMAXPROCS(0)*batchesAhead)
	go func() {
		var batch []scanned
		flush := func() {
			result, files := make(chan []scanned, 1), batch
			batches <- result // waits if there are enough
			go func() {
				var results []scanned
				for _, f := range files {
					if l.scan(&f) {
						results = append(results, f)
					}
				}
				count.Add(int64(len(files)))
				result <- results
			}()
			batch = nil
		}
		w := &walker{options: l.options, give: func(f scanned) {
			if batch = append(batch, f); len(batch) == batchSize {
				flush()
			}
		}}
		w.walk()
		flush()
		close(batches)
	}()

	done := l.Progress(func() string { return fmt.Sprintf("%d files scanned", count.Load()) })
	defer done()
	for batch := range batches {
		results := <-batch
		for _, r := range results {
			n, err := 0, r.err
			if err == nil {
				n, err = l.listPath(r.path, true)
			}
			found += n
			if err == nil {
				continue
			}
			failed = failed || r.expected
			l.failed(failure{name: r.path, err: err, leftOut: !r.expected})
			if r.expected {
				l.Warn("%v", err)
			} else {
				l.WarnOf("left out: "+commandline.Cause(err), "left out: %v", err)
			}
		}
		if len(results) > 0 {
			l.Hide()
			_ = l.out.Flush() // the last Flush returns the same error
		}
	}
	return found, failed
}

// scan reports whether a file has something to list, which is a probe or a note
// that cannot be read, or else an error. Several goroutines call it.
func (l *lister) scan(f *scanned) bool {
	if f.err != nil {
		return true
	}
	opened, err := openELF(f.path)
	if err != nil {
		f.err = fmt.Errorf("%s: %w", f.path, commandline.WithoutPath(err))
		return true
	}
	if opened == nil {
		return false
	}
	defer opened.Close()
	file, err := elfnote.NewFile(opened)
	if err != nil {
		f.err = fmt.Errorf("%s: %w", f.path, err)
		return true
	}
	defer file.Close()
	for site, err := range file.Sites() {
		var note *elffile.NoteError
		switch {
		case err != nil && !errors.As(err, &note):
			f.err = fmt.Errorf("%s: %w", f.path, err)
			return true
		case err != nil || pattern.MatchAny(l.options.patterns, site.Provider, site.Name):
			return true
		}
	}
	return false
}

// warnUnmatched names the patterns that match no probe, and says where there
// are no probes at all. For a single file, warnNothing has said more.
func (l *lister) warnUnmatched(found int, where string) {
	if found == 0 && (!l.several() || where == "") {
		return
	}
	if found == 0 && len(l.options.patterns) == 0 {
		l.Warn("no probes in %s", where)
	}
	for i, p := range l.options.patterns {
		if !l.matched[i] {
			var near []string
			if l.options.ofProcesses() {
				near = l.nearest(p)
			}
			l.Warn("%s", defs.NoMatch(p.String(), "", near))
		}
	}
}

// mostNamed is how many names are suggested.
const mostNamed = 3

// nearest returns names like a pattern in the files of the processes.
func (l *lister) nearest(p elfnote.Pattern) (near []string) {
	pids := l.options.pids
	if l.options.allProcesses {
		pids = []int{0}
	}
	for _, pid := range pids { // what cannot be read has been said
		_ = commandline.EachFile(pid, func(pair *procwatch.ProcessFile) {
			for _, name := range l.calls().NearestProbes(pair.ELF().Sites(), p) {
				if !slices.Contains(near, name) && len(near) < mostNamed {
					near = append(near, name)
				}
			}
		}, nil)
	}
	return near
}

// calls returns the definitions that patterns may name calls of.
func (l *lister) calls() *defs.Definitions { return cmp.Or(l.definitions, defs.Builtin()) }

// elsewhereThan names another file that has the probes, and what to type, if
// one file was asked for, and is at the path.
func (l *lister) elsewhereThan(path string) string {
	if len(l.options.files) != 1 || l.options.many() || l.options.ofProcesses() {
		return ""
	}
	return commandline.Elsewhere(path, l.options.files[0], "usdtlist", l.args, l.options.patterns...)
}

// warnNothing says why the only file asked for has nothing to list.
func (l *lister) warnNothing(path string, file *elfnote.File, elsewhere string) {
	hasProbes := false
	for _, err := range file.Sites() {
		hasProbes = hasProbes || err == nil
	}
	if !hasProbes {
		l.Warn("%s: no probes%s", path, elsewhere)
		return
	}
	near := l.calls().NearestProbes(file.Sites(), l.options.patterns...)
	text := defs.NoMatch(defs.Or(l.options.patterns), "", near)
	if len(near) == 0 && elsewhere == "" {
		text += " (without a pattern, all are listed)"
	}
	text += elsewhere
	l.Warn("%s: %s", path, text)
}
