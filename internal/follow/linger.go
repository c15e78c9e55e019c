// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/procwatch"
)

// lingering are files that stay attached for a while after the last process
// that maps them has gone, so that programs that are started again and again
// are not attached each time. The lock is held to call its methods.
type lingering struct {
	lock   sync.Locker
	end    func(procwatch.FileID)
	timers map[procwatch.FileID]*time.Timer // they end it
}

// newLingering returns none. When a file has lingered, another goroutine calls
// end for it with the lock held.
func newLingering(lock sync.Locker, end func(procwatch.FileID)) *lingering {
	return &lingering{lock: lock, end: end, timers: make(map[procwatch.FileID]*time.Timer)}
}

// leave has a file linger that does not.
func (l *lingering) leave(file procwatch.FileID, after time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		l.lock.Lock()
		defer l.lock.Unlock()
		if l.timers[file] == timer { // else it could not be stopped any more
			delete(l.timers, file)
			l.end(file)
		}
	})
	l.timers[file] = timer
}

// back ends the lingering of a file, if it lingers, because a process maps it
// again.
func (l *lingering) back(file procwatch.FileID) {
	if timer := l.timers[file]; timer != nil {
		timer.Stop()
		delete(l.timers, file)
	}
}

// endAll ends the lingering of all files, with a call of end for each.
func (l *lingering) endAll(end func(procwatch.FileID)) {
	for file, timer := range l.timers {
		timer.Stop()
		delete(l.timers, file)
		end(file)
	}
}
