// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// mountImage mounts overlayfs as a container runtime does, and returns the
// paths of a program in the layer below and in the container.
func mountImage(t *testing.T, program string) (layer, contained string) {
	t.Helper()
	testneeds.Root(t)
	dir := t.TempDir()
	for _, sub := range []string{"layer", "upper", "work", "merged"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, sub), 0o755)))
	}
	layer, contained = filepath.Join(dir, "layer", "program"),
		filepath.Join(dir, "merged", "program")
	copyFile(t, layer, program)
	err := unix.Mount("overlay", filepath.Join(dir, "merged"), "overlay", 0,
		fmt.Sprintf("lowerdir=%s/layer,upperdir=%[1]s/upper,workdir=%[1]s/work", dir))
	if errors.Is(err, unix.ENODEV) {
		testneeds.Missing(t, "needs overlayfs in the kernel")
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() {
		qt.Check(t, qt.IsNil(unix.Unmount(filepath.Join(dir, "merged"), unix.MNT_DETACH)))
	})
	return layer, contained
}

// forge makes the file of a hostile user claim to be another one.
func forge(t *testing.T, hostile *testprog.Hostile, path string) {
	t.Helper()
	var st unix.Statx_t
	qt.Assert(t, qt.IsNil(unix.Statx(unix.AT_FDCWD, path, 0,
		unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)))
	command := fmt.Sprintf("forge %d %d", st.Ino, st.Size)
	for _, at := range []unix.StatxTimestamp{st.Btime, st.Mtime, st.Ctime} {
		command += fmt.Sprintf(" %d", at.Sec*1e9+int64(at.Nsec))
	}
	hostile.Do(command)
}

// A user's file that claims to be another file does not hide the probes of that
// file, although it was seen first and has none.
func TestHostileUserWhoForgesAFile(t *testing.T) {
	_, contained := mountImage(t, testprog.Path(t, "target-static"))
	onHost := filepath.Join(t.TempDir(), "program")
	copyFile(t, onHost, testprog.Path(t, "target-static"))
	for name, path := range map[string]string{"of a container": contained, "of the host": onHost} {
		t.Run(name, func(t *testing.T) {
			hostile := testprog.StartHostile(t, 1000, testprog.Path(t, "launcher"))
			forge(t, hostile, path)
			hostile.Do("map " + hostile.File)
			c := newCollector(t, nil)
			w, err := c.Watch(nil, nil, watching(t, c.Collect3, "gousdt_test:three")...)
			qt.Assert(t, qt.IsNil(err))
			defer w.Close()
			// This makes it the first.
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), hostile.PID)))
			qt.Assert(t, qt.HasLen(w.Attachments(), 0))

			const hits = 55
			costs := testprog.StartCosts(t)
			victim := testprog.Start(t, path)
			started := time.Now()
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), victim.PID)))
			late := time.Since(started)
			victim.Fire("three", hits)
			for _, event := range c.next(t, hits) {
				qt.Assert(t, qt.Equals(int(event.Pid), victim.PID))
			}
			c.silent(t)
			costs.Report(1, "a file says that it is one "+name, "0 of 55 hits seen",
				"55 of 55", late)
		})
	}
}

// A program of an image that is run by a container and on the host as well is
// traced in both.
func TestFileOfALayerIsSeenThroughOverlayfsAndWithout(t *testing.T) {
	for name, first := range map[string]int{"container first": 1, "host first": 0} {
		t.Run(name, func(t *testing.T) {
			layer, contained := mountImage(t, testprog.Path(t, "target-static"))
			processes := []*testprog.Process{testprog.Start(t, layer), testprog.Start(t, contained)}
			c := newCollector(t, nil)
			w, err := c.Watch(nil, nil, watching(t, c.Collect3, "gousdt_test:three")...)
			qt.Assert(t, qt.IsNil(err))
			defer w.Close()
			for _, i := range []int{first, 1 - first} {
				qt.Assert(t, qt.IsNil(w.Sync(t.Context(), processes[i].PID)))
			}
			for _, process := range processes {
				process.Fire("three", 1)
				// A hit of the one before may come twice.
				for int(c.next(t, 1)[0].Pid) != process.PID {
				}
			}
		})
	}
}

// Files and processes that do not answer are set aside, and named. Others are
// seen and attached within two seconds, and closing takes no more than four.
func TestHostileUsersWhoseFilesDoNotAnswer(t *testing.T) {
	c := newCollector(t, nil) // and closed after the servers have ended
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	dir := t.TempDir()
	innocent, library := filepath.Join(dir, "innocent"), filepath.Join(dir, "library.so")
	copyFile(t, innocent, testprog.Path(t, "target-pie"))
	copyFile(t, library, testprog.Path(t, "libtarget.so"))
	var mu sync.Mutex
	var told strings.Builder
	attached, changed := make(chan string, 10), make(chan struct{}, 1)
	w, err := c.Watch(&watch.Options{
		Filter: func(p proc.Process) bool {
			exe, err := p.Executable()
			return hostile[p.PID] != "" || err == nil && filepath.Dir(exe) == dir
		},
	}, func(changes *watch.Changes[*watch.Attachment]) {
		mu.Lock()
		defer mu.Unlock()
		for _, err := range changes.Errors {
			fmt.Fprintln(&told, err)
		}
		for _, a := range changes.Attached {
			attached <- a.Path
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}, watching(t, c.Collect3, "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	costs := testprog.StartCosts(t)
	process := testprog.Start(t, innocent)
	began := time.Now()
	go func() { ended <- w.Run(ctx, time.Second) }()
	for <-attached != innocent {
	}
	late := time.Since(began)
	process.Fire("three", 1)
	qt.Check(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
	began = time.Now()
	process.Do("load " + library) // while the others are set aside
	for <-attached != library {
	}
	late = max(late, time.Since(began))
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)),
		qt.Commentf("attached after %v", late))

	isNamed := func(pid int) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(told.String(), fmt.Sprintf("process %d", pid))
	}
	deadline := time.After(testneeds.Patience(10 * time.Second))
	for pid, what := range hostile {
		for what != testprog.CanBeAttached && !isNamed(pid) {
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s, of process %d, is not named", what, pid)
			}
		}
	}
	blocked := w.Stats().Blocked
	qt.Check(t, qt.IsTrue(blocked >= 3), qt.Commentf("%d", blocked))
	stop()
	closing := time.Now()
	qt.Check(t, qt.ErrorIs(<-ended, context.Canceled))
	// What the kernel may attach yet is named.
	err = w.Close()
	qt.Check(t, qt.IsTrue(err == nil || errors.Is(err, proc.ErrBlocked)), qt.Commentf("%v", err))
	took := time.Since(closing)
	qt.Check(t, qt.IsTrue(took < testprog.InTime(4*time.Second)),
		qt.Commentf("closed after %v", took))
	costs.Report(2, fmt.Sprintf("%d files and processes that do not answer", len(hostile)),
		"nothing seen any more, nor ended by SIGTERM",
		fmt.Sprintf("set aside, closed in %.2f s", took.Seconds()), late)
}
