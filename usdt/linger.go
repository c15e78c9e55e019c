// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

// DefaultLinger is how long a Watch that does not say otherwise leaves a file
// attached after its last process. By that a file is attached anew once in a
// second at most, and nothing is held for long in vain.
const DefaultLinger = time.Second

// lingers tells whether a file stays attached for a while that no process has
// any more, as what is attached for every process does.
func (w *Watch) lingers(file *proc.CachedFile) bool {
	return w.attached[proc.PairKey{File: file}] != nil && !w.ending && w.opts.Linger >= 0
}

// endLinger detaches from a file that has lingered.
func (w *Watch) endLinger(file *proc.CachedFile) {
	l := &look{}
	w.leave(file, l)
	w.close(l.Detached)
	w.tell(l)
}

// endAllLinger detaches from all files that linger.
func (w *Watch) endAllLinger(l *look) {
	w.lingering.EndAll(func(file *proc.CachedFile) { w.leave(file, l) })
}

// attachSelection attaches to what a process has, in the place of what no
// process has any more if there is no room for both.
func (w *Watch) attachSelection(prog *ebpf.Program, sel *Selection, opts *AttachOptions, l *look) (*Link, error) {
	lnk, err := w.manager.AttachSelection(prog, sel, opts)
	if err == nil || whenAgain(err) != retry.WithRoom || !w.makeRoom(l) {
		return lnk, err
	}
	return w.manager.AttachSelection(prog, sel, opts)
}

// makeRoom detaches from what has disappeared and from what lingers. It tells
// whether there was anything.
func (w *Watch) makeRoom(l *look) bool {
	before := len(l.Detached)
	w.detachGone(l)
	w.endAllLinger(l)
	_ = CloseAll(linksOf(l.Detached[before:])...) // their room is free once nothing can hit them any more
	return len(l.Detached) > before
}
