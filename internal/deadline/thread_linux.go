// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// thread is the number of a thread of this process.
type thread int

func thisThread() thread { return thread(unix.Gettid()) }

// active returns how long the thread has waited for a processor, and if busy
// also how long it has used one; 0 if that is not known.
func (t thread) active(busy bool) (active time.Duration) {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", t)); err == nil {
		var ran time.Duration
		_, _ = fmt.Sscan(string(text), &ran, &active)
	}
	if busy {
		active += t.processorTime()
	}
	return active
}

// ProcessorTime returns how long the calling thread has used a processor, for a
// goroutine that does not leave its thread, such as that of a call; 0 if it is
// not known.
func ProcessorTime() time.Duration { return thisThread().processorTime() }

// processorTime returns how long the thread has used a processor, 0 if that is
// not known.
func (t thread) processorTime() time.Duration {
	// The clock of a thread, as pthread_getcpuclockid(3) makes it.
	const perThread, scheduled = 4, 2
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^int(t)<<3|perThread|scheduled), &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// UserOf returns the user that owns a file, if the system tells.
func UserOf(info os.FileInfo) (uint32, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}
