// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// whyNothing says why nothing came, a line for each reason.
func (t *tracer) whyNothing(l *trace.Losses) (lines []string) {
	o := t.options
	switch {
	case l.Filtered && o.slow != nil && o.where == "":
		return []string{fmt.Sprintf("there were calls, but none was as long as --slow %v", *o.slow)}
	case l.Filtered && o.slow != nil:
		return []string{fmt.Sprintf("there were calls, but none for which --where holds was as long as --slow %v", *o.slow)}
	case l.Filtered:
		return []string{"probes were passed, but --where holds for no hit"}
	case l.Events+l.Unreadable+l.Starts+l.NotSampled+l.Replaced+l.Unfinished+l.Unmatched > 0:
		return nil // the summary says what came of the hits
	}
	reasons := make(map[string][]string)
	var order []string
	for i, n := range t.processesWith() {
		reason := t.whySilent(n)
		if reasons[reason] == nil {
			order = append(order, reason)
		}
		reasons[reason] = append(reasons[reason], o.patterns[i].String())
	}
	for _, reason := range order {
		names := reasons[reason]
		if more := len(names) - maxSilent; more > 0 {
			names = append(names[:maxSilent:maxSilent], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+reason)
	}
	t.targets.mu.Lock()
	defer t.targets.mu.Unlock()
	return append(lines, t.targets.fires...)
}

// maxSilent is how many patterns are named at most for one reason.
const maxSilent = 4

// noProbe is what processesWith returns for a pattern that no file matches.
const noProbe = -1

// whySilent says why probes that this many processes have were not passed.
func (t *tracer) whySilent(processes int) string {
	switch {
	case processes == noProbe:
		return "no process has such a probe"
	case t.command != nil:
		return "the command has run what has it, and did not pass it"
	case processes == 0:
		return "no process runs what has it"
	case processes == 1:
		return "1 process has it, and did not pass it"
	}
	return fmt.Sprintf("%d processes have it, and none passed it", processes)
}

// processesWith returns for each pattern how many of the processes that are
// watched map a file with a matching probe now.
func (t *tracer) processesWith() []int {
	o := t.options
	counts := make([]int, len(o.patterns))
	t.targets.mu.Lock()
	matched := slices.Clone(t.targets.matched)
	t.targets.mu.Unlock()
	wanted := func(p proc.Process) bool { return o.pid == 0 || p.PID == o.pid }
	if o.follow {
		wanted = familyOf(o.pid)
	}
	for i, p := range o.patterns {
		if !matched[i] {
			counts[i] = noProbe
			continue
		}
		if t.command != nil {
			continue // it has ended
		}
		found := make(map[int]bool)
		for _, pair := range mapping(wanted, p) {
			if _, named := t.targets.names[pair.File.ID()]; named || len(o.files) == 0 {
				found[pair.Process.PID] = true
			}
		}
		counts[i] = len(found)
	}
	return counts
}

// nothing says that no probe matches any of the patterns.
func (t *targets) nothing(patterns []elfnote.Pattern, where string) error {
	var texts []string
	for _, p := range patterns {
		texts = append(texts, p.String())
	}
	text := "no probe matches " + strings.Join(texts, " or ")
	if t.options.everyProbe {
		text = "no probes"
	}
	if where != "" {
		text += " in " + where
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.nearest) > 0 {
		text += " (nearest: " + strings.Join(t.nearest, ", ") + ")"
	}
	return errors.New(text)
}

// maxNearest is how many names are suggested.
const maxNearest = 3

// near keeps the names of probes that an error gives as spelled most like the
// patterns.
func (t *targets) near(err error) {
	var notFound *usdt.NotFoundError
	if !errors.As(err, &notFound) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, probe := range notFound.Nearest {
		if len(t.nearest) < maxNearest && !slices.Contains(t.nearest, probe) {
			t.nearest = append(t.nearest, probe)
		}
	}
}

// addNearest keeps the names of a file's probes that are spelled most like the
// patterns, if none matches.
func (t *targets) addNearest(file *elfnote.File, patterns []elfnote.Pattern) {
	sel, err := usdt.Select(usdt.Target{ELF: file}, patterns...)
	if err == nil {
		sel.Close()
	}
	t.near(err)
}

// addNearest keeps the names of probes that nearly match in the files of a
// process.
func (t *tracer) addNearest(pid int) {
	deadline.One(t.ctx, nearestPatience, func() {
		cache := procwatch.NewCache()
		files, _ := procwatch.Files(proc.NewFS(""), pid) // what cannot be read has no names to offer
		for _, m := range files {
			if file, ok, err := cache.Acquire(m); err == nil && ok {
				t.targets.addNearest(file.ELF(), t.options.patterns)
				file.Release()
			}
		}
	}, nil)
}

// nearestPatience is how long the files of a process may have one wait.
const nearestPatience = 500 * time.Millisecond

func (t *tracer) warnUnmatched() {
	for _, p := range t.targets.unmatched() {
		t.messages.Warn("no probe matches %s", p)
	}
}

// maxFires is how many hints are kept about when probes fire.
const maxFires = 4

// addFires keeps when a probe fires, if that is not always.
func (t *targets) addFires(site *trace.Site) {
	if t.definitions == nil || len(t.fires) == maxFires {
		return
	}
	if text := t.definitions.Fires(site.Provider, site.Name); text != "" {
		hint := terminal.Escape(probeName(site)) + " fires " + text
		if !slices.ContainsFunc(t.fires,
			func(s string) bool { return strings.HasSuffix(s, " fires "+text) }) {
			t.fires = append(t.fires, hint)
		}
	}
}

// mapping returns which of the wanted processes map which files with probes
// that match. What cannot be read is left out.
func mapping(wanted func(proc.Process) bool, patterns ...elfnote.Pattern) []*procwatch.ProcessFile {
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: wanted}, patterns...)
	defer watcher.Close()
	_ = watcher.SyncAll() // there are none if processes cannot be listed
	return watcher.ProcessFiles()
}

