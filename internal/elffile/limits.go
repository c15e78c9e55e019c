// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "time"

// What this package refuses to read. A file is untrusted: without these limits
// a small crafted file could make a long-running tracer allocate or compute
// without end. Each is far above anything a tool chain produces.
const (
	// maxSections bounds the section headers. Object files compiled with one
	// section per function reach a few hundred thousand; they are read through
	// a small window, so that this limits time, not memory.
	maxSections = 1 << 20

	// maxRelocationSections bounds the relocations of probes that are kept. An
	// object file has one section of them for each template or inline function
	// with probes.
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

	// maxSymbolWork bounds what all look-ups of symbols in one file take,
	// counted in bytes that are read, of which a processor looks through some
	// four billion a second: so this limits time to about a second.
	maxSymbolWork = 4 << 30

	// What else a look-up takes, in the same unit: a name in a table however
	// small that is, each symbol, and each symbol whose name has a length that
	// is looked for.
	workOfName   = 3 << 10
	workOfString = 32
	workOfProbe  = 64

	// maxSymbols bounds the symbols of a table: a sparse file can claim any
	// number, at no cost.
	maxSymbols = 16 << 20

	// maxSymbolNames bounds the string table that is held for the names of
	// symbols. That of a browser with all its symbols has some 50 MB.
	maxSymbolNames = 128 << 20

	// maxSymbolName bounds a name that is looked up or returned, as a profile
	// holds many. Compilers' reach a few kilobytes.
	maxSymbolName = 16 << 10

	// maxDynamicBytes bounds the dynamic section, whose entries are 16 bytes;
	// real ones have thirty entries.
	maxDynamicBytes = 1 << 20

	// maxFunctions bounds the functions of a symbol table. A browser with all
	// its symbols has about a million.
	maxFunctions = 2 << 20

	// maxGiven bounds the names that are kept to be returned again.
	maxGiven = 1 << 12

	// maxInterpreter bounds the path of the dynamic linker: PATH_MAX, which is
	// also the kernel's limit for it.
	maxInterpreter = 4096

	// maxBuildIDNotes bounds a section or segment in which the build ID is
	// looked for. Those that linkers write have less than a kilobyte.
	maxBuildIDNotes = 1 << 16

	// maxBuildID bounds the build ID itself. The longest in use, SHA-256, has
	// 32 bytes, but any hexadecimal string can be given to a linker.
	maxBuildID = 1 << 10

	// maxDebugLink bounds the section with the name of a debug file: a name of
	// 255 bytes, which is the longest that file systems have, and a checksum.
	maxDebugLink = 512

	// maxChecked bounds a debug file that is read as a whole for its checksum,
	// which takes some tenths of a second. Those of browsers are larger, and
	// have build IDs.
	maxChecked = 256 << 20

	// maxMiniDebug bounds the file in a section .gnu_debugdata, and
	// maxMiniRatio how many times as large it is as the section. Symbol tables
	// shrink to a quarter at best, and those of the largest programs have some
	// 20 MB. maxDictionary is that of xz -9.
	maxMiniDebug  = 64 << 20
	maxMiniRatio  = 32
	maxDictionary = 64 << 20

	// maxUnpacked bounds a section that is held in memory as a whole, and
	// maxUnpackedRatio how many times as large it is as it was compressed.
	maxUnpacked      = 256 << 20
	maxUnpackedRatio = 32

	// maxDWARF bounds what is read of the debugging information, and maxReading
	// the time to find one member in it. That of a large Java virtual machine
	// has 200 MB, in some thousand units. A browser's has gigabytes, and is
	// refused. maxRanges is for each of the sections with ranges, of which an
	// entry may have all.
	maxDWARF   = 384 << 20
	maxRanges  = 32 << 20
	maxReading = 4 * time.Second

	// maxUnits bounds the units of compilation, and maxAbbreviations the bytes
	// of all the tables that they name, of which the most memory is made.
	maxUnits         = 1 << 17
	maxAbbreviations = 8 << 20

	// maxAttributes bounds those of an entry: compilers write up to thirty.
	maxAttributes = 128

	// MaxDebugString bounds the names in the debugging information. Those of
	// templates reach some kilobytes.
	MaxDebugString = 16 << 10

	// maxTypeNames bounds the typedefs and qualifications of a type, and
	// maxPointers the pointers on the way to a member, each of which is read at
	// every hit.
	maxTypeNames = 64
	maxPointers  = 8

	// maxMemberOffset bounds the size of a structure: the stack of a thread
	// would not hold it.
	maxMemberOffset = 1 << 24

	// maxMembers bounds the members that are looked for in one file.
	maxMembers = 256

	// ChunkSize is how much of a large range is read at once, and the largest
	// size that is allocated before the file has shown that it has the bytes.
	ChunkSize = 64 << 10
)
