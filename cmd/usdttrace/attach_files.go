// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// targets are the files named on the command line, and what is known of all
// files that are watched.
type targets struct {
	options    *options
	selections []*usdt.Selection

	mu      sync.Mutex
	matched []bool         // which patterns have picked a site
	sites   map[place]bool // that are or were watched
	probes  []string       // PROVIDER:NAME, in order of appearance
	never   error          // the last *trace.NeverError
	late    string         // a file whose process ended before it was attached to
	nearest []string       // probes that nearly match
	most    int            // arguments of a site
	without []error        // files that are named but have none of the probes
}

// place is a site. A file that is attached for several processes has it once.
type place struct {
	file     string
	location uint64
}

func newTargets(o *options) *targets {
	return &targets{
		options: o, matched: make([]bool, len(o.patterns)),
		sites: make(map[place]bool),
	}
}

func (t *targets) close() {
	for _, sel := range t.selections {
		sel.Close()
	}
}

// match tells whether a probe is to be watched.
func (t *targets) match(provider, name string) bool {
	return slices.ContainsFunc(t.options.patterns, func(p elfnote.Pattern) bool { return p.Match(provider, name) })
}

// find finds the sites in the files, without privileges. A file without any is
// passed over if others have some.
func (t *targets) find(files []string, pid int) error {
	var missing error
	for _, name := range files {
		target := usdt.Target{Path: name, PID: pid}
		sel, err := usdt.SelectMatching(target, t.match)
		switch {
		case isNothing(err):
			err = t.noMatch(target, err)
			missing = errors.Join(missing, err)
			t.without = append(t.without, err)
		case err != nil && isMistaken(name):
			return fmt.Errorf("%w: %s was taken for a file, a probe is written PROVIDER:NAME, as '*:%s'", err, name, name)
		case err != nil:
			return err
		default:
			t.selections = append(t.selections, sel)
		}
	}
	switch {
	case len(t.selections) > 0:
		return t.checkLatency()
	case missing != nil:
		return &nothingError{missing}
	}
	return nil
}

// checkLatency tells whether the files have both ends of a latency.
func (t *targets) checkLatency() error {
	var missing []elfnote.Pattern
	for _, end := range t.options.ends() {
		has := func(s usdt.Site) bool { return end.Match(s.Provider, s.Name) }
		if !slices.ContainsFunc(t.selections, func(sel *usdt.Selection) bool { return slices.ContainsFunc(sel.Sites(), has) }) {
			missing = append(missing, end)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var where []string
	for _, sel := range t.selections {
		where = append(where, sel.File().Name())
		t.addNearest(usdt.Target{ELF: sel.File()}, missing)
	}
	return &nothingError{t.nothing(missing, strings.Join(where, " or "))}
}

// isNothing tells whether an error says that a file has none of the probes.
func isNothing(err error) bool {
	var notFound *usdt.NotFoundError
	return errors.Is(err, usdt.ErrNoProbes) || errors.As(err, &notFound)
}

// noMatch says that no probe of a file matches, and which ones nearly do.
func (t *targets) noMatch(target usdt.Target, err error) error {
	if errors.Is(err, usdt.ErrNoProbes) {
		return err
	}
	t.addNearest(target, t.options.patterns)
	file := target.Path
	if target.ELF != nil {
		file = target.ELF.Name()
	}
	return fmt.Errorf("%s: %w", file, t.nothing(t.options.patterns, ""))
}

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
	for _, p := range patterns {
		var notFound *usdt.NotFoundError
		sel, err := usdt.SelectPattern(target, p)
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

// attached remembers what has been attached.
func (t *targets) attached(a *trace.Attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, site := range a.Sites() {
		t.most = max(t.most, len(site.Args))
		if at := (place{site.File, site.Location}); !t.sites[at] {
			t.sites[at] = true
			if probe := site.Probe.String(); !slices.Contains(t.probes, probe) {
				t.probes = append(t.probes, probe)
			}
		}
		for i, p := range t.options.patterns {
			t.matched[i] = t.matched[i] || p.Match(site.Provider, site.Name)
		}
	}
}

// watched returns how many sites are or were watched, and in how many files.
func (t *targets) watched() (sites, files int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	each := make(map[string]bool)
	for at := range t.sites {
		each[at.file] = true
	}
	return len(t.sites), len(each)
}

// mostArguments returns how many arguments the site has that has most.
func (t *targets) mostArguments() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.most
}

// unmatched returns the patterns that have picked nothing.
func (t *targets) unmatched() []elfnote.Pattern {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none []elfnote.Pattern
	for i, p := range t.options.patterns {
		if !t.matched[i] {
			none = append(none, p)
		}
	}
	return none
}

// unmatchedEnds returns the ends of a latency that have picked nothing.
func (t *targets) unmatchedEnds() []elfnote.Pattern {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none []elfnote.Pattern
	for i, p := range t.options.ends() {
		if !t.matched[i] {
			none = append(none, p)
		}
	}
	return none
}

// attachFiles attaches to the files of the command line.
func (t *tracer) attachFiles() error {
	if err := t.checkArguments(); err != nil {
		return err
	}
	for _, sel := range t.targets.selections {
		done := t.messages.during("attaching to %s of %s", plural(sel.Len(), "site"), sel.File().Name())
		a, err := t.session.AttachSelection(sel, nil)
		done()
		if err != nil {
			return err
		}
		t.targets.attached(a)
		t.warnSkipped(a, sel.File().Name())
		if t.ctx.Err() != nil {
			return errEnded
		}
	}
	if missing := t.targets.unmatchedEnds(); len(missing) > 0 { // they have sites, see checkLatency
		return fmt.Errorf("--latency: no site of %s has the arguments that are named", missing[0])
	}
	for _, err := range t.targets.without {
		t.messages.warn("%v", err)
	}
	t.warnUnmatched()
	return nil
}

// maxSkipped is how many sites of a file that cannot be watched are named: a
// stranger's may have very many.
const maxSkipped = 16

// warnSkipped names the places that match but are not watched.
func (t *tracer) warnSkipped(a *trace.Attachment, file string) {
	lnk := a.Links()[0] // as any of them
	for _, note := range lnk.Malformed() {
		t.messages.warn("%s: skipped %v", file, note)
	}
	for i, site := range lnk.Skipped() {
		if i == maxSkipped {
			t.messages.warn("%s: skipped %s", file, plural(lnk.SkippedCount()-i, "more site"))
			break
		}
		t.messages.warn("%s: skipped probe %s:%s at %#x: %v", file, site.Provider, site.Name, site.Location, site.Err)
	}
}

func (t *tracer) warnUnmatched() {
	for _, p := range t.targets.unmatched() {
		t.messages.warn("no probe matches %s", p)
	}
}

// maxProbeWidth keeps one long name from pushing the arguments of all others to
// the right.
const maxProbeWidth = 40

// probeWidth returns how wide the column of probes is to be.
func (t *targets) probeWidth() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	width := len("PROBE")
	for _, probe := range t.probes {
		if n := terminal.Columns(terminal.Escape(probe)); n <= maxProbeWidth {
			width = max(width, n)
		}
	}
	return width
}
