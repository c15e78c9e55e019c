// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"io"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
)

// A file system that does not let its files be closed holds up no others, and
// of its own files only the first.
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

// slowCloser is a file whose file system takes its time to close it.
type slowCloser struct {
	io.ReaderAt
	closing func()
}

func (f slowCloser) Close() error { f.closing(); return nil }

// A file that cannot be closed still has its descriptor.
func TestCacheCountsAFileUntilItIsClosed(t *testing.T) {
	c := NewCache()
	qt.Assert(t, qt.IsNil(c.takeDescriptor("")))
	closed := -1
	f := c.enter(FileID{inode: 1})
	f.elf, f.reader = new(elfnote.File), slowCloser{closing: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		closed = c.opened
	}}
	f.Release()
	qt.Check(t, qt.Equals(closed, 1))
	qt.Check(t, qt.Equals(c.opened, 0))
}
