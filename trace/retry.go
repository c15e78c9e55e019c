// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

// beforePass tries again whatever has failed.
func (w *Watch) beforePass() {
	if w.opts.Proc.BeforePass != nil {
		w.opts.Proc.BeforePass()
	}
	w.tryAgain(retry.Later)
}

// tryAgain tries to attach what could not be attached, with retry.WithRoom only
// what lacked room.
func (w *Watch) tryAgain(when retry.When) {
	w.following.Lock()
	defer w.following.Unlock()
	if w.ended() || w.failed.Len() == 0 {
		return
	}
	l := &look{}
	w.failed.Again(w.watcher.Pairs(), when, func(key retry.Key, pair *proc.Pair) {
		process := proc.Process{}
		if key.Process != (proc.ProcessID{}) {
			process = pair.Process
		}
		w.attach(pair, process, l)
	})
	w.finish(l)
}

// makeRoom detaches from what has disappeared and from what lingers. It tells
// whether there was anything.
func (w *Watch) makeRoom(l *look) bool {
	room := &look{gone: l.gone}
	l.gone = nil
	w.detachGone(room)
	w.endAllLinger(room)
	if len(room.Detached) == 0 {
		return false
	}
	_ = CloseAll(w.tell(room)...) // the kernel detaches whatever it says
	w.closing.Go(func() { w.tryAgain(retry.WithRoom) })
	return true
}
