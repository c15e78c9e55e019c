// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// nothing says that no probe matches any of the patterns.
func (t *targets) nothing(patterns []elfnote.Pattern, where string) error {
	var texts []string
	for _, p := range patterns {
		texts = append(texts, p.String())
	}
	text := "no probe matches " + strings.Join(texts, " or ")
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

// addNearest remembers the probes of a file that are spelled most like the
// patterns, as far as these match none.
func (t *targets) addNearest(target usdt.Target, patterns []elfnote.Pattern) {
	for _, p := range patterns { // one by one, for others may match
		var notFound *usdt.NotFoundError
		sel, err := usdt.Select(target, nil, p)
		if err == nil {
			sel.Close()
		}
		if !errors.As(err, &notFound) {
			continue
		}
		t.mu.Lock()
		for _, probe := range notFound.Nearest {
			if len(t.nearest) < maxNearest && !slices.Contains(t.nearest, probe) {
				t.nearest = append(t.nearest, probe)
			}
		}
		t.mu.Unlock()
	}
}

// addNearest looks in the files of a process for probes that nearly match.
func (t *tracer) addNearest(pid int) {
	cache := proc.NewCache(nil)
	files, _ := proc.NewFS("").Files(pid) // what cannot be read has no names to offer
	for _, m := range files {
		if file, ok, err := cache.Acquire(m); err == nil && ok {
			t.targets.addNearest(usdt.Target{ELF: file.ELF()}, t.options.patterns)
			file.Release()
		}
	}
}

// warnSkipped names the places that match but are not watched.
func (t *tracer) warnSkipped(a *trace.Attachment, file string) {
	for _, note := range a.Malformed() {
		t.messages.WarnOf("skipped notes", "%s: skipped %v", file, note)
	}
	skipped := a.Skipped()
	for _, site := range skipped {
		t.messages.WarnOf("skipped sites", "%s: skipped probe %s:%s at %#x: %v",
			file, site.Provider, site.Name, site.Location, site.Err)
	}
	t.messages.More("skipped sites", a.SkippedCount()-len(skipped))
}

func (t *tracer) warnUnmatched() {
	for _, p := range t.targets.unmatched() {
		t.messages.Warn("no probe matches %s", p)
	}
}
