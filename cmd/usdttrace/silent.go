// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// manual is where the documentation is: a package has no other.
const manual = "https://github.com/gousdt/gousdt/blob/main/docs/"

// Why a process that has a probe's file does not reach the probe's breakpoint.
const (
	movedCode = "executes other code in the probe's place: it has moved its code, or runs in an " +
		"emulator (see " + manual + "troubleshooting.md#moved-code)"
	notExecuted = "maps the file, but does not execute it: it has moved its code, or is an " +
		"emulator (see " + manual + "troubleshooting.md#moved-code)"
	writableCode = "has the probe in writable or shared memory, where the kernel puts no breakpoint"
	noSemaphore  = "has a semaphore of 0, by which it takes the probe for unused: " +
		"the kernel counts it elsewhere, or the program has cleared it"
	translatedCode = "runs in an emulator, which executes a translation of the code " +
		"(see " + manual + "troubleshooting.md#moved-code)"
)

// emulators are parts of the paths of programs that execute translated code.
var emulators = []string{"/valgrind/", "/libdynamorio.so", "/pinbin"}

func isEmulator(path string) bool {
	return slices.ContainsFunc(emulators,
		func(part string) bool { return strings.Contains(path, part) })
}

// reach has the watched processes that have a pattern's probes.
type reach struct {
	has    []proc.Process // that map the file and can pass the probe
	unfit  map[int]bool   // that map it and cannot
	reason string         // why not
}

// reaches returns the reach of each pattern, all of one moment. It is nil for a
// command, which has ended.
func (t *tracer) reaches() []reach {
	o := t.options
	if t.command != nil {
		return nil
	}
	wanted := t.wanted()
	all := make([]reach, len(o.patterns))
	for i := range all {
		all[i].unfit = make(map[int]bool)
	}
	eachPair(wanted, func(pair *procwatch.ProcessFile) {
		if len(o.files) > 0 && t.targets.nameOf(pair.File.ID()) == "" {
			return
		}
		pid := pair.Process.PID
		for i := range all {
			r := &all[i]
			why, matches := whyUnseen(pair, o.patterns[i])
			if why == "" && t.cleared[silence{pid, i}] {
				why = noSemaphore
			}
			switch {
			case !matches:
			case why != "":
				r.unfit[pid], r.reason = true, fmt.Sprintf("process %s %s", pair.Process, why)
			case !slices.ContainsFunc(r.has, func(p proc.Process) bool { return p.PID == pid }):
				r.has = append(r.has, pair.Process)
			}
		}
	}, o.patterns...)
	t.eachMapped(wanted, func(p proc.Process, file *procfs.MappedFile) {
		isData := !slices.ContainsFunc(file.Mappings,
			func(m procfs.Mapping) bool { return !m.Data })
		if !isData || !t.targets.isWatched(file) {
			return
		}
		for i := range all {
			if r := &all[i]; !r.unfit[p.PID] {
				r.unfit[p.PID], r.reason = true, fmt.Sprintf("process %s %s", p, notExecuted)
			}
		}
	})
	for _, r := range all {
		for _, p := range r.has {
			delete(r.unfit, p.PID) // it has another file, too
		}
	}
	return all
}

// whySilent says why no probe that matches a pattern was passed: how many of
// the processes that are watched map a file with one now, and whether they can
// pass it.
func (t *tracer) whySilent(pattern int, reaches []reach) string {
	o := t.options
	t.targets.mu.Lock()
	matched := t.targets.matched[pattern]
	t.targets.mu.Unlock()
	switch {
	case !matched && o.pid != 0 && t.command == nil:
		return t.where() + " has no such probe"
	case !matched:
		return "no process has such a probe"
	case t.command != nil:
		return t.whyCommandSilent(pattern)
	}
	r := &reaches[pattern]
	var text string
	switch n := len(r.has); {
	case n > 1:
		text = fmt.Sprintf("%d processes contain it, but it fired in none", n)
	case n == 1:
		text = "1 process contains it, but it did not fire"
	case len(r.unfit) > 0:
	case o.pid != 0:
		text = t.where() + " runs no file that contains it"
		if _, err := proc.Find("", o.pid); errors.Is(err, proc.ErrGone) {
			text = t.where() + " has ended"
		}
	case len(o.files) == 0:
		text = "no process runs a file that contains it any more"
	default:
		text = "no process runs a file that contains it"
	}
	if len(r.unfit) > 0 {
		if text != "" {
			text += "; "
		}
		text += r.reason
		if more := len(r.unfit) - 1; more > 0 {
			text += fmt.Sprintf("; so do %d more", more)
		}
	}
	return text
}

