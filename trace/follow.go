// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"os"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// A look is what comes of a look at the processes.
type look struct {
	WatchChanges
	gone *proc.Changes // what has disappeared of these is still attached; nil once it is not
}

// follow attaches to what has appeared and detaches from what has disappeared.
func (w *Watch) follow(changes *proc.Changes) {
	w.following.Lock()
	defer w.following.Unlock()
	if w.ended() {
		return // what is attached is for Close
	}
	l := &look{gone: changes}
	l.Errors = slices.Clone(changes.Errors)
	if w.opts.PerProcess {
		for _, pair := range changes.Appeared {
			w.attach(pair, pair.Process, l)
		}
	} else {
		w.followFiles(changes, l)
	}
	w.detachGone(l)
	w.finish(l)
}

// detachGone detaches from what has disappeared, unless that has been done.
func (w *Watch) detachGone(l *look) {
	if l.gone == nil {
		return
	}
	if w.opts.PerProcess {
		w.detachProcesses(l.gone.Disappeared, l)
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

// detachProcesses detaches from pairs that have disappeared, and from what was
// attached ahead in processes that have ended.
func (w *Watch) detachProcesses(disappeared []*proc.Pair, l *look) {
	for _, pair := range disappeared {
		if _, stays := w.ahead[pair.Process.ProcessID]; !stays {
			w.detach(watchKey{pair.Process.ProcessID, pair.File.ID()}, l)
		}
	}
	for id, process := range w.ahead {
		if running, err := process.IsRunning(); err != nil || running {
			continue
		}
		delete(w.ahead, id)
		for _, a := range w.Attachments() {
			if a.Process.ProcessID == id {
				w.detach(watchKey{id, a.File}, l)
			}
		}
	}
}

func (w *Watch) followFiles(changes *proc.Changes, l *look) {
	first := make(map[*proc.CachedFile]*proc.Pair)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
	}
	// What is back first: it is not to make room for the others.
	appeared := slices.DeleteFunc(slices.Clone(changes.FilesAppeared), w.lingering.Back)
	for _, file := range appeared {
		if first[file] != nil {
			w.attach(first[file], proc.Process{}, l)
		}
	}
}

// attach attaches to a file in a process, or in all where that is zero.
func (w *Watch) attach(pair *proc.Pair, process proc.Process, l *look) {
	key := watchKey{process.ProcessID, pair.File.ID()}
	if w.ended() || w.has(key) {
		return
	}
	a, err := w.attachPair(pair, process.PID)
	if err != nil && retry.Classify(err) == retry.WithRoom && w.makeRoom(l) {
		a, err = w.attachPair(pair, process.PID)
	}
	switch {
	case err == nil:
		w.add(key, &WatchAttachment{Attachment: a, Path: pair.Path, File: key.file, Process: process}, l)
		return
	case errors.Is(err, os.ErrClosed):
		return
	case errors.Is(err, elfnote.ErrTooLarge):
		pair.File.Refuse(err) // to find that out takes a second, and there may be many processes
	}
	if key.process != (proc.ProcessID{}) {
		if running, err := process.IsRunning(); err == nil && !running {
			l.Missed = append(l.Missed, pair)
			return
		}
	}
	if w.failed.Fail(retry.Key{PairKey: proc.PairKey{Process: process.ProcessID, File: pair.File}}, err, retry.Classify(err)) {
		l.Errors = append(l.Errors, &WatchError{Path: pair.Path, Process: pair.Process, Err: err})
	}
}

func (w *Watch) attachPair(pair *proc.Pair, pid int) (*Attachment, error) {
	sel := w.selections[pair.File]
	if sel == nil {
		var err error
		if sel, err = usdt.Select(usdt.Target{Pair: pair}, nil, w.patterns...); err != nil {
			return nil, err
		}
		w.selections[pair.File] = sel
	}
	return w.session.attachSelection(sel.ForPID(pid), pair.Path, w.options(pair))
}

// leave detaches from a file that no process has any more.
func (w *Watch) leave(file *proc.CachedFile, l *look) {
	w.detach(watchKey{file: file.ID()}, l)
	if sel := w.selections[file]; sel != nil {
		sel.Close()
		delete(w.selections, file)
	}
}

func (w *Watch) has(key watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attached[key] != nil
}

func (w *Watch) add(key watchKey, a *WatchAttachment, l *look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached[key] = a
	l.Attached = append(l.Attached, a)
}

func (w *Watch) detach(key watchKey, l *look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attached[key]; a != nil {
		delete(w.attached, key)
		l.Detached = append(l.Detached, a)
	}
}

// tell tells what has changed, and returns what is to be closed.
func (w *Watch) tell(l *look) []*Attachment {
	if w.opts.Changed != nil && len(l.Attached)+len(l.Detached)+len(l.Missed)+len(l.Errors) > 0 {
		w.opts.Changed(&l.WatchChanges)
	}
	var closed []*Attachment
	for _, a := range l.Detached {
		closed = append(closed, a.Attachment)
	}
	return closed
}

// finish tells what has changed, and detaches in the background: the kernel
// takes its time, and other processes are waiting to be attached. What lacked
// room is tried again then.
func (w *Watch) finish(l *look) {
	if closed := w.tell(l); len(closed) > 0 {
		w.closing.Go(func() {
			_ = CloseAll(closed...) // what it may fail with has no consequence: the kernel detaches all the same
			w.tryAgain(retry.WithRoom)
		})
	}
}

// endAll detaches everything.
func (w *Watch) endAll() error {
	l := &look{}
	w.endAllLinger(l)
	for file, sel := range w.selections {
		sel.Close()
		delete(w.selections, file)
	}
	w.mu.Lock()
	for key, a := range w.attached {
		delete(w.attached, key)
		l.Detached = append(l.Detached, a)
	}
	w.mu.Unlock()
	return CloseAll(w.tell(l)...)
}

// lingers tells whether a file stays attached for a while that no process has
// any more, as what is attached for every process does.
func (w *Watch) lingers(file *proc.CachedFile) bool {
	return w.opts.Linger >= 0 && w.has(watchKey{file: file.ID()})
}

// endAllLinger detaches from all files that linger.
func (w *Watch) endAllLinger(l *look) {
	w.lingering.EndAll(func(file *proc.CachedFile) { w.leave(file, l) })
}

// endLinger detaches from a file that has lingered.
func (w *Watch) endLinger(file *proc.CachedFile) {
	l := &look{}
	w.leave(file, l)
	w.finish(l)
}
