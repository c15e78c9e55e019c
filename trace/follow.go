// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// selectedFile is the sites of a file, checked once for all its processes.
type selectedFile struct {
	*usdt.Selection
	own *os.File // nil where the cache has a file that the kernel takes
}

func (s *selectedFile) close() {
	s.Selection.Close()
	if s.own != nil {
		s.own.Close()
	}
}

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
		if !w.linger(file) {
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
		if !w.back(file) && first[file] != nil {
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
	sel, err := w.selection(pair)
	if err != nil {
		return nil, err
	}
	return w.session.attachSelection(sel.ForPID(pid), pair.Path, &w.opts.AttachOptions)
}

func (w *Watch) selection(pair *proc.Pair) (*selectedFile, error) {
	if sel := w.selections[pair.File]; sel != nil {
		return sel, nil
	}
	if err := pair.File.Refused(); err != nil {
		return nil, err
	}
	selected := &selectedFile{}
	target := usdt.Target{ELF: pair.File.ELF()}
	var err error
	if target.ELF.OSFile() == nil {
		// The caller reads files by other means, but the kernel wants a file.
		if selected.own, err = pair.Open(); err != nil {
			return nil, err
		}
		target = usdt.Target{File: selected.own}
	}
	if selected.Selection, err = usdt.SelectMatching(target, w.watcher.Match); err != nil {
		if selected.own != nil {
			selected.own.Close()
		}
		return nil, err
	}
	w.selections[pair.File] = selected
	return selected, nil
}

// leave detaches from a file that no process has any more.
func (w *Watch) leave(file *proc.File, result *WatchChanges) {
	w.detach(watchKey{file: file.Identity()}, result)
	if sel := w.selections[file]; sel != nil {
		sel.close()
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
	for file, timer := range w.lingering {
		timer.Stop()
		delete(w.lingering, file)
		file.Release()
	}
	for file, sel := range w.selections {
		sel.close()
		delete(w.selections, file)
	}
	result := &WatchChanges{}
	w.mu.Lock()
	for key, a := range w.attached {
		delete(w.attached, key)
		result.Detached = append(result.Detached, a)
	}
	w.mu.Unlock()
	return CloseAll(w.tell(result)...)
}

// linger leaves a file attached for a while that no process has any more, if it is attached for every process.
func (w *Watch) linger(file *proc.File) bool {
	if w.opts.Linger < 0 || !w.has(watchKey{file: file.Identity()}) {
		return false
	}
	file.Hold()
	var timer *time.Timer
	timer = time.AfterFunc(w.opts.Linger, func() {
		w.following.Lock()
		defer w.following.Unlock()
		if w.lingering[file] != timer {
			return // it could not be stopped any more
		}
		delete(w.lingering, file)
		result := &WatchChanges{}
		w.leave(file, result)
		w.finish(result)
		file.Release()
	})
	w.lingering[file] = timer
	return true
}

// back tells whether a file has lingered until a process came that has it.
func (w *Watch) back(file *proc.File) bool {
	timer := w.lingering[file]
	if timer == nil {
		return false
	}
	timer.Stop()
	delete(w.lingering, file)
	file.Release() // the watcher holds it again
	return true
}
