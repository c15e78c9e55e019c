// SPDX-License-Identifier: BSD-2-Clause

// Package settle waits until a file that is being written to is whole. What was
// written to while it was attached is attached again then.
package settle

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/attaching"
)

// mostPause is the longest time between two looks at a file that is being
// written to.
const mostPause = 50 * time.Millisecond

// File waits until no process has a file open for writing, and reports whether
// that came within the patience. On file systems without leases it waits until
// the file has stopped changing. The file is as for [attaching.Take].
func File(file *os.File, patience time.Duration) bool {
	var last os.FileInfo
	for pause, until := time.Millisecond, time.Now().Add(patience); ; pause = min(2*pause, mostPause) {
		l := attaching.Take(int(file.Fd()), true, func() {})
		reason := l.Reason()
		l.Return()
		if reason == nil {
			return true
		}
		if now, err := file.Stat(); err == nil && !errors.Is(reason, syscall.EAGAIN) {
			if last != nil && pause == mostPause && now.Size() == last.Size() &&
				now.ModTime().Equal(last.ModTime()) {
				return true
			}
			last = now
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
}
