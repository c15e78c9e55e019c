// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
	"weak"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// members are the members of structures that were asked for, by the file. Files
// are attached again and again, to one process after the other.
type members struct {
	mu    sync.Mutex
	files map[weak.Pointer[elfnote.File]]*fileMembers
}

type fileMembers struct {
	mu    sync.Mutex // held while the file is read
	known map[[2]string]knownMember
}

type knownMember struct {
	member debuginfo.Member
	err    error
}

func (m *members) of(file *elfnote.File) *fileMembers {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := weak.Make(file)
	if m.files[of] == nil {
		for other := range m.files {
			if other.Value() == nil {
				delete(m.files, other)
			}
		}
		if m.files == nil {
			m.files = make(map[weak.Pointer[elfnote.File]]*fileMembers)
		}
		m.files[of] = &fileMembers{known: make(map[[2]string]knownMember)}
	}
	return m.files[of]
}

// find finds a member by the file's debugging information. of is the type of a
// pointer, or a variable, global.NAME, of which the definitions may know where
// the member is.
func (m *members) find(
	file *elfnote.File, symbols argspec.File, of, path string, known *defs.Definitions,
) (debuginfo.Member, error) {
	f, key := m.of(file), [2]string{of, path}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known[key]; ok {
		return known.member, known.err
	}
	if len(f.known) >= debuginfo.MaxMembers {
		return debuginfo.Member{}, elffile.TooLarge(fmt.Errorf("more than %d members", debuginfo.MaxMembers))
	}
	find := debuginfo.FindMember
	name, isVariable := (&expr.Term{Name: of}).Global()
	if isVariable {
		of, find = name, debuginfo.FindMemberOfVariable
	}
	constants := sync.OnceValue(func() []byte { return readConstants(file) })
	locate := func(path string) (debuginfo.Member, error) {
		member, err := find(of, path, func() (*debuginfo.DWARF, error) {
			return readTypes(file, symbols, time.Now().Add(debuginfo.MaxReading))
		})
		if isVariable && errors.Is(err, debuginfo.ErrNoDWARF) && file.Header().Class == elf.ELFCLASS64 {
			if offset, ok := known.Layout(of+path, func(text string) bool {
				return bytes.Contains(constants(), []byte(text))
			}); ok {
				return debuginfo.Member{Offsets: []int64{offset}, Size: 8, Pointer: true, Text: true,
					Type: "char *"}, nil
			}
		}
		return member, err
	}
	member, err := locate(path)
	if own, variable := known.Own(of); err == nil && isVariable && own != "" {
		var owned debuginfo.Member
		if owned, err = locate(own); err == nil {
			member.Owner, member.OwnedAt = variable, owned.Offsets[0]
		}
	}
	f.known[key] = knownMember{member, err}
	return member, err
}

// readTypes reads the debugging information that describes the types of a file,
// from the file, else from its debug file, if symbols opens that.
func readTypes(file *elfnote.File, symbols argspec.File, until time.Time) (*debuginfo.DWARF, error) {
	read := func(from *os.File) (*debuginfo.DWARF, error) {
		opened, err := debuginfo.New(from)
		if err != nil {
			return nil, err
		}
		return opened.DWARF(false, until)
	}
	types, err := read(elffile.OSFile(file))
	if !errors.Is(err, debuginfo.ErrNoDWARF) {
		return types, err
	}
	with, ok := symbols.(interface{ DebugFile() (*os.File, error) })
	if !ok {
		return nil, err
	}
	switch debug, notFound := with.DebugFile(); {
	case notFound == nil:
		defer debug.Close()
		return read(debug)
	case !errors.Is(notFound, fs.ErrNotExist):
		err = fmt.Errorf("%w; %w", err, notFound)
	}
	return nil, err
}

// maxConstants bounds the memory of a program's constants while they are
// searched. PostgreSQL has 1.6 MB.
const maxConstants = 16 << 20

// readConstants reads the constants of a program, nil if it has too many.
func readConstants(file *elfnote.File) []byte {
	opened, err := debuginfo.New(elffile.OSFile(file))
	if err != nil {
		return nil
	}
	s := opened.Section(".rodata")
	if s.Size > maxConstants {
		return nil
	}
	constants, _ := opened.ReadRange(s.Offset, s.Size)
	return constants
}
