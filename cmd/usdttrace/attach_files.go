// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/usdt"
)

// find selects the sites in the files, which takes no privileges. A file
// without any is no error if another has some.
func (t *targets) find(files []string, pid int) error {
	var missing error
	for _, name := range files {
		target := usdt.Target{Path: name, PID: pid}
		if pid == 0 && !strings.Contains(name, "/") && commandline.IsFileHere(name) {
			target.Path = "./" + name
		}
		sel, err := usdt.Select(target, nil, t.options.patterns...)
		switch {
		case isNothing(err):
			missing = errors.Join(missing, err)
			t.without = append(t.without, err)
		case err != nil && commandline.IsMistaken(name):
			return fmt.Errorf("%w: %s was taken for a file; a probe is written PROVIDER:NAME, as in '*:%s'", err, name, name)
		case err != nil:
			return err
		default:
			t.selections = append(t.selections, sel)
		}
	}
	switch {
	case len(t.selections) > 0:
		return t.checkLatency()
	case missing != nil && pid != 0:
		if paths := t.matchingFiles(pid); len(paths) > 0 {
			// java, for one, is a launcher: its probes are in libjvm.so.
			missing = fmt.Errorf("%w; process %d maps %s, which has matching probes: name that, or no file",
				missing, pid, paths[0])
		}
		return &nothingError{missing}
	case missing != nil:
		return &nothingError{missing}
	}
	return nil
}

// isNothing reports whether an error says that a file has none of the probes.
func isNothing(err error) bool { return errors.As(err, new(*usdt.NotFoundError)) }

// checkLatency fails if the files lack an end of a latency.
func (t *targets) checkLatency() error {
	var missing []elfnote.Pattern
	for _, end := range t.options.ends() {
		has := func(sel *usdt.Selection) bool {
			for _, site := range sel.Sites() {
				if end.Match(site.Provider, site.Name) {
					return true
				}
			}
			return false
		}
		if !slices.ContainsFunc(t.selections, has) {
			missing = append(missing, end)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var where []string
	for _, sel := range t.selections {
		where = append(where, sel.Name())
		t.addNearest(sel.File(), missing)
	}
	return &nothingError{t.nothing(missing, strings.Join(where, " or "))}
}

// attachFiles attaches to the files of the command line.
func (t *tracer) attachFiles() error {
	if err := t.checkArguments(); err != nil {
		return err
	}
	for _, sel := range t.targets.selections {
		done := t.messages.During("attaching to %s of %s", plural(sel.Len(), "site"), sel.Name())
		if t.options.follow {
			sel = sel.ForPID(0) // the session has other processes filtered out
		}
		a, err := t.session.AttachSelection(sel, nil)
		done()
		if err != nil {
			return err
		}
		t.targets.attached(a)
		t.warnSkipped(a, sel.Name())
		t.warnFramePointers(a)
		if t.ctx.Err() != nil {
			return errEnded
		}
	}
	if missing := t.targets.unmatchedEnds(); len(missing) > 0 { // they have sites, see checkLatency
		return fmt.Errorf("--latency: no site of %s has the arguments that are named", missing[0])
	}
	for _, err := range t.targets.without {
		t.messages.Warn("%v", err)
	}
	t.warnUnmatched()
	return nil
}
