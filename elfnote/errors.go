// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Reasons for which a file, or a part of it, cannot be read. They are wrapped
// with the context in which they occurred: compare with errors.Is.
var (
	// ErrNotELF means that the file does not start with the ELF magic bytes.
	ErrNotELF = elffile.ErrNotELF
	// ErrFileType means that the ELF file is of a type that holds no probes: a
	// core dump, say. Executables, libraries and object files do.
	ErrFileType = elffile.ErrFileType
	// ErrTruncated means that the file ends before a range its headers speak
	// of.
	ErrTruncated = elffile.ErrTruncated
	// ErrMalformed means that the ELF headers contradict themselves.
	ErrMalformed = elffile.ErrMalformed
	// ErrTooLarge means that a part of the file is larger than this package is
	// willing to read, which is far above what tool chains produce.
	ErrTooLarge = elffile.ErrTooLarge
	// ErrCompressed means that a section is compressed (SHF_COMPRESSED), which
	// loaders and tracers do not support for notes and symbols. llvm-objcopy
	// --compress-sections=SECTION=none makes a copy without compression;
	// --decompress-debug-sections, which GNU objcopy has, does not.
	ErrCompressed = elffile.ErrCompressed
	// ErrNotMapped means that no PT_LOAD segment has the address in its part
	// that comes from the file.
	ErrNotMapped = elffile.ErrNotMapped
	// ErrNoCode means that the file is a separate debug file or an object file,
	// which has the probes but not the code that runs: nothing can be attached
	// to it and addresses have no offsets. Use the executable or library
	// itself.
	ErrNoCode = elffile.ErrNoCode
	// ErrSymbolNotFound means that neither symbol table defines the symbol.
	ErrSymbolNotFound = elffile.ErrSymbolNotFound
	// ErrSymbolAmbiguous means that several symbols of the name have different
	// addresses, so that nobody can tell which one is meant.
	ErrSymbolAmbiguous = elffile.ErrSymbolAmbiguous
	// ErrNoPLTGOT means that the file has no global offset table.
	ErrNoPLTGOT = elffile.ErrNoPLTGOT
	// ErrNoBuildID means that the file was linked without --build-id.
	ErrNoBuildID = elffile.ErrNoBuildID
	// ErrOtherBuildID means that a debug file was split off another build.
	ErrOtherBuildID = elffile.ErrOtherBuildID
	// ErrUnknownDistance means that a debug file has neither a section
	// .stapsdt.base nor a PT_LOAD segment in common with the file it belongs
	// to.
	ErrUnknownDistance = elffile.ErrUnknownDistance
	// ErrPattern means that a pattern cannot be understood.
	ErrPattern = errors.New("bad pattern")
)

// Causes of a [NoteError].
var (
	// ErrNoteSize means that the sizes in the note's header reach past the end
	// of the section. Where the next note would start is unknown, so nothing
	// after it in that section can be read; it is reported once.
	ErrNoteSize = errors.New("note reaches past the end of its section")
	// ErrNoteTooShort means that the descriptor has no room for three addresses
	// and three strings.
	ErrNoteTooShort = errors.New("descriptor is too short for three addresses and three strings")
	// ErrNoteUnterminated means that the provider, the name or the arguments do
	// not end with a NUL within the descriptor.
	ErrNoteUnterminated = errors.New("string is not terminated within the descriptor")
	// ErrLocation means that the location is not in the part of an executable
	// segment that comes from the file: there can be no instruction.
	ErrLocation = errors.New("location is not in the file part of an executable segment")
	// ErrSemaphore means that the semaphore is not in a writable segment.
	ErrSemaphore = errors.New("semaphore is not in a writable segment")
	// ErrSemaphoreInBSS means that the semaphore is in the zeroed tail of a
	// writable segment, which the file does not hold: it has no file offset, by
	// which alone the kernel knows it.
	ErrSemaphoreInBSS = errors.New("semaphore is in the zeroed tail (bss) of its segment and has no file offset")
	// ErrSemaphoreUnaligned means that the semaphore's file offset is odd,
	// which the kernel refuses (uprobe_register in kernel/events/uprobes.c
	// wants it aligned for its two bytes).
	ErrSemaphoreUnaligned = errors.New("semaphore is at an odd file offset, which the kernel refuses")
)

// NoteError is a probe's note that cannot be used. The other notes of the file
// are not affected.
type NoteError struct {
	// Index is the number of the note in the file, from 0, counting the notes
	// of every owner in all .note.stapsdt sections, in file order. It is the
	// order in which readelf -n prints them.
	Index int
	// Provider and Name are the probe's, as far as they could be read, else "".
	Provider, Name string
	// Err is the cause: it wraps one of ErrNoteSize, ErrNoteTooShort,
	// ErrNoteUnterminated, ErrLocation, ErrSemaphore, ErrSemaphoreInBSS and
	// ErrSemaphoreUnaligned.
	Err error
}

// Error says which note is broken and why. Provider and name are quoted: they
// are arbitrary bytes.
func (e *NoteError) Error() string {
	if e.Provider == "" && e.Name == "" {
		return fmt.Sprintf("note %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("note %d, probe %s: %v", e.Index, strconv.Quote(e.Provider+":"+e.Name), e.Err)
}

// Unwrap returns the cause.
func (e *NoteError) Unwrap() error { return e.Err }

// addressError is the cause of a NoteError that has to do with an address. It
// is a type of its own to be small: a crafted file has very many of them.
type addressError struct {
	address uint64
	err     error
}

func (e *addressError) Error() string { return fmt.Sprintf("%v: %#x", e.err, e.address) }
func (e *addressError) Unwrap() error { return e.err }
