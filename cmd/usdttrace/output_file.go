// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"os"
)

// outputFile is a file that is to be written. It is opened at the beginning,
// when a wrong path is an error that costs nothing, and keeps its contents
// until there is something to write.
type outputFile struct {
	*os.File
	created bool // it was not there before
}

func createFile(path string) (*outputFile, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		return &outputFile{file, true}, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	return &outputFile{file, false}, nil
}

// replace deletes what the file contains: now there is something to write.
func (f *outputFile) replace() {
	f.created = false
	_ = f.Truncate(0) // a pipe or a terminal has no size
}

// write replaces what the file contains, and closes it.
func (f *outputFile) write(write func(*os.File) error) error {
	f.replace()
	return errors.Join(write(f.File), f.Close())
}

// abandon closes the file. One that was created and is not written is removed.
func (f *outputFile) abandon() {
	f.Close() // once more if it has been written
	if f.created {
		os.Remove(f.Name())
	}
}
