// SPDX-License-Identifier: BSD-2-Clause

package messages

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// writeSize is how much is written at once where much comes. To wake up the
	// thread that writes takes as long as printing hundreds of events: a few
	// hundred of them in JSON would fit into a pipe's 64 KiB.
	writeSize = 256 << 10

	// idleDelay is how long a text may wait for more to be written with it.
	idleDelay = 20 * time.Millisecond
)

// ErrNobodyReads is the error of a [Writer] after [Writer.Hurry].
var ErrNobodyReads = errors.New("nobody reads the output")

// Writer writes to a file that may be a pipe which nobody reads, and so may
// block for ever: a goroutine of its own writes, so that all who wait for it
// can give up. Texts are written together where many come, and a moment after
// the last one. The methods may be called concurrently.
type Writer struct {
	file io.Writer
	idle *time.Timer

	mu       sync.Mutex
	changed  *sync.Cond
	pending  []byte
	spare    []byte // for what comes while pending is written
	writing  bool   // what was pending before is being written
	wanted   bool   // what is pending is to be written now
	armed    bool   // idle will ask for that
	writes   int
	patience time.Duration // that a write may take, 0 for ever
	err      error
	failed   func() // called after an error
}

// NewWriter returns a writer to a file. Flush it at the end.
func NewWriter(file io.Writer) *Writer {
	w := &Writer{file: file}
	w.changed = sync.NewCond(&w.mu)
	w.idle = time.AfterFunc(time.Hour, w.flushIdle)
	w.idle.Stop()
	return w
}

// Write takes a text, which is written as a whole. It waits while much is
// unwritten. It returns the error of any write so far.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.pending) >= writeSize {
		w.start()
		w.changed.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.pending = append(w.pending, text...)
	switch {
	case len(w.pending) >= writeSize:
		w.start()
	case !w.armed:
		w.armed = true
		w.idle.Reset(idleDelay)
	}
	return len(text), nil
}

// Flush waits until everything is written, and returns the error of any write
// so far.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (len(w.pending) > 0 || w.writing) {
		w.start()
		w.changed.Wait()
	}
	return w.err
}

// Err returns the error of any write so far. After one, nothing is written.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// OnError has a function called when a write fails, now if one has.
func (w *Writer) OnError(do func()) {
	w.mu.Lock()
	w.failed = do
	err := w.err
	w.mu.Unlock()
	if err != nil {
		do()
	}
}

// Hurry says how long a write may take from now on. What takes longer is given
// up, and all that comes after it.
func (w *Writer) Hurry(patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience = patience
	w.limit()
}

// limit gives up the present write if it takes too long.
func (w *Writer) limit() {
	if !w.writing || w.patience == 0 {
		return
	}
	number := w.writes
	time.AfterFunc(w.patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.writing && w.writes == number && w.err == nil {
			w.fail(ErrNobodyReads)
		}
	})
}

func (w *Writer) flushIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	w.start()
}

// start has what is pending written, now or after what is being written.
func (w *Writer) start() {
	w.wanted = true
	if !w.writing && len(w.pending) > 0 && w.err == nil {
		w.writing = true
		go w.write(w.take())
	}
}

// take returns what is pending, to be written at once. There is room again.
func (w *Writer) take() []byte {
	text := w.pending
	w.pending, w.spare, w.wanted = w.spare[:0], nil, false
	w.writes++
	w.limit()
	w.changed.Broadcast()
	return text
}

// write writes until nothing more is wanted.
func (w *Writer) write(text []byte) {
	for {
		_, err := w.file.Write(text)
		w.mu.Lock()
		w.spare = text
		if err != nil && w.err == nil {
			w.fail(unwrapPath(err))
		}
		if w.writing = w.wanted && len(w.pending) > 0 && w.err == nil; !w.writing {
			w.changed.Broadcast()
			w.mu.Unlock()
			return
		}
		text = w.take()
		w.mu.Unlock()
	}
}

func (w *Writer) fail(err error) {
	w.err = err
	w.pending = nil
	w.changed.Broadcast()
	if w.failed != nil {
		go w.failed() // which may use the writer
	}
}

// unwrapPath returns an error without the name of the file, which is known.
func unwrapPath(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
