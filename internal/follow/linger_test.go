// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package follow

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procwatch"
)

// channelLock is a mutex for which the clock of a synctest bubble goes on while
// somebody waits.
type channelLock chan struct{}

func (c channelLock) Lock()   { c <- struct{}{} }
func (c channelLock) Unlock() { <-c }

// lingerTest is files that linger, and those of which the end was called.
type lingerTest struct {
	*lingering
	lock  channelLock
	ended []procwatch.FileID
}

// inBubble runs a test in a bubble, with the lock held.
func inBubble(t *testing.T, test func(*testing.T, *lingerTest)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerTest{lock: make(channelLock, 1)}
		l.lingering = newLingering(l.lock, func(file procwatch.FileID) {
			qt.Check(t, qt.HasLen(l.lock, 1))
			l.ended = append(l.ended, file)
		})
		l.lock.Lock()
		defer l.lock.Unlock()
		test(t, l)
		qt.Check(t, qt.HasLen(l.timers, 0))
	})
}

// pass lets time pass without the lock.
func (l *lingerTest) pass(duration time.Duration) {
	l.lock.Unlock()
	time.Sleep(duration)
	synctest.Wait()
	l.lock.Lock()
}

func TestLingering(t *testing.T) {
	files := fileIDs(t, 2)
	file, other := files[0], files[1]
	for name, test := range map[string]func(*testing.T, *lingerTest){
		"ends after its time": func(t *testing.T, l *lingerTest) {
			l.leave(file, time.Second)
			l.leave(other, time.Hour)
			l.pass(time.Second - 1)
			qt.Check(t, qt.HasLen(l.ended, 0))
			l.pass(1)
			qt.Check(t, qt.IsTrue(slices.Equal(l.ended, []procwatch.FileID{file})))
			l.pass(time.Hour)
			qt.Check(t, qt.IsTrue(slices.Equal(l.ended, []procwatch.FileID{file, other})))
		},
		"does not end if a process maps the file again": func(t *testing.T, l *lingerTest) {
			l.back(file) // it has not gone
			for range 2 {
				l.leave(file, time.Second)
				l.back(file)
				l.pass(time.Hour)
			}
			qt.Check(t, qt.HasLen(l.ended, 0))
		},
		// The time is over while somebody has the lock, who then finds the file
		// in a process.
		"does not end by a timer that comes too late": func(t *testing.T, l *lingerTest) {
			l.leave(file, time.Second)
			time.Sleep(time.Minute) // with the lock
			l.back(file)
			l.leave(file, time.Hour)
			l.pass(time.Minute)
			qt.Check(t, qt.HasLen(l.ended, 0))
			l.pass(time.Hour)
			qt.Check(t, qt.HasLen(l.ended, 1))
		},
		"ends for all files at once": func(t *testing.T, l *lingerTest) {
			l.leave(file, time.Second)
			l.leave(other, time.Second)
			l.endAll(l.end)
			qt.Check(t,
				qt.IsTrue(slices.Contains(l.ended, file) && slices.Contains(l.ended, other)))
			l.pass(time.Hour)
			qt.Check(t, qt.HasLen(l.ended, 2))
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}
