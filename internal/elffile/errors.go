// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "errors"

// Reasons for which a file, or a part of it, cannot be read. They are wrapped
// with the context in which they occurred: compare with errors.Is.
var (
	// ErrNotELF means that the file does not start with the ELF magic bytes.
	ErrNotELF = errors.New("not an ELF file")
	// ErrMalformed means that the file is ELF, but not of a form that can be
	// read: its headers contradict themselves, or it is ErrFileType,
	// ErrTruncated or ErrCompressed.
	ErrMalformed = errors.New("malformed ELF file")
	// ErrFileType means that the ELF file is of a type that holds no code, such
	// as a core dump. Executables, libraries and object files do.
	ErrFileType error = malformedError("not an executable, a library or an object file")
	// ErrTruncated means that the file ends before a range that its headers
	// give.
	ErrTruncated error = malformedError("file is truncated")
	// ErrTooLarge means that a part of the file is larger than this package is
	// willing to read, which is far above what tool chains produce.
	ErrTooLarge = errors.New("larger than any real file's")
	// ErrCompressed means that a section is compressed (SHF_COMPRESSED), which
	// loaders and tracers do not support for notes and symbols. llvm-objcopy
	// --compress-sections=SECTION=none makes a copy without compression;
	// --decompress-debug-sections, which GNU objcopy has, does not.
	ErrCompressed error = malformedError("section is compressed (llvm-objcopy --compress-sections=SECTION=none makes a copy without compression)")
	// ErrNotMapped means that no PT_LOAD segment has the address in its part
	// that comes from the file.
	ErrNotMapped = errors.New("address is not in the file part of a segment")
	// ErrNoCode means that the file is a separate debug file or an object file,
	// which has no code that runs: its addresses have no offsets.
	ErrNoCode = errors.New("file holds no code to run (use the executable or library itself)")
	// ErrSymbolNotFound means that neither symbol table defines the symbol.
	ErrSymbolNotFound = errors.New("not defined in the file")
	// ErrSymbolAmbiguous means that several symbols of the name have different
	// addresses, so that nobody can tell which one is meant.
	ErrSymbolAmbiguous = errors.New("defined at several addresses")
	// ErrNoPLTGOT means that the file has no global offset table.
	ErrNoPLTGOT = errors.New("no global offset table")
	// ErrNoBuildID means that the file was linked without --build-id.
	ErrNoBuildID = errors.New("no build ID")
	// ErrOtherBuildID means that a debug file was split off another build.
	ErrOtherBuildID = errors.New("the debug file belongs to another build")
	// ErrUnknownDistance means that a debug file has neither a section
	// .stapsdt.base nor a PT_LOAD segment in common with the file it belongs
	// to.
	ErrUnknownDistance = errors.New("cannot tell by how much prelink moved the file: " +
		"its debug file has neither .stapsdt.base nor a PT_LOAD segment to compare")
)

// TooLarge returns an error that is ErrTooLarge where a caller has set the
// limit. It says what err says: a real file's may well be larger.
func TooLarge(err error) error { return tooLargeError{err} }

type tooLargeError struct{ error }

func (tooLargeError) Is(target error) bool { return target == ErrTooLarge }
func (e tooLargeError) Unwrap() error      { return e.error }

// malformedError is a reason that is also ErrMalformed.
type malformedError string

func (e malformedError) Error() string        { return string(e) }
func (e malformedError) Is(target error) bool { return target == ErrMalformed }
