// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Output is a file for output. It is opened at the beginning, so that a wrong
// path costs nothing, and keeps its contents until there is output.
type Output struct {
	file    *os.File
	created bool // it was not there before

	mu   sync.Mutex // a writer may have been given up
	kept bool       // though it was created
	size int64
	// whole is the size up to the last line that is written as a whole.
	whole int64
}

// CreateOutput opens a file for output.
func CreateOutput(path string) (*Output, error) {
	_, missing := os.Stat(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	return &Output{file: file, created: errors.Is(missing, os.ErrNotExist)}, nil
}

// Replace deletes the contents of the file: now there is output.
func (f *Output) Replace() {
	f.mu.Lock()
	f.kept = true
	f.mu.Unlock()
	_ = f.file.Truncate(0) // a pipe or a terminal has no size
}

// Write writes lines. If that fails, a line that is cut is removed again, and
// [Output.Abandon] removes a file that has no line.
func (f *Output) Write(text []byte) (int, error) {
	n, err := f.file.Write(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := bytes.LastIndexByte(text[:n], '\n'); end >= 0 {
		f.whole = f.size + int64(end) + 1
	}
	f.size += int64(n)
	if err != nil {
		_ = f.file.Truncate(f.whole) // not of a pipe
		f.kept = f.whole > 0
	}
	return n, err
}

// Incomplete returns an error of writing, as one that says what is left of the
// file. A closed pipe is an error as others are: nobody waits for the status
// that standard output would give.
func (f *Output) Incomplete(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := "is incomplete"
	if f.created && !f.kept {
		left = "is removed, for it has nothing"
	}
	return fmt.Errorf("%s %s: writing it: %v", f.file.Name(), left, WithoutPath(err))
}

// Close closes the file.
func (f *Output) Close() error { return f.file.Close() }

// WriteWhole replaces the contents of the file, as a whole or not at all, and
// closes it. Where that cannot be, the error says that it is incomplete.
func (f *Output) WriteWhole(write func(io.Writer) error) error {
	var content bytes.Buffer
	err := write(&content)
	if err == nil {
		err = f.put(content.Bytes())
	}
	return errors.Join(err, f.Close())
}

// put puts a new file in the place of the file. One that is of another user, or
// has other names, keeps what a new file would lose, and a pipe or terminal
// cannot be replaced: it is written to. So is what /dev/stdout leads to, which
// others have open.
func (f *Output) put(content []byte) error {
	name := f.file.Name()
	path, err := filepath.EvalSymlinks(name)
	opened, err2 := f.file.Stat()
	found, err3 := os.Stat(path)
	if err = cmp.Or(err, err2, err3); err == nil && os.SameFile(opened, found) && isReplaceable(opened) &&
		!strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/proc/") {
		var temporary *os.File
		if temporary, err = os.CreateTemp(filepath.Dir(path), ".gousdt.*"); err == nil {
			_, err = temporary.Write(content)
			err = cmp.Or(err, temporary.Chmod(opened.Mode().Perm()), temporary.Close())
			if err = cmp.Or(err, os.Rename(temporary.Name(), path)); err == nil {
				f.kept = true
				return nil
			}
			temporary.Close() // once more if all went well
			os.Remove(temporary.Name())
			return fmt.Errorf("writing %s: %w", name, WithoutPath(err))
		}
	}
	f.Replace()
	if _, err = f.file.Write(content); err != nil {
		f.kept = false
		return f.Incomplete(err)
	}
	return nil
}

// Abandon closes the file. One that was created and is not written is removed.
func (f *Output) Abandon() {
	f.Close() // once more if it has been written
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.created && !f.kept {
		os.Remove(f.file.Name())
	}
}
