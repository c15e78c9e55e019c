// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// follow attaches to what has appeared and detaches from what has disappeared.
func (w *Watch) follow(changes *proc.Changes) {
	w.following.Lock()
	defer w.following.Unlock()
	if w.ended() {
		return // what is attached is for Close
	}
	result := &WatchChanges{Errors: slices.Clone(changes.Errors)}
	if w.opts.PerProcess {
		w.followProcesses(changes, result)
	} else {
		w.followFiles(changes, result)
	}
	for _, file := range changes.FilesDisappeared {
		if w.lingers(file) {
			w.lingering.Leave(file, w.opts.Linger)
		} else {
			w.leave(file, result)
		}
	}
	w.finish(result)
}

func (w *Watch) followProcesses(changes *proc.Changes, result *WatchChanges) {
	for _, pair := range changes.Appeared {
		w.attach(pair, pair.Process, result)
	}
	for _, pair := range changes.Disappeared {
		if _, stays := w.ahead[pair.Process.ID]; !stays {
			w.detach(watchKey{pair.Process.ID, pair.File.Identity()}, result)
		}
	}
	for id, process := range w.ahead {
		if running, err := process.IsRunning(); err != nil || running {
			continue
		}
		delete(w.ahead, id)
		for _, a := range w.Attachments() {
			if a.Process.ID == id {
				w.detach(watchKey{id, a.File}, result)
			}
		}
	}
}

func (w *Watch) followFiles(changes *proc.Changes, result *WatchChanges) {
	first := make(map[*proc.File]*proc.Pair)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
	}
	for _, file := range changes.FilesAppeared {
		if !w.lingering.Back(file) && first[file] != nil {
			w.attach(first[file], proc.Process{}, result)
		}
	}
}

// attach attaches to a file in a process, or in all where that is zero.
func (w *Watch) attach(pair *proc.Pair, process proc.Process, result *WatchChanges) {
	key := watchKey{process.ID, pair.File.Identity()}
	if w.ended() || w.has(key) {
		return
	}
	a, err := w.attachPair(pair, process.PID)
	switch {
	case err == nil:
		w.add(key, &WatchAttachment{Attachment: a, Path: pair.Path, File: key.file, Process: process}, result)
		return
	case errors.Is(err, ErrClosed):
		return
	case errors.Is(err, elfnote.ErrTooLarge):
		pair.File.Refuse(err) // to find that out takes a second, and there may be many processes
	}
	if key.process != (proc.ID{}) {
		if running, err := process.IsRunning(); err == nil && !running {
			result.Missed = append(result.Missed, pair)
			return
		}
	}
	result.Errors = append(result.Errors, &WatchError{Path: pair.Path, Process: pair.Process, Err: err})
}

func (w *Watch) attachPair(pair *proc.Pair, pid int) (*Attachment, error) {
	sel := w.selections[pair.File]
	if sel == nil {
		var err error
		if sel, err = usdt.SelectPair(pair, w.watcher.Match); err != nil {
			return nil, err
		}
		w.selections[pair.File] = sel
	}
	return w.session.attachSelection(sel.ForPID(pid), pair.Path, w.options(pair))
}

// leave detaches from a file that no process has any more.
func (w *Watch) leave(file *proc.File, result *WatchChanges) {
	w.detach(watchKey{file: file.Identity()}, result)
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

func (w *Watch) add(key watchKey, a *WatchAttachment, result *WatchChanges) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attached[key] = a
	result.Attached = append(result.Attached, a)
}

func (w *Watch) detach(key watchKey, result *WatchChanges) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attached[key]; a != nil {
		delete(w.attached, key)
		result.Detached = append(result.Detached, a)
	}
}

// tell tells what has changed, and returns what is to be closed.
func (w *Watch) tell(result *WatchChanges) []*Attachment {
	if w.opts.Changed != nil && len(result.Attached)+len(result.Detached)+len(result.Missed)+len(result.Errors) > 0 {
		w.opts.Changed(result)
	}
	var closed []*Attachment
	for _, a := range result.Detached {
		closed = append(closed, a.Attachment)
	}
	return closed
}

// finish tells what has changed, and detaches in the background: the kernel takes its time, and other processes are
// waiting to be attached.
func (w *Watch) finish(result *WatchChanges) {
	if closed := w.tell(result); len(closed) > 0 {
		w.closing.Go(func() {
			_ = CloseAll(closed...) // what it may fail with has no consequence: the kernel detaches all the same
		})
	}
}

// endAll detaches everything.
func (w *Watch) endAll() error {
	result := &WatchChanges{}
	w.lingering.EndAll(func(file *proc.File) { w.leave(file, result) })
	for file, sel := range w.selections {
		sel.Close()
		delete(w.selections, file)
	}
	w.mu.Lock()
	for key, a := range w.attached {
		delete(w.attached, key)
		result.Detached = append(result.Detached, a)
	}
	w.mu.Unlock()
	return CloseAll(w.tell(result)...)
}

// lingers tells whether a file stays attached for a while that no process has any more, as what is attached for every
// process does.
func (w *Watch) lingers(file *proc.File) bool {
	return w.opts.Linger >= 0 && w.has(watchKey{file: file.Identity()})
}

// endLinger detaches from a file that has lingered.
func (w *Watch) endLinger(file *proc.File) {
	result := &WatchChanges{}
	w.leave(file, result)
	w.finish(result)
}
