// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package procwatch

import (
	"errors"
	"fmt"
	"os"

	"github.com/gousdt/gousdt/internal/procfs"
)

// IdentifyFile returns the ID of an open file. A file of overlayfs may have
// another ID than in the processes that map it, see [FileID.MayBe].
//
// It is available on Linux only; elsewhere the error wraps
// errors.ErrUnsupported.
func IdentifyFile(file *os.File) (FileID, error) {
	return FileID{}, fmt.Errorf("identify %s: %w", file.Name(), errors.ErrUnsupported)
}

// ID is available on Linux only; here the error wraps
// errors.ErrUnsupported.
func (m *MappedFile) ID() (FileID, error) {
	return FileID{}, m.wrap("identify", errors.ErrUnsupported)
}

func (m *MappedFile) identify() (identity, error) {
	return identity{}, m.wrap("identify", errors.ErrUnsupported)
}

// Open is available on Linux only; here the error wraps errors.ErrUnsupported.
func (m *MappedFile) Open() (*os.File, error) {
	return nil, m.wrap("open", errors.ErrUnsupported)
}

// errNoQuery is always the answer here.
var errNoQuery = errors.New("no PROCMAP_QUERY")

func queryMaps(string, int, func(*mapLine)) error { return errNoQuery }

// mounts are for files that can be identified.
type mounts struct{}

// OpenIn is available on Linux only; here the error wraps
// errors.ErrUnsupported.
func OpenIn(fs *procfs.FS, pid int, path string) (*os.File, error) {
	return nil, &procfs.Error{PID: pid, Path: path, Op: "open", Err: errors.ErrUnsupported}
}

// ID is available on Linux only.
func (f RecordedFile) ID() (FileID, error) { return FileID{}, f.wrap(errors.ErrUnsupported) }

// Records do not exist here.
type Records struct{}

// RecordAll is available on Linux only.
func RecordAll() (*Records, error) { return nil, errors.ErrUnsupported }

// RecordFamily is available on Linux only.
func RecordFamily(int) (*Records, error) { return nil, errors.ErrUnsupported }

func recordEvents() (*Records, error) { return nil, errors.ErrUnsupported }

// Wait is available on Linux only.
func (r *Records) Wait() bool { return false }

// Stop is available on Linux only.
func (r *Records) Stop() {}

func (r *Records) each(func([]byte)) {}

// Close is available on Linux only.
func (r *Records) Close() {}
