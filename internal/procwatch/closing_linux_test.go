// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// A file system on which closing blocks holds up no other one, and no caller
// but the first.
func TestClosingGoesOnWithoutAFileSystemThatBlocks(t *testing.T) {
	var c closing
	unblock, done := make(chan struct{}), make(chan int, 3)
	c.close(1, func() { <-unblock; done <- 1 })
	c.close(1, func() { done <- 2 })
	c.close(2, func() { done <- 3 })
	qt.Check(t, qt.Equals(<-done, 3))
	close(unblock)
	qt.Check(t, qt.Equals(<-done, 1))
	qt.Check(t, qt.Equals(<-done, 2))
}

// A file that cannot be closed still has its descriptor.
func TestCacheCountsAFileUntilItIsClosed(t *testing.T) {
	f, c := newFixture(t), newCache()
	file := acquire(t, c, mapped(t, f, 1, memoryProbes.write(t, t.TempDir(), "lib.so")))
	unblock := make(chan struct{})
	c.closing.close(file.ID().Device, func() { <-unblock })
	file.Release()
	c.mu.Lock()
	qt.Check(t, qt.Equals(c.opened, 1))
	c.mu.Unlock()
	close(unblock)
	testneeds.Await(t, 10*time.Second, "it is closed", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.opened == 0
	})
}