// variable is how a condition in definitions names what has to be in the
// environment of a process, and which number of the program shows that it was.
var variable = regexp.MustCompile(
	` only with the environment variable (\w+=[^\s,]+)(?:, which sets (\w+))?`)

// withEnvironment adds to hints about when probes fire which of the processes
// were started with the variable that a hint names.
func withEnvironment(hints []string, reaches []reach) []string {
	processes := make(map[int]proc.Process)
	for _, r := range reaches {
		for _, p := range r.has {
			processes[p.PID] = p
		}
	}
	hints = slices.Clone(hints)
	for i, hint := range hints {
		named := variable.FindStringSubmatch(hint)
		if named == nil || len(processes) == 0 {
			continue
		}
		with, without := 0, 0
		shown := numbersOf(processes, named[2])
		for pid := range processes {
			set, known := shown[pid]
			if !known {
				set, known = hasVariable(pid, named[1])
			}
			switch {
			case set:
				with++
			case known:
				without++
			}
		}
		var parts []string
		for _, part := range []struct {
			n    int
			what string
		}{{with, "started with it"}, {without, "without it"}, {len(processes) - with - without,
			"not known, because the environment was overwritten or cannot be read"}} {
			switch {
			case part.n == 1:
				parts = append(parts, part.what+": 1 process")
			case part.n > 1:
				parts = append(parts, fmt.Sprintf("%s: %d processes", part.what, part.n))
			}
		}
		hints[i] += " (" + strings.Join(parts, "; ") + ")"
	}
	return hints
}

// numbersOf reports in which processes a number of the program, of one byte or
// more, is not 0: those that have it, and whose memory can be read.
func numbersOf(processes map[int]proc.Process, symbol string) map[int]bool {
	if symbol == "" {
		return nil
	}
	found := make(map[int]bool)
	every := elfnote.MustParsePattern("*")
	eachPair(func(p proc.Process) bool { _, is := processes[p.PID]; return is },
		func(pair *procwatch.ProcessFile) {
			file := pair.ELF()
			number, err := file.Symbol(symbol)
			if err != nil || number.Size == 0 || number.Size > 8 {
				return
			}
			sel, err := usdt.Select(usdt.Target{ELF: file}, every)
			if err != nil {
				return
			}
			defer sel.Close()
			pid, bytes := pair.Process.PID, make([]byte, number.Size)
			site := &sel.Sites()[0] // there is one, or Select fails
			if at, there := addressOf(pair, site, number.Value); there && readMemory(pid, at, bytes) {
				found[pid] = slices.Max(bytes) != 0
			}
		}, every)
	return found
}

// hasVariable reports whether a process was started with NAME=VALUE in its
// environment. That is not known of a program that has put a title there.
func hasVariable(pid int, variable string) (set, known bool) {
	var all []byte
	var err error
	if !deadline.One(context.Background(), memoryPatience, func() {
		all, err = os.ReadFile(procfs.Path("/proc", pid, "environ"))
	}, nil) || err != nil {
		return false, false
	}
	for _, entry := range strings.Split(string(all), "\x00") {
		set = set || entry == variable
	}
	first, _, _ := strings.Cut(string(all), "\x00")
	return set, set || len(all) == 0 || strings.Contains(first, "=")
}

// wanted returns the filter for the processes that are watched, nil for all.
func (t *tracer) wanted() func(proc.Process) bool {
	if t.options.pid == 0 {
		return nil
	}
	return filterOf(t.options.pid, t.options.follow)
}

