// SPDX-License-Identifier: BSD-2-Clause

package proc

// ProcessFile is a file with wanted probes in a process that maps it. It does
// not change once it has been delivered, and may be used by several goroutines
// at once.
type ProcessFile struct {
	// Process is the process, as it was when the file appeared in it.
	Process Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the ProcessFile disappears. See [CachedFile.Hold] to
	// keep it longer.
	File *CachedFile
	// MappedFile says how the process has the file: its Path and its Mappings.
	*MappedFile
}

// equals reports whether the process has the file in the same way.
func (p *ProcessFile) equals(other *ProcessFile) bool {
	return p.File == other.File && p.MappedFile.equals(other.MappedFile)
}
