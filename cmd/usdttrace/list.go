// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// list prints what would be watched, of what is there now. It needs no
// privileges but to read the files.
func (t *tracer) list() error {
	o := t.options
	var err error
	if t.targets.definitions, err = commandline.Definitions(o.names, t.messages.Warn); err != nil {
		return err
	}
	if t.file != nil {
		t.file.replace()
	}
	found := 0
	switch {
	case len(o.files) > 0:
		if o.command != nil {
			err = t.targets.find(o.files, 0)
		}
		for _, sel := range t.targets.selections {
			found += t.listSites(sel.Name(), sel)
		}
		for _, err := range t.targets.without {
			t.messages.Warn("%v", err)
		}
	case o.command != nil:
		found, err = t.listCommand()
	default:
		found, err = t.listProcesses()
	}
	switch {
	case err != nil || found > 0:
	case o.listPairs:
		err = &nothingError{errors.New("there is no such pair of probes")}
	default:
		err = &nothingError{t.targets.nothing(o.patterns, t.where())}
	}
	if e := t.out.Flush(); e != nil && err == nil {
		err = fmt.Errorf("writing the output: %w", e)
	}
	return err
}

// listSites prints the sites of a file, and returns how many there are.
func (t *tracer) listSites(file string, sel *usdt.Selection) int {
	if t.options.listPairs {
		return t.listPairs(file, sel)
	}
	t.printer.sites(file, sel)
	t.warnSkipped(sel, file)
	return sel.Len()
}

// listPairs prints the pairs of a file, and returns how many there are.
func (t *tracer) listPairs(file string, sel *usdt.Selection) int {
	listing, err := sel.File().Probes()
	if err != nil {
		t.warnFailed(fmt.Errorf("%s: %w", file, err))
		return 0
	}
	pairs := listing.Pairs(t.options.listed...)
	if len(pairs) > 0 {
		t.printer.pairs(file, pairs)
	}
	return len(pairs)
}

// listCommand prints the sites of the program of -c, and of the libraries that
// it is linked with.
func (t *tracer) listCommand() (found int, err error) {
	program, err := exec.LookPath(t.options.command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 0, fmt.Errorf("-c: %w", err)
	}
	for _, path := range ldso.Linked(program, "/proc/self") {
		n, err := t.listTarget(path, usdt.Target{Path: path})
		if err != nil {
			return found, err
		}
		found += n
	}
	return found, nil
}

// listProcesses prints the sites of the files that processes map, each file
// once.
func (t *tracer) listProcesses() (found int, err error) {
	pid := t.options.pid
	listed := make(map[proc.FileID]bool)
	options := &proc.WatcherOptions{Handler: func(changes *proc.Changes) {
		for _, err := range changes.Errors {
			t.warnLeftOut(err, pid != 0)
		}
		for _, pair := range changes.Appeared {
			if id := pair.File.ID(); !listed[id] {
				listed[id] = true
				n, err := t.listTarget(pair.Path, usdt.Target{ProcessFile: pair})
				if err != nil {
					t.warnFailed(fmt.Errorf("process %s: %s: %w", pair.Process, pair.Path, err))
				}
				found += n
			}
		}
	}}
	if pid != 0 {
		options.Filter = func(p proc.Process) bool { return p.PID == pid }
	}
	watcher := proc.NewWatcher(options, t.options.patterns...)
	if pid != 0 {
		err = watcher.Sync(pid)
	} else {
		err = watcher.SyncAll()
	}
	watcher.Close() // the handler may be called until then
	switch {
	case !errors.As(err, new(*proc.Error)):
		return found, err
	case found == 0:
		return 0, errReported
	}
	return found, nil // the handler has reported it
}

// listTarget prints the sites of a file that may have none.
func (t *tracer) listTarget(file string, target usdt.Target) (int, error) {
	sel, err := usdt.Select(target, nil, t.options.patterns...)
	switch {
	case isNothing(err):
		t.targets.near(err)
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer sel.Close()
	return t.listSites(file, sel), nil
}
