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

// Changes are what a look at one or at all processes found to be new. They take
// a watcher's user from one set of pairs to the next as a whole: do what
// appeared first, then undo what disappeared.
type Changes struct {
	// FilesAppeared are the files that a watched process maps now and none did
	// before: to be attached to, if that is done for all processes at once.
	FilesAppeared []*CachedFile
	// Appeared are the new pairs.
	Appeared []*Pair
	// Moved are pairs that were there before, with what has changed of
	// Mappings, Path or Deleted. They replace the Pair of the same Key. Only
	// who computes with addresses needs to care.
	Moved []*Pair
	// Disappeared are the pairs that are no more: the process ended, executed
	// another program, unmapped the file or is not wanted any more. They are
	// the values delivered last for their keys.
	Disappeared []*Pair
	// FilesDisappeared are the files that no watched process maps any more.
	// They are closed when the handler returns, unless held.
	FilesDisappeared []*CachedFile
	// Errors are what could not be looked at: of type [*Error]. An error is
	// reported once, not again in every pass, and again if it is another one.
	// What could not be read is tried again in later passes.
	Errors []error
}

func (c *Changes) isEmpty() bool {
	return len(c.Appeared)+len(c.Moved)+len(c.Disappeared)+len(c.Errors)+
		len(c.FilesAppeared)+len(c.FilesDisappeared) == 0
}

// Stats are numbers of a watcher since it was made.
type Stats struct {
	// Processes is how many there were in the last pass, threads of the kernel
	// included; Wanted how many of them the filter lets through, Denied how
	// many could not be looked into.
	Processes, Wanted, Denied int
	// Pairs and Files are how many there are now.
	Pairs, Files int
	// Passes counts the looks at all processes, Syncs those at single ones.
	Passes, Syncs uint64
	// Checked is how often the mappings of a process were compared with those
	// known, Read how often they were read in full. All other processes were
	// found unchanged by one read of their stat.
	Checked, Read uint64
	// KernelEvents tells whether Run gets records from the kernel; if not,
	// EventsError says why (nil before Run).
	KernelEvents bool
	EventsError  error
	// Records counts what the kernel told, Lost how often it had more to tell
	// than fitted, which was followed by a pass.
	Records, Lost uint64
}
