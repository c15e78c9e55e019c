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

// lingers tells whether a file stays attached for a while that no process has any more, as what is attached for every
// process does.
func (w *Watch) lingers(file *proc.File) bool {
	return w.attached[proc.PairKey{File: file}] != nil && !w.ending && w.opts.Linger >= 0
}

// endLinger detaches from a file that has lingered.
func (w *Watch) endLinger(file *proc.File) {
	result := &WatchChanges{}
	w.leave(file, result)
	w.close(result.Detached)
	w.tell(result)
}

// endAllLinger detaches from all files that linger.
func (w *Watch) endAllLinger(result *WatchChanges) {
	w.lingering.EndAll(func(file *proc.File) { w.leave(file, result) })
}

// attachSelection attaches to what a process has, in the place of what lingers if there is no room for both.
func (w *Watch) attachSelection(prog *ebpf.Program, sel *Selection, opts *Options, result *WatchChanges) (*Link, error) {
	lnk, err := w.manager.AttachSelection(prog, sel, opts)
	if w.lingering.Len() == 0 || !errors.As(err, new(*SpecsFullError)) && !errors.As(err, new(*AddressesFullError)) {
		return lnk, err
	}
	before := len(result.Detached)
	w.endAllLinger(result)
	_ = CloseAll(linksOf(result.Detached[before:])...) // their room is free once nothing can hit them any more
	return w.manager.AttachSelection(prog, sel, opts)
}
