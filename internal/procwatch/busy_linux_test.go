// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// An owner is not charged for the time in which a scan waits for a processor:
// on a busy machine its processes would be scanned too late.
func TestScanIsNotChargedForABusyMachine(t *testing.T) {
	if before, _ := os.ReadFile("/proc/thread-self/schedstat"); len(before) == 0 {
		testneeds.Missing(t, "this kernel does not tell how long a thread waits for a processor")
	}
	var allowed, one unix.CPUSet
	qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(0, &allowed)))
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	// onOne runs a function on a thread of that processor, which then ends.
	onOne := func(run func()) (ended chan error) {
		ended = make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			err := unix.SchedSetaffinity(0, &one)
			run()
			ended <- err
		}()
		return ended
	}
	f := newFixture(t)
	p := fakeProcess{pid: 1, startTime: 1, size: 1, img: 1}
	for i := range uint64(20_000) {
		p.maps = append(p.maps, fakeMap{start: i << 12, end: (i + 1) << 12, permissions: "rw-p"})
	}
	f.put(p)
	w := NewWatcher(&WatcherOptions{FS: f.fs()})
	defer w.Close()
	var stop atomic.Bool
	others := onOne(func() {
		for !stop.Load() {
		}
	})
	var all, used, took time.Duration
	isCharged := true
	err := <-onOne(func() {
		// A scan may also have to wait for something else.
		for until := time.Now().Add(20 * time.Second); isCharged && time.Now().Before(until); {
			task := task{pid: 1, thoroughly: true, asked: true}
			before, began := deadline.ProcessorTime(), time.Now()
			w.look(&task)
			all, used, took = time.Since(began), deadline.ProcessorTime()-before, task.took
			isCharged = all < 2*used+time.Millisecond || took > (used+all)/2 || took == 0
		}
	})
	stop.Store(true)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(<-others))
	qt.Check(t, qt.IsFalse(isCharged), qt.Commentf("%v of %v, used %v", took, all, used))
}
