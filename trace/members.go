// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/gousdt/gousdt/elfnote"
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
	member elffile.Member
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
// [elffile.FindMember] says.
func (m *members) find(file *elfnote.File, pointer, path string) (elffile.Member, error) {
	f, key := m.of(file), [2]string{pointer, path}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known[key]; ok {
		return known.member, known.err
	}
	if len(f.known) >= elffile.MaxMembers {
		return elffile.Member{}, elffile.TooLarge(fmt.Errorf("more than %d members", elffile.MaxMembers))
	}
	until := time.Now().Add(elffile.MaxReading)
	member, err := elffile.FindMember(pointer, path, func() (*elffile.DWARF, error) {
		data, err := file.DWARF()
		return &elffile.DWARF{Data: data, Until: until}, err
	})
	f.known[key] = knownMember{member, err}
	return member, err
}
