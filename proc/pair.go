// SPDX-License-Identifier: BSD-2-Clause

package proc

// Pair is a file with wanted probes in a process that maps it. It does not
// change once it has been delivered, and may be used by several goroutines at
// once.
type Pair struct {
	// Process is the process, as it was when the pair appeared.
	Process Process
	// File is the file, held open until the handler has returned for the
	// [Changes] in which the pair disappears. See [CachedFile.Hold] to keep it
	// longer.
	File *CachedFile
	// MappedFile says how the process has the file: its Path and its Mappings.
	*MappedFile
}

// equals reports whether the process has the file in the same way.
func (p *Pair) equals(other *Pair) bool {
	return p.File == other.File && p.MappedFile.equals(other.MappedFile)
}
