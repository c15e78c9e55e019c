// SPDX-License-Identifier: BSD-2-Clause

package main

import (
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
	width   int            // of the longest probe's name, see maxProbeWidth
	never   error          // the last *trace.FilteredError
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

// attached remembers what has been attached.
func (t *targets) attached(a *trace.Attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, site := range a.Sites() {
		t.most = max(t.most, len(site.Args))
		if at := (place{site.File, site.Location}); !t.sites[at] {
			t.sites[at] = true
			if n := terminal.Columns(terminal.Escape(probeName(site))); n <= maxProbeWidth {
				t.width = max(t.width, n)
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

// setLate remembers a file that could not be attached to because the process
// ended before.
func (t *targets) setLate(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = path
}

func (t *targets) setNever(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.never = err
}

// maxProbeWidth keeps one long name from pushing the arguments of all others to
// the right.
const maxProbeWidth = 40

// probeWidth returns how wide the column of probes is to be.
func (t *targets) probeWidth() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.width
}
