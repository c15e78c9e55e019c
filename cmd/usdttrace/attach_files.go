// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
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
			if pairs := t.options.pairs(); len(pairs) > 0 {
				err = withPairs(target, pairs[0], err)
			}
			missing = errors.Join(missing, err)
			t.without = append(t.without, err)
		case err != nil && commandline.IsMistaken(name):
			return fmt.Errorf("%w: %s was taken for a file; a probe is written PROVIDER:NAME, as in '*:%s'", err, name, name)
		case err != nil:
			return err
		case t.isSelected(sel):
			sel.Close()
		default:
			t.selections = append(t.selections, sel)
		}
	}
	switch {
	case len(t.selections) > 0:
		return t.checkPairs()
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

// isSelected reports whether a file is one of those that have been selected, by
// another name: attached twice, each hit would count twice. The same file of
// two mounts of overlayfs is not known for the same: who can mount one can make
// it look like another's.
func (t *targets) isSelected(sel *usdt.Selection) bool {
	id, err := proc.IdentifyFile(sel.File().OSFile())
	if err != nil {
		return false // also where nothing can be attached
	}
	if name, known := t.names[id]; known {
		t.same = append(t.same, [2]string{sel.Name(), name})
		return true
	}
	if t.names == nil {
		t.names = make(map[proc.FileID]string)
	}
	t.names[id] = sel.Name()
	return false
}

// isNothing reports whether an error says that a file has none of the probes.
func isNothing(err error) bool { return errors.As(err, new(*usdt.NotFoundError)) }

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
		if errors.As(err, new(*trace.PairError)) { // another file has one, see checkPairs
			t.targets.without = append(t.targets.without, err)
			continue
		}
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
	if len(t.options.pairs()) > 0 && t.targets.missingPair("") != nil {
		// They have sites, see checkPairs.
		return errors.New("no pair of probes has the arguments that --match names")
	}
	for _, err := range t.targets.without {
		t.messages.Warn("%v", err)
	}
	for _, names := range t.targets.same {
		t.messages.Note("%s is the same file as %s, and is watched once", names[0], names[1])
	}
	t.warnUnmatched()
	return nil
}
