// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import "time"

// The limits of this package, as those of package elffile.
const (
	// maxSearches bounds how often a debug file is searched for one symbol
	// after another: those with one or two letters, or other bytes than names
	// have. The search for all others is one.
	maxSearches = 256

	// maxFunctions bounds the functions of a symbol table. A browser with all
	// its symbols has about a million.
	maxFunctions = 2 << 20

	// maxGoSteps bounds the steps to the line of an address in a Go function.
	maxGoSteps = 1 << 20

	// maxGiven bounds the returned names that are cached for a symbol table.
	maxGiven = 1 << 12

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

	// maxAlternative bounds the section .gnu_debugaltlink: a path and a build
	// ID.
	maxAlternative = 5 << 10
)
