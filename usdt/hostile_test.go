// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// mapperVariable makes the test binary a process of another user that maps all
// files of a directory as code: "user directory".
const mapperVariable = "GOUSDT_TEST_MAPPER"

// atMost returns how much of something there is: more in make test-hostile.
func atMost(short, complete int) int {
	if testprog.IsComplete() {
		return complete
	}
	return short
}

func beMapper(order string) error {
	var user int
	var dir string
	if _, err := fmt.Sscan(order, &user, &dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		if _, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
			return err
		}
		file.Close()
	}
	if err := syscall.Setuid(user); err != nil {
		return err
	}
	// So that its files in proc belong to the user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	fmt.Println("mapped")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
	return nil
}

// startMapper starts a process of another user that maps the files of a
// directory.
func startMapper(t *testing.T, user int, dir string) {
	t.Helper()
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	mapper := exec.Command(self)
	mapper.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", mapperVariable, user, dir))
	mapper.Stderr = os.Stderr
	stdin, err := mapper.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := mapper.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(mapper.Start()))
	t.Cleanup(func() {
		stdin.Close()
		_ = mapper.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "mapped\n"))
}

// A user maps more files with more probes than can be attached. What is
// attached stays within the limits, and a program of somebody else is attached
// within two seconds all the same.
func TestHostileUserWithTooManyProbes(t *testing.T) {
	testneeds.Root(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		many := flood{
			mode: mode, files: atMost(40, 500), sites: atMost(2_000, 9_000),
			limits: usdt.Limits{Sites: atMost(20_000, 0), OwnerSites: atMost(20_000, -1)},
		}
		if mode == usdt.ModeMulti {
			many.run(t)
			t.Run("with semaphores that nobody maps", (&flood{
				mode: mode, files: atMost(4, 20), sites: 1_250,
				note: func(int) testprog.Note { return testprog.Note{Semaphore: true} },
			}).run)
			t.Run("with very many arguments", (&flood{
				mode: mode, files: atMost(2, 4), sites: atMost(20_000, 130_000),
				limits: usdt.Limits{FileSites: -1, OwnerSites: -1},
				note: func(n int) testprog.Note {
					return testprog.Note{Arguments: fmt.Sprintf("8@$%d 4@$%d -4@$%d 8@$%d", n, n+1, n+2, n+3)}
				},
			}).run)
			return
		}
		t.Run("files with too many are refused", many.run)
		// The sites are all at one place, so that each takes a perf event.
		apart := flood{
			mode: mode, files: atMost(20, 100), sites: 20,
			limits: usdt.Limits{OwnerDescriptors: -1, Descriptors: 200},
		}
		t.Run("each with a perf event", apart.run)
	})
}

// A flood is files with probes that a hostile user maps.
type flood struct {
	mode         usdt.Mode
	files, sites int
	limits       usdt.Limits
	note         func(n int) testprog.Note // nil: with nothing but names
}

func (h *flood) run(t *testing.T) {
	files, sites, limits := h.files, h.sites, h.limits
	c := newCollector(t, &usdt.ManagerOptions{Mode: h.mode})
	dir, err := os.MkdirTemp("", "hostile")
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(dir)
	notes := make([]testprog.Note, sites)
	for i := range notes {
		if h.note != nil {
			notes[i] = h.note(i)
		}
		notes[i].Provider, notes[i].Name = "hostile", fmt.Sprint("probe", i)
	}
	for i := range files {
		testprog.WriteNotes(t, filepath.Join(dir, fmt.Sprint("file", i)), notes)
	}
	const nobody = 65534
	startMapper(t, nobody, dir)
	innocent := filepath.Join(t.TempDir(), "innocent")
	copyFile(t, innocent, testprog.Path(t, "target-static"))

	var mu sync.Mutex
	var attachedAt time.Time
	var errs []error
	some := make(chan struct{}, 1)
	w, err := c.Watch(&usdt.WatchOptions{
		Limits: limits,
		Changed: func(changes *usdt.WatchChanges) {
			mu.Lock()
			defer mu.Unlock()
			for _, err := range changes.Errors { // of others there may be any
				if text := err.Error(); strings.Contains(text, dir) || strings.Contains(text, innocent) {
					errs = append(errs, err)
				}
			}
			for _, a := range changes.Attached {
				if a.Path == innocent && attachedAt.IsZero() {
					attachedAt = time.Now()
				}
			}
			select {
			case some <- struct{}{}:
			default:
			}
		},
	}, watching(t, c.Collect3, "hostile:*", "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	costs := testprog.StartCosts(t)
	go func() { ended <- w.Run(ctx, time.Second) }()
	<-some

	started := time.Now()
	process := testprog.Start(t, innocent)
	isAttached := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !attachedAt.IsZero()
	}
	for deadline := started.Add(testneeds.Patience(30 * time.Second)); !isAttached(); {
		if time.Now().After(deadline) {
			t.Fatalf("not attached: %+v", w.Stats())
		}
		time.Sleep(10 * time.Millisecond)
	}
	late := attachedAt.Sub(started)
	process.Fire("three", 1)
	for int(c.next(t, 1)[0].Pid) != process.PID {
		// Others may run the same program.
	}
	qt.Check(t, qt.IsTrue(late < testneeds.Patience(2*time.Second)), qt.Commentf("attached after %v", late))

	const settle = 3 * time.Second
	time.Sleep(settle) // what else is attached meanwhile is what is measured
	stats := w.Stats()
	most := limits.Sites
	if most == 0 {
		most = 200_000
	}
	qt.Check(t, qt.IsTrue(stats.Sites <= most), qt.Commentf("%+v", stats))
	if limits.Descriptors > 0 {
		// How many a file takes is known when it has been attached.
		qt.Check(t, qt.IsTrue(stats.Descriptors <= limits.Descriptors+2*sites), qt.Commentf("%+v", stats))
	}
	costs.Report(4, fmt.Sprintf("%d files with %d probes each (%s)", files, sites, h.mode),
		"1,000 files with 10,000: 6.1 GB, 56 s of CPU", fmt.Sprintf("%d sites of them attached", stats.Sites), late)
	stop()
	qt.Check(t, qt.IsNil(<-ended))
	closing := time.Now()
	qt.Check(t, qt.IsNil(w.Close()))
	t.Logf("closed in %v", time.Since(closing).Round(time.Millisecond))
	mu.Lock()
	defer mu.Unlock()
	qt.Check(t, qt.IsTrue(len(errs) <= 3*files), qt.Commentf("%d errors", len(errs)))
	for _, err := range errs {
		if strings.Contains(err.Error(), innocent) {
			t.Error(err)
		}
	}
}
