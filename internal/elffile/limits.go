// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "time"

// The limits of this package. Files are untrusted: without limits a small
// crafted file could make a long-running tracer allocate or compute without
// end. Each limit is far above anything a tool chain produces.
const (
	// maxSections bounds the section headers. Object files compiled with one
	// section per function reach a few hundred thousand. Section headers are
	// read through a small window, so that this limits time, not memory.
	maxSections = 1 << 20

	// maxRelocationSections bounds the sections with relocations of probes. An
	// object file has one for each template or inline function with probes.
	maxRelocationSections = 1 << 16

	// maxSectionNames bounds the table of section names, which is held in
	// memory while a file is opened. A million sections with names of sixty
	// bytes would fill it.
	maxSectionNames = 64 << 20

	// maxProgramHeaders bounds the program headers. The kernel refuses to start
	// a program with more than 64 KiB of them (1,170 headers); only core files
	// have more than the header's sixteen-bit counter can say.
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

	// maxSymbolName bounds a name that is looked up or returned, in bytes: a
	// profile holds many. Compilers make names of up to a few kilobytes.
	maxSymbolName = 16 << 10

	// maxDynamicBytes bounds the dynamic section. Real ones have thirty entries
	// of 16 bytes.
	maxDynamicBytes = 1 << 20

	// maxNeeded bounds the libraries that a file names itself. Browsers name
	// some sixty.
	maxNeeded = 1 << 10

	// maxFunctions bounds the functions of a symbol table. A browser with all
	// its symbols has about a million.
	maxFunctions = 2 << 20

	// maxGiven bounds the returned names that are cached for a symbol table.
	maxGiven = 1 << 12

	// maxInterpreter bounds the path of the dynamic linker: PATH_MAX, which is
	// also the kernel's limit for it.
	maxInterpreter = 4096

	// maxBuildIDNotes bounds a section or segment that is searched for the
	// build ID, in bytes. Those that linkers write have less than a kilobyte.
	maxBuildIDNotes = 1 << 16

	// maxBuildID bounds the build ID itself, in bytes. The longest in use,
	// SHA-256, has 32 bytes, but a linker accepts any hexadecimal string.
	maxBuildID = 1 << 10

	// maxDebugLink bounds the section .gnu_debuglink, in bytes. It has a name
	// of up to 255 bytes, the longest that file systems have, and a checksum.
	maxDebugLink = 512

	// maxChecked bounds a debug file that is read as a whole for its checksum,
	// which takes some tenths of a second. Those of browsers are larger, and
	// have build IDs.
	maxChecked = 256 << 20

	// maxMiniDebug bounds the file in a section .gnu_debugdata, in bytes.
	// maxMiniRatio bounds the ratio of its size to that of the section. Symbol
	// tables shrink to a quarter at best, and those of the largest programs
	// have some 20 MB. maxDictionary is that of xz -9.
	maxMiniDebug  = 64 << 20
	maxMiniRatio  = 32
	maxDictionary = 64 << 20

	// maxUnpacked bounds a section that is held in memory as a whole, in bytes.
	// maxUnpackedRatio bounds the ratio of its size to its compressed size.
	maxUnpacked      = 256 << 20
	maxUnpackedRatio = 32

	// maxDWARF bounds the bytes of debugging information that are read. A large
	// Java virtual machine has 200 MB, in some thousand units. A browser has
	// gigabytes, and is refused. maxRanges bounds each section with ranges,
	// since an entry may have all of them. MaxReading bounds the time to find
	// one member.
	maxDWARF   = 384 << 20
	maxRanges  = 32 << 20
	MaxReading = 4 * time.Second

	// maxUnits bounds the compilation units, and maxAbbreviations the bytes of
	// all abbreviation tables that they name: these grow most in memory.
	maxUnits         = 1 << 17
	maxAbbreviations = 8 << 20

	// maxAttributes bounds the attributes of an entry: compilers write up to
	// thirty.
	maxAttributes = 128

	// MaxDebugString bounds a string of the debugging information, in bytes.
	// Names of templates reach some kilobytes.
	MaxDebugString = 16 << 10

	// maxTypeNames bounds the typedefs and qualifiers of a type. maxPointers
	// bounds the pointers on the way to a member: each one is read at every
	// hit.
	maxTypeNames = 64
	maxPointers  = 8

	// maxMemberOffset bounds the size of a structure: the stack of a thread
	// would not hold a larger one.
	maxMemberOffset = 1 << 24

	// MaxMembers bounds the members that are searched for in one file.
	MaxMembers = 256

	// ChunkSize is the size of one read of a large range, and the largest size
	// that is allocated before the file has shown that it has the bytes.
	ChunkSize = 64 << 10
)
