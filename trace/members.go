// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
	"weak"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile"
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

// find finds a member by the file's debugging information, as
// [debuginfo.FindMember] says.
func (m *members) find(file *elfnote.File, pointer, path string) (debuginfo.Member, error) {
	f, key := m.of(file), [2]string{pointer, path}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known[key]; ok {
		return known.member, known.err
	}
	if len(f.known) >= debuginfo.MaxMembers {
		return debuginfo.Member{}, elffile.TooLarge(fmt.Errorf("more than %d members", debuginfo.MaxMembers))
	}
	member, err := debuginfo.FindMember(pointer, path, func() (*debuginfo.DWARF, error) {
		return readTypes(file, time.Now().Add(debuginfo.MaxReading))
	})
	f.known[key] = knownMember{member, err}
	return member, err
}

// readTypes reads the debugging information that describes the types of a file,
// from the file, else from its debug file.
func readTypes(file *elfnote.File, until time.Time) (*debuginfo.DWARF, error) {
	read := func(from *os.File) (*debuginfo.DWARF, error) {
		opened, err := debuginfo.New(from)
		if err != nil {
			return nil, err
		}
		return opened.DWARF(false, until)
	}
	types, err := read(file.OSFile())
	if !errors.Is(err, debuginfo.ErrNoDWARF) {
		return types, err
	}
	switch debug, notFound := file.DebugFile(); {
	case notFound == nil:
		return read(debug)
	case !errors.Is(notFound, fs.ErrNotExist):
		err = fmt.Errorf("%w; %w", err, notFound)
	}
	return nil, err
}
