// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import "encoding/binary"

// sharedStrings spares copies of strings, and the search for their ends, in files
// whose probes have many sites. Those of a probe in a function that is inlined
// everywhere come one after the other, with few different arguments. So a site
// gets provider and name of the one before, and arguments of any before.
type sharedStrings struct {
	names string // provider and name of the last site, each with its NUL
	name  int    // where in names the name starts
	room  []byte // for strings to come

	// arguments is a hash table of arguments, each with its NUL.
	arguments [1 << argumentsBits]string

	start, fresh int // the first note, and how many since then had new arguments

	// Of the current note:
	sameNames bool
	known     bool // whether its arguments are in the table
	place     int  // where they are or belong there, -1 if there is no room
}

const (
	// argumentsBits makes a table of 16 KiB. libjvm has 128 different arguments.
	argumentsBits = 10

	// manyFresh is from how many new arguments on it is asked whether sharing pays.
	manyFresh = 1024

	// tailSize is how much of arguments, counted from the end, is hashed.
	tailSize = 24
)

// find finds strings, which go to the end of a note, if they are known.
func (s *sharedStrings) find(strings []byte) bool {
	s.sameNames, s.known = false, false
	n := len(s.names)
	if n == 0 || n >= len(strings) || string(strings[:n]) != s.names {
		return false
	}
	s.sameNames = true
	if arguments := strings[n:]; len(arguments) >= tailSize {
		s.lookUp(arguments, (*[tailSize]byte)(arguments[len(arguments)-tailSize:]))
	} else {
		s.lookUpAny(arguments)
	}
	return s.known
}

// lookUpAny looks for arguments of any length.
func (s *sharedStrings) lookUpAny(arguments []byte) {
	var tail [tailSize]byte
	for i, j := len(arguments)-1, len(tail)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		tail[j] = arguments[i]
	}
	s.lookUp(arguments, &tail)
}

// lookUp looks for arguments, by their tail.
func (s *sharedStrings) lookUp(arguments []byte, tail *[tailSize]byte) {
	// What differs is most often a register or a number near the end.
	hash := binary.LittleEndian.Uint64(tail[0:])*0x9e3779b97f4a7c15 ^
		binary.LittleEndian.Uint64(tail[8:])*0xc2b2ae3d27d4eb4f ^
		binary.LittleEndian.Uint64(tail[16:])*0x165667b19e3779f9
	for i := range uint64(4) {
		s.place = int((hash>>(64-argumentsBits) + i) % uint64(len(s.arguments)))
		seen := s.arguments[s.place]
		if s.known = seen == string(arguments); s.known || seen == "" {
			return
		}
	}
	s.place = -1
}

// give gives a site the strings of the walk's current note, copied as far as
// they are new.
func (s *sharedStrings) give(w *probeWalk, site *Site) {
	if !s.sameNames {
		s.names, s.name = s.copy(w, w.data[w.provider:w.arguments]), w.name-w.provider
		s.lookUpAny(w.data[w.arguments:w.stringsEnd])
		site.Provider = s.names[:s.name-1]
		site.Name = s.names[s.name : len(s.names)-1]
	}
	var arguments string
	if s.known {
		arguments = s.arguments[s.place]
	} else {
		arguments = s.copy(w, w.data[w.arguments:w.stringsEnd])
		if s.place >= 0 {
			s.arguments[s.place] = arguments
		}
		if s.fresh++; s.fresh >= manyFresh && s.fresh > (w.index-s.start)/2 {
			w.shared, w.sharesNothing = nil, true
		}
	}
	site.Arguments = arguments[:len(arguments)-1]
}

func (s *sharedStrings) copy(w *probeWalk, b []byte) string {
	if len(s.room) < len(b) {
		s.room = w.makeRoom(len(b))
	}
	copied := text(s.room[:copy(s.room, b)])
	s.room = s.room[len(b):]
	return copied
}
