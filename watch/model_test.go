// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
)

// In whatever order processes start, execute and end, files are written to and
// calls block, fail and answer, what is attached in the end is what processes
// map. Nothing is attached twice, and Close leaves nothing. A failure names its
// seed.
func TestWatchIsAsItsModel(t *testing.T) {
	const steps = 60
	for n := 0; n < testprog.Soak(10_000, 1_000_000) && !t.Failed(); n += steps {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %#x", seed), func(t *testing.T) {
			now := time.Now()
			whileNothingGoesOn(t, func(t *testing.T) {
				time.Sleep(time.Until(now)) // files tell the time, too
				followAtRandom(t, steps, seed)
			})
		})
	}
}

// pause is the time between passes.
const pause = 100 * time.Millisecond

func followAtRandom(t *testing.T, steps int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	drivers := rand.New(rand.NewPCG(seed, 1)) // does not shift the steps
	w := newWorld(t)
	w.start(1, "a", "b", "c", "d") // makes the files
	w.end(1)
	w.start(9) // a proc file system without any process is none
	w.noLease = random.IntN(2) == 0
	w.perFile = func(file string) bool { return file < "c" }
	w.detaching = func() { time.Sleep(5 * time.Millisecond) }
	var mu sync.Mutex // of what the driver does
	trouble := 0      // of a hundred calls that block or fail
	w.fail = func(int, string) error {
		mu.Lock()
		is, how := drivers.IntN(100) < trouble, drivers.IntN(4)
		mu.Unlock()
		switch {
		case !is:
		case how == 0:
			return errFull
		case how == 1:
			return errStarting
		default:
			time.Sleep(time.Duration(how*how) * 10 * time.Millisecond)
		}
		return nil
	}
	choose := random.IntN
	f := w.followerOf(1+choose(2),
		Options{Linger: time.Duration(choose(3)-1) * 20 * time.Millisecond})
	f.patience = 20 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	endRun := func() {}
	run := func() {
		run, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		endRun = func() { cancel(); <-ended }
		running.Go(func() { _ = f.Run(run, pause); close(ended) })
	}
	if choose(2) == 0 {
		run()
	}

	processes := make(map[int][]string)
	var log []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(log, "; "))
		}
	}()
	trouble = 20
	// tell has the kernel tell what has happened, as it mostly does.
	tell := func(kind uint64, body ...uint32) {
		switch choose(20) {
		case 0:
			w.happens(recordLost, 0, 0, 1, 0)
		case 1, 2, 3: // a pass finds it
		default:
			w.happens(kind, body...)
		}
	}
	for range steps {
		pid := 1 + choose(4)
		switch op := choose(9); op {
		case 0:
			parent := 1 + choose(4)
			log = append(log, fmt.Sprint("fork ", pid, " of ", parent))
			w.startAt(pid, 0x1000*(1+choose(9)), processes[parent]...)
			processes[pid] = processes[parent]
			tell(recordFork, uint32(pid), uint32(parent), uint32(pid), uint32(parent))
		case 1, 2:
			var files []string
			for _, name := range []string{"a", "b", "c", "d"} {
				if choose(2) == 0 {
					files = append(files, name)
				}
			}
			log = append(log, fmt.Sprint("start ", pid, files))
			w.startAt(pid, 0x1000*(1+choose(9)), files...)
			processes[pid] = files
			of := uint32(pid)
			tell(recordExec, of, of, 0)
			for _, name := range files {
				tell(recordMapped, w.mapping(of, name)...)
			}
		case 3:
			log = append(log, fmt.Sprint("end ", pid))
			w.end(pid)
			delete(processes, pid)
			tell(recordExit, uint32(pid), 1, uint32(pid), 1)
		case 4:
			if files := processes[pid]; len(files) > 0 {
				name := files[choose(len(files))]
				log = append(log, "write "+name)
				file, err := os.OpenFile(filepath.Join(w.files, name), os.O_WRONLY|os.O_TRUNC, 0)
				qt.Assert(t, qt.IsNil(err))
				time.Sleep(time.Duration(choose(3)) * time.Millisecond) // it has no probes meanwhile
				w.overwrite(name, fmt.Sprint("p", choose(3)))
				file.Close()
				w.mu.Lock()
				written := w.isWritten[name]
				w.mu.Unlock()
				if written != nil && !w.noLease {
					running.Go(written)
				}
			}
		case 5:
			log = append(log, fmt.Sprint("sync ", pid))
			running.Go(func() { _ = f.Sync(ctx, pid) })
		case 6:
			log = append(log, "sync all")
			running.Go(func() { _ = f.Sync(ctx, 0) })
		case 7:
			if choose(4) == 0 {
				log = append(log, "run")
				endRun()
				run()
			}
		case 8:
			time.Sleep(time.Duration(choose(40)) * time.Millisecond)
		}
	}
	if choose(4) == 0 {
		log = append(log, "close")
		running.Go(func() { qt.Check(t, qt.IsNil(f.Close())) })
		qt.Check(t, qt.IsNil(f.Close())) // it leaves nothing, which w.follower checks
		stop()
		running.Wait()
		time.Sleep(time.Minute) // until the last call has answered
		return
	}
	mu.Lock()
	trouble = 0
	mu.Unlock()
	want := make(map[string]bool)
	for pid, files := range processes {
		for _, name := range files {
			for part := range f.parts {
				if a := (&fake{part: part, file: name, pid: pid}); w.perFile(name) {
					want[a.String()] = true
				} else {
					a.pid = 0
					want[a.String()] = true
				}
			}
		}
	}
	has := make(map[string]bool)
	is := func() bool {
		_ = f.Sync(ctx, 0) // what is not there any more is reported
		f.following.Lock()
		defer f.following.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(has)
		for a := range w.attached {
			has[a.String()] = !a.written
		}
		return maps.Equal(has, want) && len(w.attached) == len(want) && len(f.attached) == len(want) &&
			len(f.calls) == 0
	}
	// Fewer passes than after which the mappings of an idle process are read.
	until := time.Now().Add(10 * time.Second)
	for ; !is(); time.Sleep(pause) {
		if time.Now().After(until) {
			t.Errorf("it has attached %v, not %v", slices.Sorted(maps.Keys(has)),
				slices.Sorted(maps.Keys(want)))
			break
		}
	}
	qt.Check(t, qt.Equals(f.countUnanswered(), 0))
	stop()
	running.Wait()
}
