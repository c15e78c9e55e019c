// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package follow

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// In whatever order processes start, execute and end, files are written to and
// calls block, fail and answer, what is attached in the end is what processes
// map. Nothing is attached twice, and Close leaves nothing. A failure names its
// seed.
func TestFollowerIsAsItsModel(t *testing.T) {
	began := time.Now()
	for n := 0; n < testprog.Soak(5, 1<<30) && !t.Failed() &&
		time.Since(began) < testprog.Soak(10*time.Second, 10*time.Minute); n++ {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %#x", seed), func(t *testing.T) {
			followAtRandom(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func followAtRandom(t *testing.T, random *rand.Rand) {
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
		is, how := random.IntN(100) < trouble, random.IntN(4)
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
	choose := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	f := w.follower(Options{Parts: 1 + choose(2),
		Linger: time.Duration(choose(3)-1) * 20 * time.Millisecond})
	f.patience = 20 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	runs := choose(2) == 0
	if runs {
		running.Go(func() { _ = f.Run(ctx, 20*time.Millisecond) })
	}

	processes := make(map[int][]string)
	var log []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(log, "; "))
		}
	}()
	trouble = 20
	for range testprog.Soak(60, 300) {
		pid := 1 + choose(4)
		switch op := choose(8); op {
		case 0, 1, 2:
			var files []string
			for _, name := range []string{"a", "b", "c", "d"} {
				if choose(2) == 0 {
					files = append(files, name)
				}
			}
			log = append(log, fmt.Sprint("start ", pid, files))
			w.startAt(pid, 0x1000*(1+choose(9)), files...)
			processes[pid] = files
		case 3:
			log = append(log, fmt.Sprint("end ", pid))
			w.end(pid)
			delete(processes, pid)
		case 4:
			if files := processes[pid]; len(files) > 0 {
				name := files[choose(len(files))]
				log = append(log, "write "+name)
				w.overwrite(name, fmt.Sprint("p", choose(3)))
				w.mu.Lock()
				written := w.isWritten[name]
				w.mu.Unlock()
				if written != nil {
					running.Go(written)
				}
			}
		case 5:
			log = append(log, fmt.Sprint("sync ", pid))
			running.Go(func() { _ = f.Sync(ctx, pid) })
		case 6:
			log = append(log, "sync all")
			running.Go(func() { _ = f.SyncAll(ctx) })
		case 7:
			time.Sleep(time.Duration(choose(40)) * time.Millisecond)
		}
	}
	if choose(4) == 0 {
		log = append(log, "close")
		running.Go(func() { qt.Check(t, qt.IsNil(f.Close())) })
		qt.Check(t, qt.IsNil(f.Close())) // it leaves nothing, which w.follower checks
		stop()
		running.Wait()
		return
	}
	mu.Lock()
	trouble = 0
	mu.Unlock()
	want := make(map[string]bool)
	for pid, files := range processes {
		for _, name := range files {
			for part := range f.opts.Parts {
				if a := (&fake{part, name, pid}); w.perFile(name) {
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
		_ = f.SyncAll(ctx) // what is not there any more is reported
		f.following.Lock()
		defer f.following.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(has)
		for a := range w.attached {
			has[a.String()] = true
		}
		return maps.Equal(has, want) && len(w.attached) == len(want) && len(f.attached) == len(want) &&
			len(f.calls) == 0
	}
	until := time.Now().Add(testneeds.Patience(10 * time.Second))
	for ; !is(); time.Sleep(5 * time.Millisecond) {
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
