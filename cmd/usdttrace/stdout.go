// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"os"
	"sync"
	"time"
)

const (
	// outputSize is how much is written at once where much comes.
	outputSize = 64 << 10

	// idleDelay is how long a line may wait for more to be written with it.
	idleDelay = 20 * time.Millisecond
)

// output is standard output: buffered where much is written, and flushed a
// moment after nothing more comes.
type output struct {
	file    *os.File
	colours bool

	mu      sync.Mutex
	pending []byte
	flusher *time.Timer
	armed   bool
	err     error // of the first write that failed; nothing is written after it
}

func newOutput(file *os.File) *output {
	o := &output{file: file, colours: isTerminal(file) && os.Getenv("NO_COLOR") == ""}
	o.flusher = time.AfterFunc(time.Hour, o.flushIdle)
	o.flusher.Stop()
	return o
}

// Write never writes a part of what it is given together with something else.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	o.pending = append(o.pending, text...)
	if len(o.pending) >= outputSize {
		o.write()
	} else if !o.armed {
		o.armed = true
		o.flusher.Reset(idleDelay)
	}
	return len(text), o.err
}

func (o *output) flushIdle() { _ = o.flush() }

// flush writes what is still to be written, and returns the error of any write
// so far.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = false
	o.write()
	return o.err
}

// close flushes for the last time.
func (o *output) close() error {
	o.flusher.Stop()
	return o.flush()
}

func (o *output) write() {
	if o.err == nil && len(o.pending) > 0 {
		_, o.err = o.file.Write(o.pending)
		var pathErr *os.PathError
		if errors.As(o.err, &pathErr) {
			o.err = pathErr.Err
		}
	}
	o.pending = o.pending[:0]
}

// failed tells whether nothing can be written any more.
func (o *output) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}
