// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/internal/elffile"
)

// Reasons for which a file, or a part of it, cannot be read. Other errors are
// those of the operating system, or of the reader given to [NewFile]. Errors
// wrap their reason together with what was being read: compare them by
// errors.Is.
var (
	// ErrNotELF means that the file does not start with the ELF magic bytes.
	ErrNotELF = elffile.ErrNotELF
	// ErrMalformed means that the file is ELF, but cannot be read: its headers
	// contradict themselves, it is truncated, it is a core dump, or a section
	// that should not be compressed is.
	ErrMalformed = elffile.ErrMalformed
	// ErrTooLarge means that a part of the file is larger than this package is
	// willing to read. The limits are far above what tool chains produce.
	ErrTooLarge = elffile.ErrTooLarge
	// ErrSymbolNotFound means that neither the file nor its separate debug file
	// defines the symbol.
	ErrSymbolNotFound = elffile.ErrSymbolNotFound
	// ErrOtherBuildID means that a separate debug file belongs to another build
	// of the file.
	ErrOtherBuildID = elffile.ErrOtherBuildID
)

// errPattern means that a pattern cannot be understood.
var errPattern = errors.New("bad pattern")

// Causes of a [NoteError].
var (
	// errNoteSize: the sizes in the note's header reach past the end of the
	// section. Where the next note would start is unknown, so nothing after it
	// in that section can be read; it is reported once.
	errNoteSize = errors.New("note reaches past the end of its section")

	errNoteTooShort     = errors.New("descriptor is too short for three addresses and three strings")
	errNoteUnterminated = errors.New("string is not terminated within the descriptor")

	// errLocation: there can be no instruction.
	errLocation = errors.New("location is not in the file part of an executable segment")

	errSemaphore = errors.New("semaphore is not in a writable segment")

	// errSemaphoreInBSS: the kernel identifies a semaphore by its offset in the
	// file, and there is none.
	errSemaphoreInBSS = errors.New("semaphore is in the zeroed tail (bss) of its segment and has no file offset")

	// errSemaphoreUnaligned: uprobe_register in kernel/events/uprobes.c wants
	// it aligned for its two bytes.
	errSemaphoreUnaligned = errors.New("semaphore is at an odd file offset, which the kernel refuses")
)

// NoteError is a note of a probe that is malformed. It affects no other note.
type NoteError struct {
	// Index is the number of the note in the file, from 0, counting the notes
	// of every owner in all .note.stapsdt sections, in file order. It is the
	// order in which readelf -n prints them.
	Index int
	// Provider and Name are those of the probe, or "" where they cannot be
	// read.
	Provider, Name string
	// Err is the cause, a text.
	Err error
}

// Error says which note is malformed and why. Provider and name are quoted:
// they are arbitrary bytes.
func (e *NoteError) Error() string {
	if e.Provider == "" && e.Name == "" {
		return fmt.Sprintf("note %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("note %d, probe %s: %v", e.Index,
		strconv.Quote(cut.Name(e.Provider)+":"+cut.Name(e.Name)), e.Err)
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
