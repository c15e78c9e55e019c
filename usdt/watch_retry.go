// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"

	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

// wholeFile is in the place of a program's number where a file could not be
// made ready for any.
const wholeFile = -1

// whenAgain says when what failed is to be tried again.
func whenAgain(err error) retry.When {
	var full *LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return retry.Never
	case full != nil, errors.Is(err, errAddressInUse):
		return retry.WithRoom
	default:
		return retry.Classify(err)
	}
}

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
	if w.ending || w.failed.Len() == 0 {
		return
	}
	l := &look{}
	w.failed.Again(w.watcher.Pairs(), when, func(key retry.Key, pair *proc.Pair) {
		at := place{pair, key.PairKey}
		if key.Program == wholeFile {
			w.attach([]place{at}, l)
		} else if known := w.files[pair.File]; known != nil {
			w.attachProgram(key.Program, at, &known.parts[key.Program], l)
		}
	})
	w.close(l.Detached)
	w.tell(l)
}
