// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/abandon"
	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

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
	sel, err := usdt.Select(usdt.Target{ELF: file}, nil, patterns...)
	if err == nil {
		sel.Close()
	}
	t.near(err)
}

// addNearest keeps the names of probes that nearly match in the files of a
// process.
func (t *tracer) addNearest(pid int) {
	abandon.One(t.ctx, nearestPatience, func() {
		cache := proc.NewCache(nil)
		files, _ := proc.NewFS("").Files(pid) // what cannot be read has no names to offer
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

// warnSkipped names the sites of a file that match but are not watched.
func (t *tracer) warnSkipped(a interface {
	Skipped() ([]*usdt.SiteError, int)
}, file string) {
	skipped, count := a.Skipped()
	for _, site := range skipped {
		var note *elfnote.NoteError
		if errors.As(site.Err, &note) { // which names the probe
			t.messages.WarnOf("skipped sites", "%s: skipped %v", file, note)
			continue
		}
		t.messages.WarnOf("skipped sites", "%s: skipped probe %s:%s at %#x: %v",
			file, site.Provider, site.Name, site.Location, site.Err)
	}
	t.messages.More("skipped sites", count-len(skipped))
}

func (t *tracer) warnUnmatched() {
	for _, p := range t.targets.unmatched() {
		t.messages.Warn("no probe matches %s", p)
	}
}

// warnLeftOut says what could not be read of a process. That is an error if the
// process was asked for: among all processes some can never be read. What has
// changed while it was read is read again: among all processes some have always
// just begun, or are about to end.
func (t *tracer) warnLeftOut(err error, isAskedFor bool) {
	switch {
	case isAskedFor:
		t.warnFailed(err)
	case !errors.Is(err, proc.ErrChanged):
		t.messages.WarnOf("left out: "+messages.Cause(err), "left out: %v", err)
	}
}

// matchingFiles returns the paths of files that a process maps and that have
// matching probes, as the process sees them.
func (t *targets) matchingFiles(pid int) (paths []string) {
	watcher := proc.NewWatcher(&proc.WatcherOptions{Handler: func(changes *proc.Changes) {
		for _, pair := range changes.Appeared {
			paths = append(paths, pair.Path)
		}
	}}, t.options.patterns...)
	defer watcher.Close()
	_ = watcher.Sync(pid) // what cannot be read has no names to offer
	return paths
}
