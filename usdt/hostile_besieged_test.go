// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/watch"
)

// atMost returns the size of a test: complete in make test-hostile.
func atMost(short, complete int) int {
	if testprog.IsComplete() {
		return complete
	}
	return short
}

// besieged is a Watch on a host where a hostile user maps the files of a
// directory.
type besieged struct {
	*watch.Watch
	t     *testing.T
	c     *collector
	costs *testprog.Costs
	stop  func()
	ended chan error
	late  time.Duration // how late another user's program was attached

	mu       sync.Mutex
	innocent string        // the program
	attached chan struct{} // closed when it is attached
	errs     []error       // about files of the directory
}

// besiege starts a Watch, and returns when it has seen something.
func besiege(t *testing.T, c *collector, dir string, limits watch.Limits) *besieged {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	b := &besieged{t: t, c: c, stop: stop, ended: make(chan error, 1)}
	some := make(chan struct{}, 1)
	var err error
	b.Watch, err = c.Watch(&watch.Options{
		Limits: limits,
	}, func(changes *watch.Changes[*watch.Attachment]) {
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

// attachInnocent starts a program of another user, which must be attached
// within two seconds, and gets its event.
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
	qt.Check(b.t, qt.IsTrue(late < testprog.InTime(2*time.Second)),
		qt.Commentf("attached after %v", late))
	b.late = max(b.late, late)
}

// said returns the errors about files of the directory.
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
