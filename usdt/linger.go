// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/proc"
)

// DefaultLinger is how long a Watch that does not say otherwise leaves a file attached after its last process. By that a
// file is attached anew once in a second at most, and nothing is held for long in vain.
const DefaultLinger = time.Second

// linger leaves a file attached for a while that no process has any more, if it is attached for every process.
func (w *Watch) linger(file *proc.File) bool {
	if w.attached[proc.PairKey{File: file}] == nil || w.ending || w.opts.Linger < 0 {
		return false
	}
	file.Hold()
	var timer *time.Timer
	timer = time.AfterFunc(w.opts.Linger, func() {
		w.following.Lock()
		defer w.following.Unlock()
		if w.lingering[file] == timer { // else it could not be stopped any more
			result := &WatchChanges{}
			w.endLinger(file, result)
			w.close(result.Detached)
			w.tell(result)
		}
	})
	w.lingering[file] = timer
	return true
}

// back ends the lingering of a file that a process has again, and leaves it attached.
func (w *Watch) back(file *proc.File) {
	if timer := w.lingering[file]; timer != nil {
		timer.Stop()
		delete(w.lingering, file)
		file.Release() // the watcher holds it again
	}
}

func (w *Watch) endLinger(file *proc.File, result *WatchChanges) {
	w.lingering[file].Stop()
	delete(w.lingering, file)
	w.leave(file, result)
	file.Release()
}

func (w *Watch) endAllLinger(result *WatchChanges) {
	for file := range w.lingering {
		w.endLinger(file, result)
	}
}

// attachSelection attaches to what a process has, in the place of what lingers if there is no room for both.
func (w *Watch) attachSelection(prog *ebpf.Program, sel *Selection, opts *Options, result *WatchChanges) (*Link, error) {
	lnk, err := w.manager.AttachSelection(prog, sel, opts)
	if len(w.lingering) == 0 || !errors.As(err, new(*SpecsFullError)) && !errors.As(err, new(*AddressesFullError)) {
		return lnk, err
	}
	before := len(result.Detached)
	w.endAllLinger(result)
	_ = CloseAll(linksOf(result.Detached[before:])...) // their room is free once nothing can hit them any more
	return w.manager.AttachSelection(prog, sel, opts)
}
