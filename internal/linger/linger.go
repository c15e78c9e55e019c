// SPDX-License-Identifier: BSD-2-Clause

// Package linger keeps files of processes for a while after the last process
// that maps them has gone, so that programs that are started again and again
// are not attached each time.
package linger

import (
	"sync"
	"time"

	"github.com/gousdt/gousdt/proc"
)

// Files are files that linger: held, though no process has them. The lock given
// to New is held to call its methods.
type Files struct {
	lock   sync.Locker
	end    func(*proc.CachedFile)
	timers map[*proc.CachedFile]*time.Timer // they end it
}

// New returns none. When a file has lingered, end is called for it, by another
// goroutine with the lock held, and then the file is released.
func New(lock sync.Locker, end func(*proc.CachedFile)) *Files {
	return &Files{lock: lock, end: end, timers: make(map[*proc.CachedFile]*time.Timer)}
}

// Len returns how many files linger.
func (f *Files) Len() int { return len(f.timers) }

// Leave has a file linger that does not, and is held at the moment.
func (f *Files) Leave(file *proc.CachedFile, after time.Duration) {
	file.Hold()
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		f.lock.Lock()
		defer f.lock.Unlock()
		if f.timers[file] == timer { // else it could not be stopped any more
			f.finish(file, f.end)
		}
	})
	f.timers[file] = timer
}

// Back ends the lingering of a file that a process has again, and so somebody
// else holds. It tells whether it lingered.
func (f *Files) Back(file *proc.CachedFile) bool {
	if f.timers[file] == nil {
		return false
	}
	f.finish(file, func(*proc.CachedFile) {})
	return true
}

// EndAll ends the lingering of all files, with a call of end for each before it
// is released.
func (f *Files) EndAll(end func(*proc.CachedFile)) {
	for file := range f.timers {
		f.finish(file, end)
	}
}

func (f *Files) finish(file *proc.CachedFile, end func(*proc.CachedFile)) {
	f.timers[file].Stop()
	delete(f.timers, file)
	end(file)
	file.Release()
}
