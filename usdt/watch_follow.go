// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

// A place is where programs are to be attached: in the process of a pair or,
// with a key without process, in every process.
type place struct {
	pair *proc.Pair
	key  proc.PairKey
}

// A look is what comes of a look at the processes.
type look struct {
	WatchChanges
	gone *proc.Changes // what has disappeared of these is still attached; nil once it is not
}

// follow attaches to what has appeared and detaches from what has disappeared.
func (w *Watch) follow(changes *proc.Changes) {
	w.following.Lock()
	defer w.following.Unlock()
	l := &look{gone: changes}
	l.Errors = slices.Clone(changes.Errors)

	var places []place
	first := make(map[*proc.CachedFile]*proc.Pair)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
		if w.perProcess(pair.File) {
			places = append(places, place{pair, pair.Key()})
		}
	}
	for _, file := range changes.FilesAppeared {
		w.lingering.Back(file)
		if !w.perProcess(file) && first[file] != nil {
			places = append(places, place{first[file], proc.PairKey{File: file}})
		}
	}
	places = append(places, w.moved(changes.Moved, l)...)
	w.attach(places, l)
	w.detachGone(l)
	w.close(l.Detached)
	if w.opts.Proc.Handler != nil {
		w.opts.Proc.Handler(changes)
	}
	w.tell(l)
}

// detachGone detaches from what has disappeared, unless that has been done.
func (w *Watch) detachGone(l *look) {
	if l.gone == nil {
		return
	}
	for _, pair := range l.gone.Disappeared {
		w.detach(pair.Key(), l)
	}
	for _, file := range l.gone.FilesDisappeared {
		if w.lingers(file) {
			w.lingering.Leave(file, w.opts.Linger)
		} else {
			w.leave(file, l)
		}
	}
	l.gone = nil
}

// tell tells what has changed.
func (w *Watch) tell(l *look) {
	if w.opts.Changed != nil && len(l.Attached)+len(l.Detached)+len(l.Errors) > 0 {
		w.opts.Changed(&l.WatchChanges)
	}
}

// leave detaches from a file that no process has any more.
func (w *Watch) leave(file *proc.CachedFile, l *look) {
	w.detach(proc.PairKey{File: file}, l)
	if known := w.files[file]; known != nil {
		known.selection.Close()
		delete(w.files, file)
	}
}

// moved returns the pairs to be attached anew since their addresses have
// changed, where programs know their sites by these.
func (w *Watch) moved(pairs []*proc.Pair, l *look) []place {
	if w.manager.mode != ModeSingleIPMap {
		return nil
	}
	var places []place
	before := len(l.Detached)
	for _, pair := range pairs {
		attached := appendAttached(nil, w.attached[pair.Key()])
		if !w.perProcess(pair.File) || len(attached) > 0 && slices.Equal(attached[0].mappings, pair.Mappings) {
			continue
		}
		w.detach(pair.Key(), l)
		places = append(places, place{pair, pair.Key()})
	}
	_ = CloseAll(linksOf(l.Detached[before:])...) // first, so that no hit is seen by both
	return places
}

func (w *Watch) perProcess(file *proc.CachedFile) bool {
	return w.opts.PerProcess || w.manager.mode == ModeSingleIPMap && file.ELF().Kind() != elfnote.Executable
}

// attach attaches to places what is not attached there already, one program
// after the other.
func (w *Watch) attach(places []place, l *look) {
	files := make([]*watchedFile, len(places))
	for i, at := range places {
		var err error
		if files[i], err = w.file(at.pair); err != nil {
			w.fail(at, wholeFile, err, l)
		}
	}
	for n := range w.programs {
		for i, at := range places {
			if files[i] != nil {
				w.attachProgram(n, at, &files[i].parts[n], l)
			}
		}
	}
}

// attachProgram attaches a program, given by its number, to its part of a file.
func (w *Watch) attachProgram(n int, at place, part *filePart, l *look) {
	program := &w.programs[n]
	switch {
	case part.err != nil:
		w.fail(at, n, part.err, l)
		return
	case part.selection == nil, w.attached[at.key] != nil && w.attached[at.key][n] != nil:
		return
	}
	options := program.options(at.pair)
	lnk, err := w.attachSelection(program.Program, part.selection.ForPID(at.key.Process.PID), &options, l)
	if err != nil {
		w.fail(at, n, err, l)
		return
	}
	a := &WatchAttachment{Link: lnk, Program: program.Program, Options: options, File: at.pair.File, Path: at.pair.Path}
	if at.key.Process != (proc.ProcessID{}) {
		a.Process, a.mappings = at.pair.Process, at.pair.Mappings
	}
	w.mu.Lock()
	if w.attached[at.key] == nil {
		w.attached[at.key] = make([]*WatchAttachment, len(w.programs))
	}
	w.attached[at.key][n] = a
	w.mu.Unlock()
	l.Attached = append(l.Attached, a)
}

// fail reports that a program could not be attached, given by its number or
// wholeFile, unless that is because the process has gone, or has been reported.
// It is tried again if it may succeed.
func (w *Watch) fail(at place, n int, err error, l *look) {
	if gone := new(processError); errors.As(err, &gone) && at.key.Process != (proc.ProcessID{}) {
		if running, err := at.pair.Process.IsRunning(); err == nil && !running {
			return
		}
	}
	if !w.failed.Fail(retry.Key{PairKey: at.key, Program: n}, err, whenAgain(err)) {
		return
	}
	var program *ebpf.Program
	if n != wholeFile {
		program = w.programs[n].Program
	}
	l.Errors = append(l.Errors, &WatchError{
		Program: program, Name: programName(program), Path: at.pair.Path, Process: at.pair.Process, Err: err,
	})
}

// detach has all programs closed that are attached there.
func (w *Watch) detach(key proc.PairKey, l *look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.Detached = appendAttached(l.Detached, w.attached[key])
	delete(w.attached, key)
}

// close detaches in the background: the kernel takes its time, and other
// processes are waiting to be attached. What lacked room is tried again then.
func (w *Watch) close(attachments []*WatchAttachment) {
	if len(attachments) == 0 {
		return
	}
	w.closing.Go(func() {
		// What closing a link may fail with has no consequence: the kernel
		// detaches it all the same.
		_ = CloseAll(linksOf(attachments)...)
		w.tryAgain(retry.WithRoom)
	})
}

// appendAttached appends the attachments of those programs that are attached.
func appendAttached(all, attachments []*WatchAttachment) []*WatchAttachment {
	for _, a := range attachments {
		if a != nil {
			all = append(all, a)
		}
	}
	return all
}

func linksOf(attachments []*WatchAttachment) []*Link {
	links := make([]*Link, 0, len(attachments))
	for _, a := range attachments {
		links = append(links, a.Link)
	}
	return links
}
