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
	"slices"
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
// files of a directory as code, and then one of them again and again: "user
// milliseconds directory". With 0 milliseconds it does not.
const mapperVariable = "GOUSDT_TEST_MAPPER"

// nobody is a user who has no processes on most hosts.
const nobody = 65534

// atMost returns how much of something there is: more in make test-hostile.
func atMost(short, complete int) int {
	if testprog.IsComplete() {
		return complete
	}
	return short
}

func beMapper(order string) error {
	var user, every int
	var dir string
	if _, err := fmt.Sscan(order, &user, &every, &dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var file *os.File
	mapCode := func() ([]byte, error) {
		return unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	}
	var code []byte
	for _, entry := range entries {
		if file != nil {
			file.Close()
		}
		if file, err = os.Open(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
		if code, err = mapCode(); err != nil {
			return err
		}
	}
	if err := syscall.Setuid(user); err != nil {
		return err
	}
	// So that its files in proc belong to the user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	fmt.Println("mapped")
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
		os.Exit(0)
	}()
	for every > 0 {
		time.Sleep(time.Duration(every) * time.Millisecond)
		if err := unix.Munmap(code); err != nil {
			return err
		}
		if code, err = mapCode(); err != nil {
			return err
		}
	}
	select {}
}

// startMapper starts a process of another user that maps the files of a
// directory, and one of them again in that many milliseconds. It returns what
// ends it before the test does.
func startMapper(t *testing.T, user, every int, dir string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	mapper := exec.Command(self)
	mapper.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", mapperVariable, user, every, dir))
	mapper.Stderr = os.Stderr
	stdin, err := mapper.StdinPipe() // kept open
	qt.Assert(t, qt.IsNil(err))
	stdout, err := mapper.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(mapper.Start()))
	kill = sync.OnceFunc(func() {
		_ = mapper.Process.Kill() // it may have ended
		_ = mapper.Wait()
		stdin.Close()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(line, "mapped\n"))
	return kill
}

// besieged is a Watch on a host where somebody maps the files of a directory.
type besieged struct {
	*usdt.Watch
	t     *testing.T
	c     *collector
	costs *testprog.Costs
	stop  func()
	ended chan error
	late  time.Duration // how late somebody else's program was attached

	mu       sync.Mutex
	innocent string        // the program
	attached chan struct{} // closed when it is attached
	errs     []error       // about files of the directory
}

// besiege starts a Watch, and returns when it has seen something.
func besiege(t *testing.T, c *collector, dir string, limits usdt.Limits) *besieged {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b := &besieged{t: t, c: c, stop: stop, ended: make(chan error, 1)}
	some := make(chan struct{}, 1)
	var err error
	b.Watch, err = c.Watch(&usdt.WatchOptions{
		Limits: limits,
		Changed: func(changes *usdt.WatchChanges) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, err := range changes.Errors { // of others there may be any
				switch text := err.Error(); {
				case strings.Contains(text, dir):
					b.errs = append(b.errs, err)
				case b.innocent != "" && strings.Contains(text, b.innocent):
					t.Error(err)
				}
			}
			for _, a := range changes.Attached {
				if b.attached != nil && a.Path == b.innocent {
					close(b.attached)
					b.attached = nil
				}
			}
			select {
			case some <- struct{}{}:
			default:
			}
		},
	}, watching(t, c.Collect3, "hostile:*", "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { // of a test that has failed
		stop()
		_ = b.Close()
	})
	b.costs = testprog.StartCosts(t)
	go func() { b.ended <- b.Run(ctx, time.Second) }()
	<-some
	return b
}

// attachInnocent starts a program of somebody else, has it attached within two
// seconds, and gets its event.
func (b *besieged) attachInnocent() {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "innocent")
	copyFile(b.t, path, testprog.Path(b.t, "target-static"))
	attached := make(chan struct{})
	b.mu.Lock()
	b.innocent, b.attached = path, attached
	b.mu.Unlock()
	started := time.Now()
	process := testprog.Start(b.t, path)
	select {
	case <-attached:
	case <-time.After(testneeds.Patience(30 * time.Second)):
		b.t.Fatalf("not attached: %+v", b.Stats())
	}
	late := time.Since(started)
	process.Fire("three", 1)
	for int(b.c.next(b.t, 1)[0].Pid) != process.PID {
		// Others may run the same program.
	}
	qt.Check(b.t, qt.IsTrue(late < testneeds.Patience(2*time.Second)), qt.Commentf("attached after %v", late))
	b.late = max(b.late, late)
}

// said returns what was said about files of the directory.
func (b *besieged) said() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errs)
}

// end closes the Watch.
func (b *besieged) end() {
	b.t.Helper()
	b.stop()
	qt.Check(b.t, qt.IsNil(<-b.ended))
	closing := time.Now()
	qt.Check(b.t, qt.IsNil(b.Close()))
	b.t.Logf("closed in %v", time.Since(closing).Round(time.Millisecond))
}