// relatives returns how many descendants of the process of -p map files with
// matching probes, and the path of one of the files. They are not watched
// without -f.
func (t *tracer) relatives() (n int, path string) {
	o := t.options
	if o.pid == 0 || o.follow {
		return 0, ""
	}
	isDescendant := familyOf(o.pid)
	found := make(map[int]bool)
	others := func(p proc.Process) bool { return isDescendant(p) && p.PID != o.pid }
	for _, pair := range mapping(others, o.patterns...) {
		found[pair.Process.PID] = true
		path = pair.Path
	}
	return len(found), path
}

// noteRelatives says that descendants are not watched.
func (t *tracer) noteRelatives() {
	if n, path := t.relatives(); n > 0 {
		t.messages.Note("not watched: %s of process %d that %s %s, which has matching probes (-f watches them, too)",
			descendants(n), t.options.pid, mapsVerb(n), path)
	}
}

// withRelatives adds to what says that a process has no matching probe that
// descendants have.
func (t *tracer) withRelatives(err error) error {
	if n, path := t.relatives(); n > 0 {
		return fmt.Errorf("%w; %s of it %s %s, which has matching probes: watch them, too, with -f",
			err, descendants(n), mapsVerb(n), path)
	}
	return err
}

// warnRelatives says so where nothing was hit.
func (t *tracer) warnRelatives() {
	if n, path := t.relatives(); n > 0 {
		t.messages.Warn("process %d hit nothing; %s of it %s %s, which has matching probes: watch them, too, with -f",
			t.options.pid, descendants(n), mapsVerb(n), path)
	}
}

func descendants(n int) string { return plural(n, "descendant") }

func mapsVerb(n int) string {
	if n == 1 {
		return "maps"
	}
	return "map"
}
