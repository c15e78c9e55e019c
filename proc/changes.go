// SPDX-License-Identifier: BSD-2-Clause

package proc

// Changes are what the scan of one or of all processes found to be new. They
// take a watcher's user from one set of [ProcessFile] to the next as a whole:
// do what appeared first, then undo what disappeared.
type Changes struct {
	// FilesAppeared are the files that a watched process maps now and none did
	// before: to be attached, if that is done for all processes at once.
	FilesAppeared []*CachedFile
	// Appeared are files with wanted probes that a process maps now, and did
	// not before.
	Appeared []*ProcessFile
	// Moved are those that were there before, with what has changed of
	// Mappings, Path or Deleted. Each replaces the ProcessFile of the same
	// Process and File. They matter only to those who compute with addresses.
	Moved []*ProcessFile
	// Disappeared are those that are no more: the process ended, executed
	// another program, unmapped the file or is not wanted any more. They are
	// the values delivered last.
	Disappeared []*ProcessFile
	// FilesDisappeared are the files that no watched process maps any more.
	// They are closed when the handler returns, unless held.
	FilesDisappeared []*CachedFile
	// Errors are what could not be scanned, of type [*Error]. An error is
	// reported once, not again in every pass, and again if it is another one.
	// What could not be read is tried again in later passes.
	Errors []error
}

func (c *Changes) isEmpty() bool {
	return len(c.Appeared)+len(c.Moved)+len(c.Disappeared)+len(c.Errors)+
		len(c.FilesAppeared)+len(c.FilesDisappeared) == 0
}