// whyUnseen returns why a process that maps a file reaches none of the
// breakpoints of a pattern's probes, "" if nothing speaks against it, and
// whether the file has such probes.
func whyUnseen(pair *procwatch.ProcessFile, pattern elfnote.Pattern) (why string, matches bool) {
	sel, err := usdt.Select(usdt.Target{ELF: pair.ELF()}, pattern)
	if err != nil {
		return "", !isNothing(err)
	}
	defer sel.Close()
	if executable, _ := pair.Process.Executable(); isEmulator(executable) {
		return translatedCode, true
	}
	for _, site := range sel.Sites() {
		at := whyUnseenAt(pair, &site)
		if at == "" {
			return "", true
		}
		why = at
	}
	return why, true
}

func whyUnseenAt(pair *procwatch.ProcessFile, site *usdt.Site) string {
	why := movedCode
	for _, m := range pair.Mappings {
		switch _, there := m.Address(site.Offset); {
		case there && procwatch.TakesHits(m):
			return ""
		case there:
			why = writableCode
		}
	}
	return why
}

// silence is a process and the index of a pattern.
type silence struct{ pid, pattern int }

// clearedSemaphores returns which processes have a semaphore of 0 at each site
// of a pattern. It is asked before anything is detached.
func (t *tracer) clearedSemaphores() map[silence]bool {
	cleared := make(map[silence]bool)
	for i, pattern := range t.options.patterns {
		eachPair(t.wanted(), func(pair *procwatch.ProcessFile) {
			sel, err := usdt.Select(usdt.Target{ELF: pair.ELF()}, pattern)
			if err != nil {
				return
			}
			defer sel.Close()
			for _, site := range sel.Sites() {
				if !isCleared(pair, &site) {
					return
				}
			}
			cleared[silence{pair.Process.PID, i}] = true
		}, pattern)
	}
	return cleared
}

func isCleared(pair *procwatch.ProcessFile, site *usdt.Site) bool {
	if site.Semaphore == 0 {
		return false
	}
	var semaphore [2]byte
	at, there := addressOf(pair, site, site.Semaphore)
	return there && readMemory(pair.Process.PID, at, semaphore[:]) && semaphore == [2]byte{}
}

// addressOf returns where a process has what the file has at a location: as far
// from a site as when it was linked.
func addressOf(pair *procwatch.ProcessFile, site *usdt.Site, location uint64) (at uint64, there bool) {
	for _, m := range pair.Mappings {
		if at, there := m.Address(site.Offset); there {
			return at + location - site.Location, true
		}
	}
	return 0, false
}

// hasHits reports whether a probe has fired so far, if only for hits or calls
// that are not wanted, such as those that were not --slow.
func (t *tracer) hasHits() bool {
	if stats, err := t.session.Stats(); t.hit.Load() || err != nil || stats.Filtered {
		return true
	}
	for _, a := range t.asked {
		if a.inKernel == nil {
			continue
		}
		if snapshot, err := t.session.Snapshot(a.inKernel); err != nil || len(rowsOf(snapshot)) > 0 {
			return true
		}
	}
	return false
}

// memoryPatience is how long the memory of a process may take to be read: it
// may be of a file whose server has stopped.
const memoryPatience = 200 * time.Millisecond

func readMemory(pid int, address uint64, to []byte) bool {
	into := slices.Clone(to) // what is read too late goes nowhere
	var err error
	if !deadline.One(context.Background(), memoryPatience, func() {
		var memory *os.File
		if memory, err = os.Open(procfs.Path("/proc", pid, "mem")); err == nil {
			defer memory.Close()
			_, err = memory.ReadAt(into, int64(address))
		}
	}, nil) || err != nil {
		return false
	}
	copy(to, into)
	return true
}

// trapped is the hint about a process that SIGTRAP has ended.
const trapped = ": if it does not end like that untraced, it copies its code together with " +
	"the breakpoints (see " + manual + "troubleshooting.md#sigtrap)"

