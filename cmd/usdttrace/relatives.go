// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"

	"github.com/gousdt/gousdt/proc"
)

// relatives returns how many descendants of the process of -p map files with
// matching probes, and the path of one of the files. They are not watched
// without -f.
func (t *tracer) relatives() (n int, path string) {
	o := t.options
	if o.pid == 0 || o.follow {
		return 0, ""
	}
	descendants := &family{members: map[int]bool{o.pid: true}}
	found := make(map[int]bool)
	watcher := proc.NewWatcher(&proc.WatcherOptions{
		Filter: func(p proc.Process) bool { return descendants.has(p) && p.PID != o.pid },
		Handler: func(changes *proc.Changes) {
			for _, pair := range changes.Appeared {
				found[pair.Process.PID] = true
				path = pair.Path
			}
		},
	}, o.patterns...)
	_ = watcher.SyncAll() // what cannot be read is not counted
	watcher.Close()       // the handler may be called until then
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
