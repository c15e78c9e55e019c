// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// semaphoreSize is the size of a semaphore in bytes.
const semaphoreSize = 2

// offsets returns the file offsets of a location and of a semaphore.
func (f *File) offsets(location, semaphore uint64) (code, data uint64, err error) {
	if f.kind == DebugFile || f.kind == Relocatable {
		return 0, 0, nil
	}
	if skip := location - f.code.Address; skip < f.code.FileSize {
		code = skip + f.code.Offset
	} else if code, err = f.otherCodeOffset(location); err != nil {
		return 0, 0, err
	}
	if semaphore != 0 {
		data, err = f.semaphoreOffset(semaphore)
	}
	return code, data, err
}

// otherCodeOffset returns the file offset of a location.
func (f *File) otherCodeOffset(location uint64) (uint64, error) {
	code := f.elf.Segment(location, 1, elf.PF_X)
	if code == nil || location-code.Address+code.Offset == 0 {
		// The file header is not code, and 0 would say that there is no offset.
		return 0, &addressError{location, errLocation}
	}
	return location - code.Address + code.Offset, nil
}

// semaphoreOffset returns the file offset of a semaphore.
func (f *File) semaphoreOffset(semaphore uint64) (uint64, error) {
	data := f.elf.Segment(semaphore, semaphoreSize, elf.PF_W)
	if data == nil {
		for i := range f.elf.Segments {
			if g := &f.elf.Segments[i]; g.Flags&elf.PF_W != 0 &&
				g.InMemory(semaphore, semaphoreSize) {
				return 0, &addressError{semaphore, errSemaphoreInBSS}
			}
		}
		return 0, &addressError{semaphore, errSemaphore}
	}
	offset := semaphore - data.Address + data.Offset
	if offset%semaphoreSize != 0 {
		return 0, &addressError{semaphore, errSemaphoreUnaligned}
	}
	if offset == 0 {
		return 0, &addressError{semaphore, errSemaphore}
	}
	return offset, nil
}

// usualCode returns the part of the first executable segment in which a site
// has a file offset that is not 0, or an empty segment. It does not wrap
// around.
func usualCode(segments []elffile.Segment) elffile.Segment {
	i := slices.IndexFunc(segments, func(s elffile.Segment) bool { return s.Flags&elf.PF_X != 0 })
	if i < 0 {
		return elffile.Segment{}
	}
	s := segments[i]
	if s.FileSize == 0 || s.Address+s.FileSize < s.Address {
		return elffile.Segment{}
	}
	if s.Offset == 0 {
		s.Address, s.Offset, s.FileSize = s.Address+1, 1, s.FileSize-1
	}
	return s
}
