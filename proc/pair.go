// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"os"

	"github.com/gousdt/gousdt/elfnote"
)

// Pair is a file with wanted probes in a process that maps it. It does not
// change once it has been delivered.
type Pair struct {
	// Process is the process, as it was when the pair appeared.
	Process Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the pair disappears. See [File.Hold] to keep it
	// longer.
	File *CachedFile
	// Path is the file's path in the eyes of the process, see [MappedFile].
	Path string
	// OpenedPath is the path by which the file was reached in the eyes of the
	// caller. It is good for as long as the process maps the file.
	OpenedPath string
	// Deleted means that there is nothing at Path any more, or another file.
	Deleted bool
	// Mappings are where the process executes the file, by address.
	Mappings []Mapping
	// Probes are those of the file that match a pattern of the watcher, all
	// sites of each. They are shared by the pairs of the file and not to be
	// changed.
	Probes []elfnote.Probe
}

// PairKey is what makes a pair: it can be compared and be a map key.
type PairKey struct {
	Process ProcessID
	File    *CachedFile
}

// Key returns what the pair is known by: of all pairs of a watcher at one time
// no two have the same.
func (p *Pair) Key() PairKey { return PairKey{Process: p.Process.ProcessID, File: p.File} }

// Open opens the file for reading, apart from File: for those whose
// [CacheOptions].Open returns no file of the system. The caller closes it.
//
// The error is an [*Error]. It wraps [ErrChanged] if OpenedPath does not lead
// to the file any more, and that of opening it.
func (p *Pair) Open() (*os.File, error) {
	file, err := os.Open(p.OpenedPath)
	if err == nil {
		var id FileID
		if id, err = IdentifyFile(file); err == nil && id == p.File.ID() {
			return file, nil
		}
		file.Close()
		if err == nil {
			err = ErrChanged
		}
	}
	return nil, &Error{PID: p.Process.PID, Path: p.Path, Op: "open", Err: err}
}
