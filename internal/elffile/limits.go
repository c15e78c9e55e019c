// SPDX-License-Identifier: BSD-2-Clause

package elffile

// Without limits a small crafted file could make a long-running tracer allocate
// or compute without end. Each limit is far above anything a tool chain
// produces.
const (
	// maxSections limits time, not memory. Object files compiled with one
	// section per function reach a few hundred thousand.
	maxSections = 1 << 20

	// maxRelocationSections bounds the sections with relocations of probes. An
	// object file has one for each template or inline function with probes.
	maxRelocationSections = 1 << 16

	// maxSectionNames bounds the table of section names in bytes: a million
	// sections with names of sixty bytes would fill it.
	maxSectionNames = 64 << 20

	// maxProgramHeaders: the kernel refuses to start a program with more than
	// 1,170. Only core files have more than sixteen bits can say.
	maxProgramHeaders = 1 << 16

	// maxSegments bounds the PT_LOAD program headers, because every address is
	// looked up in them. Real files have two to ten.
	maxSegments = 1024

	// maxSymbolWork bounds the work of all look-ups of symbols in one file, in
	// bytes that are read. A processor looks through some four billion bytes a
	// second, so that this limits time to about a second.
	maxSymbolWork = 4 << 30

	// Further work of a look-up, in the same unit: for each name in each table,
	// for each symbol whose name has another length or first byte than the
	// wanted ones, and for each other symbol.
	workOfName   = 3 << 10
	workOfString = 32
	workOfProbe  = 64

	// maxSymbols bounds the symbols of a table: a sparse file can claim any
	// number, at no cost.
	maxSymbols = 16 << 20

	// maxSymbolNames bounds the string table of symbols in bytes. That of a
	// browser with all its symbols has some 50 MB.
	maxSymbolNames = 128 << 20

	// MaxSymbolName bounds a name that is looked up or returned, in bytes: a
	// profile holds many. Compilers make names of up to a few kilobytes.
	MaxSymbolName = 16 << 10

	// Real dynamic sections have thirty entries of 16 bytes.
	maxDynamicBytes = 1 << 20

	// maxBuildIDNotes bounds a section or segment that is searched for the
	// build ID, in bytes. Those that linkers write have less than a kilobyte.
	maxBuildIDNotes = 1 << 16

	// maxBuildID: the longest in use, SHA-256, has 32 bytes, but a linker
	// accepts any hexadecimal string.
	maxBuildID = 1 << 10

	// ChunkSize is the size of one read of a large range, and the largest size
	// that is allocated before the file has shown that it has the bytes.
	ChunkSize = 64 << 10
)