// warnTraps reports watched processes that SIGTRAP ends, until the tracing
// ends. Without privilege only the command's own end is reported.
func (t *tracer) warnTraps() {
	_ = watchTraps(t.ctx, func(pid int, name string) {
		switch o := t.options; {
		case t.command != nil && pid == t.command.pid:
			return // runCommand says so
		case t.command != nil && !t.latecomers.hasMapped(pid):
			return
		case o.pid != 0 && !o.follow && pid != o.pid:
			return
		case o.follow && len(o.files) == 0 && !t.latecomers.isOfFamily(pid):
			return
		case len(o.files) > 0 && pid != o.pid && !mayRun(name, t.targets.baseNames()):
			return
		}
		if name == "" && len(t.options.files) > 0 {
			t.messages.WarnOf("nameless processes ended by SIGTRAP", "process %d ended by SIGTRAP, and "+
				"was gone before its name was read: whether it ran what is watched is not known%s",
				pid, trapped)
			return
		}
		name = cmp.Or(name, "gone before its name was read")
		t.messages.WarnOf("processes ended by SIGTRAP", "process %d (%s) ended by SIGTRAP%s", pid, name,
			trapped)
	})
}

// mayRun reports whether a process that has ended may have run one of some
// files, by its name: what it had mapped is gone. A library can be in any, and
// a process whose name is unknown may have run any.
func mayRun(command string, files map[string]bool) bool {
	for file := range files {
		if strings.HasPrefix(file, command) || strings.HasPrefix(command, file) ||
			strings.Contains(file, ".so") {
			return true
		}
	}
	return false
}

// whyCommandSilent is whySilent for a command, which has ended: the kernel's
// records say what it has mapped.
func (t *tracer) whyCommandSilent(pattern int) string {
	l := t.latecomers
	if l == nil {
		return "no hit came, and it is unknown whether the command ran a file that contains it"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.code.emulated:
		return "the command " + translatedCode
	case l.code.moved[pattern]:
		return "the command " + movedCode
	case len(l.late) > 0:
		return "no hit was seen, but a file was attached late: hits may have been missed"
	case l.lost:
		return "no hit came, and it is unknown whether the command ran a file that contains it: " +
			"the kernel has lost records of mappings"
	case l.code.unfit[pattern] && !l.code.runs[pattern]:
		return "the command " + writableCode
	case !l.code.runs[pattern]:
		return "the command executed no file that contains it (in an emulator, the emulator is " +
			"what is executed)"
	}
	return "the command ran a file that contains it, but it did not fire"
}

// notInMemory is why something could not be read, mostly.
const notInMemory = "its page was not in the program's memory, as for a string that the program has " +
	"not used yet (see " + manual + "troubleshooting.md#unreadable-values)"

// isUnreadable reports whether an argument, or what it points to, could not be
// read. Nothing is in the first page, where a member behind a null pointer is.
func isUnreadable(v trace.Value) bool {
	data, complete := v.Data()
	return v.Kind() == trace.Unreadable ||
		v.IsPresent() && data == nil && !complete && uint64(v.Int()) >= 4096
}

// eachMapped calls do with each file that a wanted process, or any if wanted is
// nil, maps in any way, and whose name is that of a file that is or was
// watched. It waits for no process that does not answer.
func (t *tracer) eachMapped(
	wanted func(proc.Process) bool, do func(proc.Process, *procfs.MappedFile),
) {
	names := t.targets.baseNames()
	fs := procfs.FS("")
	pids, err := fs.PIDs()
	if err != nil {
		return
	}
	type found struct {
		process proc.Process
		files   []*procfs.MappedFile
	}
	answers := make([]*found, len(pids)) // each is set by a call that has returned
	left := make(map[int]bool)
	calls := deadline.Calls{
		N: len(pids), Patience: memoryPatience,
		Call: func(i int) {
			process, err := proc.Find("", pids[i])
			if err != nil || wanted != nil && !wanted(process) {
				return
			}
			files, _ := procfs.AllFiles(fs, pids[i])
			files = slices.DeleteFunc(files, func(file *procfs.MappedFile) bool {
				return !names[filepath.Base(file.Path)]
			})
			for _, file := range files {
				_, _ = file.Identify() // kept for do
			}
			answers[i] = &found{process, files}
		},
		Left: func(i int) { left[i] = true },
	}
	for i := range calls.Make(context.Background()) {
		if left[i] || answers[i] == nil {
			continue
		}
		for _, file := range answers[i].files {
			do(answers[i].process, file)
		}
	}
}

