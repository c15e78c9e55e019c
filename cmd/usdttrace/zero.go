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
	"github.com/gousdt/gousdt/internal/suggest"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// whyNothing says why nothing came, a line for each reason.
func (t *tracer) whyNothing(l *losses) (lines []string) {
	o := t.options
	t.targets.mu.Lock()
	fires := slices.Clone(t.targets.fires)
	t.targets.mu.Unlock()
	for _, pair := range o.pairs() { // nobody is told to take what was asked for
		fires = slices.DeleteFunc(fires, func(hint string) bool {
			_, when, _ := strings.Cut(hint, " fires ")
			return strings.Contains(when, pair.String())
		})
	}
	var starts []string
	if l.Unmatched > 0 {
		starts = fires // perhaps of the start that is missing
	}
	switch {
	case len(t.going) > 0:
		return nil // these calls are printed
	case l.filtered && o.slow != nil:
		calls := "of the calls that began and ended meanwhile, "
		if o.where != "" {
			calls += "and for which --where holds, "
		}
		return []string{fmt.Sprintf("%snone was as long as --slow %v", calls, *o.slow),
			"calls that had begun before are not seen"}
	case l.filtered:
		return append(starts, "probes were passed, but --where holds for no hit")
	case l.Unmatched > 0:
		return starts
	case l.Events+l.Unreadable+l.Starts+l.NotSampled+l.Replaced+l.Unfinished > 0:
		return nil // the summary says what came of the hits
	}
	var reasons []string
	patterns := make(map[string][]string) // by the reason
	for i, p := range o.patterns {
		reason := t.whySilent(i)
		if patterns[reason] == nil {
			reasons = append(reasons, reason)
		}
		if name := t.typed(p); !slices.Contains(patterns[reason], name) {
			patterns[reason] = append(patterns[reason], name)
		}
	}
	for _, reason := range reasons {
		names := patterns[reason]
		if more := len(names) - maxSilent; more > 0 {
			names = append(names[:maxSilent:maxSilent], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+reason)
	}
	return append(lines, fires...)
}

// typed returns the pair that a pattern is of, or the pattern.
func (t *tracer) typed(p elfnote.Pattern) string {
	for _, pair := range t.options.pairs() {
		if slices.ContainsFunc(t.targets.definitions.Patterns(pair),
			func(of elfnote.Pattern) bool { return of.String() == p.String() }) {
			return pair.String()
		}
	}
	return p.String()
}

// maxSilent is how many patterns are named at most for one reason.
const maxSilent = 4

// whySilent says why no probe that matches a pattern was passed: how many of
// the processes that are watched map a file with one now.
func (t *tracer) whySilent(pattern int) string {
	o := t.options
	t.targets.mu.Lock()
	matched := t.targets.matched[pattern]
	t.targets.mu.Unlock()
	switch {
	case !matched:
		return "no process has such a probe"
	case t.command != nil:
		return "the command has run what has it, and did not pass it"
	}
	wanted := func(p proc.Process) bool { return o.pid == 0 || p.PID == o.pid }
	if o.follow {
		wanted = familyOf(o.pid)
	}
	found := make(map[int]bool)
	for _, pair := range mapping(wanted, o.patterns[pattern]) {
		if _, named := t.targets.names[pair.File.ID()]; named || len(o.files) == 0 {
			found[pair.Process.PID] = true
		}
	}
	switch len(found) {
	case 0:
		return "no process runs what has it"
	case 1:
		return "1 process has it, and did not pass it"
	}
	return fmt.Sprintf("%d processes have it, and none passed it", len(found))
}

// nothing says that no probe matches any of the patterns.
func (t *targets) nothing(patterns []elfnote.Pattern, where string) error {
	if t.options.everyProbe {
		return errors.New("no probes in " + where)
	}
	var texts []string
	for _, p := range patterns {
		texts = append(texts, p.String())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.New(suggest.NoMatch(strings.Join(texts, " or "), where, t.nearest))
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

// nearestPatience and allPatience are how long the files of a process, and of
// all, may have one wait.
const (
	nearestPatience = 500 * time.Millisecond
	allPatience     = 3 * time.Second
)

// addNearest keeps the names of probes that nearly match in the files of a
// process, or of all if pid is 0. What cannot be read has no names to offer.
func (t *tracer) addNearest(pid int) {
	patience := allPatience
	var wanted func(proc.Process) bool
	if pid != 0 {
		patience, wanted = nearestPatience, func(p proc.Process) bool { return p.PID == pid }
	}
	deadline.One(t.ctx, patience, func() {
		watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: wanted})
		defer watcher.Close()
		_ = watcher.SyncAll()
		seen := make(map[procwatch.FileID]bool)
		for _, pair := range watcher.ProcessFiles() {
			if id := pair.File.ID(); !seen[id] {
				seen[id] = true
				t.targets.addNearest(pair.File.ELF(), t.options.patterns)
			}
		}
	}, nil)
}

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
	if _, text := t.definitions.Fires(site.Provider, site.Name); text != "" {
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

// relatives says which descendants of the process of -p have matching probes,
// "" if none. They are not watched without -f.
func (t *tracer) relatives() string {
	o := t.options
	if o.pid == 0 || o.follow {
		return ""
	}
	isDescendant := familyOf(o.pid)
	found, path := make(map[int]bool), ""
	for _, pair := range mapping(isDescendant, o.patterns...) {
		if pair.Process.PID != o.pid {
			found[pair.Process.PID] = true
			path = pair.Path
		}
	}
	verb := "map"
	switch len(found) {
	case 0:
		return ""
	case 1:
		verb = "maps"
	}
	return fmt.Sprintf("%s of it %s %s, which has matching probes: watch them, too, with -f",
		plural(len(found), "descendant"), verb, path)
}
