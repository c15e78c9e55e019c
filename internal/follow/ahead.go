// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"github.com/gousdt/gousdt/proc"
)

// AttachAhead attaches a file that a process is about to execute or to map,
// unless it is attached in the process already. Once this has been called for a
// process, even in vain, what is attached in it stays so until it ends.
//
// It is for followers of files with one part. The error is that of attach, or
// os.ErrClosed.
func (f *Follower[F, A]) AttachAhead(
	process proc.Process, file proc.FileID, attach func() (A, error),
) error {
	f.following.Lock()
	defer f.following.Unlock()
	if f.isStopped() {
		return errClosed
	}
	f.ahead[process.ProcessID] = process
	place := Place{Process: process.ProcessID, File: file}
	for other := range f.attached {
		if other.Process == place.Process && other.File.MayBe(file) {
			return nil
		}
	}
	type result struct {
		attached A
		err      error
	}
	got := &result{}
	at := target{place, &proc.ProcessFile{Process: process}, process.Owner()}
	err := f.call(&call[A]{target: at, patience: f.aheadPatience, do: func() {
		got.attached, got.err = attach()
	}, late: func(r *round[A]) {
		_, isAhead := f.ahead[process.ProcessID]
		switch {
		case got.err != nil:
		case f.isStopped() || f.isAttached(0, place) || !isAhead:
			r.unwanted = append(r.unwanted, got.attached)
		default:
			f.addTo(place, 0, &attachment[A]{attached: got.attached, owner: at.owner}, r)
		}
	}})
	if err == nil {
		err = got.err
	}
	if err != nil {
		return err
	}
	r := &round[A]{}
	f.addTo(place, 0, &attachment[A]{attached: got.attached, owner: at.owner}, r)
	f.tell(r)
	return nil
}

// detachAhead detaches what was attached ahead in processes that have ended.
func (f *Follower[F, A]) detachAhead(r *round[A]) {
	for id, process := range f.ahead {
		if running, err := process.IsRunning(); err != nil || running {
			continue
		}
		delete(f.ahead, id)
		for place := range f.attached {
			if place.Process == id {
				f.detach(place, r)
			}
		}
	}
}