// otherFiles says which processes run another file of the name of a FILE, or of
// the same path: the program was built anew, upgraded or copied up, or is that
// of a container.
func (t *tracer) otherFiles(samePath bool) (lines []string) {
	const most = 3
	t.targets.mu.Lock()
	selections := slices.Clone(t.targets.selections)
	t.targets.mu.Unlock()
	for _, sel := range selections {
		var running []string
		path, of := canonical(sel.Name()), "path"
		if !samePath {
			of = "name"
		}
		seen, first, elsewhere := make(map[int]bool), 0, false
		t.eachMapped(t.wanted(), func(p proc.Process, file *procfs.MappedFile) {
			id, err := file.Identify()
			if err != nil || seen[p.PID] || t.targets.nameOf(id.FileID) != "" ||
				filepath.Base(file.Path) != filepath.Base(path) || samePath && file.Path != path ||
				!slices.ContainsFunc(file.Mappings, func(m procfs.Mapping) bool { return !m.Data }) {
				return
			}
			seen[p.PID] = true
			what := file.Path
			if file.Deleted {
				what += " (deleted)"
			} else if hasOwnRoot(p.PID) {
				what, elsewhere = procfs.Path("/proc", p.PID, "root"+file.Path), true
			}
			at := len(running)
			if file.Path == path { // before those that only have its name
				at, first = first, first+1
			}
			running = slices.Insert(running, at, fmt.Sprintf("process %s runs another file of that %s: %s",
				p, of, what))
		})
		for _, text := range running[:min(len(running), most)] {
			lines = append(lines, fmt.Sprintf("%s: %s", sel.Name(), text))
		}
		if more := len(running) - most; more > 0 {
			lines = append(lines, fmt.Sprintf("%s: so do %d more", sel.Name(), more))
		}
		if elsewhere {
			lines = append(lines, sel.Name()+": a container has files of its own: "+
				"name the path below /proc, or use -p or -a")
		}
	}
	return lines
}

// hasOwnRoot reports whether a process is known to have another root directory.
func hasOwnRoot(pid int) bool {
	its, err := os.Stat(procfs.Path("/proc", pid, "root/"))
	ours, failed := os.Stat("/")
	return err == nil && failed == nil && !os.SameFile(its, ours)
}

// eachPair calls do with each file with probes that match, and each of the
// wanted processes, or of all if wanted is nil, that map it. The file is open
// until do returns. What cannot be read is left out.
func eachPair(
	wanted func(proc.Process) bool, do func(*procwatch.ProcessFile), patterns ...elfnote.Pattern,
) {
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: wanted}, patterns...)
	defer watcher.Close()
	_ = watcher.Sync(context.Background(), 0) // there are none if processes cannot be listed
	for _, pair := range watcher.ProcessFiles() {
		do(pair)
	}
}

// relatives says which descendants of the process of -p have matching probes,
// "" if none. They are not watched without -f.
func (t *tracer) relatives() string {
	o := t.options
	if o.pid == 0 || o.follow {
		return ""
	}
	found, path := make(map[int]bool), ""
	eachPair(filterOf(o.pid, true), func(pair *procwatch.ProcessFile) {
		if pair.Process.PID != o.pid {
			found[pair.Process.PID] = true
			path = pair.Path
		}
	}, o.patterns...)
	verb := "map"
	if len(found) == 0 {
		return ""
	} else if len(found) == 1 {
		verb = "maps"
	}
	return fmt.Sprintf("%s of it %s %s, which has matching probes: watch them, too, with -f",
		plural(len(found), "descendant"), verb, path)
}
