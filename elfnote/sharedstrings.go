// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"encoding/binary"

	"github.com/gousdt/gousdt/internal/elffile"
)

// sharedStrings spares copies of strings, and the search for their ends, in
// files with many sites. Those of a probe in a function that is inlined
// everywhere have few different arguments, and often come one after the other.
type sharedStrings struct {
	// names is provider and name of the last site that was given strings, each
	// with its NUL; name is where in it the name starts.
	names          string
	provider, name string // the same without

	// known is a hash table of names and of arguments. These end with a NUL,
	// and have no other one.
	known [1 << knownBits]string
	room  []byte // for strings to come

	// What find has found of the current note: all its strings, the names being
	// names and the arguments in known at this place.
	found bool
	place int

	start, fresh int // the first note, and how many since then had new strings
}

const (
	// knownBits makes a table of 16 KiB. libjvm has 128 different arguments.
	knownBits = 10

	// tailSize is how much of a string, counted from the end, is hashed.
	tailSize = 24

	// manyNotes is how many a file must have before strings are shared whatever
	// they are; fewer, if the notes of a probe come one after the other.
	manyNotes = 1000

	// manyFresh is from how many notes with new strings on it is asked whether
	// sharing pays.
	manyFresh = 1000
)

// find finds strings, which go to the end of a note, if their names are those
// of the last site and their arguments are known.
func (s *sharedStrings) find(strings []byte) bool {
	s.found = false
	n := len(s.names)
	if n == 0 || n >= len(strings) || string(strings[:n]) != s.names {
		return false
	}
	if arguments := strings[n:]; len(arguments) >= tailSize {
		hash := hashOf((*[tailSize]byte)(arguments[len(arguments)-tailSize:]))
		s.place = int(hash >> (64 - knownBits))
		if s.known[s.place] == string(arguments) { // most are where they belong
			s.found = true
			return true
		}
		s.place, s.found = s.lookUp(arguments, hash)
	} else {
		s.place, s.found = s.lookUpAny(arguments)
	}
	return s.found
}

// lookUpAny looks up a string of any length.
func (s *sharedStrings) lookUpAny(b []byte) (place int, known bool) {
	var tail [tailSize]byte
	for i, j := len(b)-1, len(tail)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		tail[j] = b[i]
	}
	return s.lookUp(b, hashOf(&tail))
}

// hashOf returns the hash of a string by its tail. What differs is most often a
// register or a number near the end.
func hashOf(tail *[tailSize]byte) uint64 {
	return binary.LittleEndian.Uint64(tail[0:])*0x9e3779b97f4a7c15 ^
		binary.LittleEndian.Uint64(tail[8:])*0xc2b2ae3d27d4eb4f ^
		binary.LittleEndian.Uint64(tail[16:])*0x165667b19e3779f9
}

// lookUp looks up a string by its hash. It returns where it is, or where it
// belongs, or -1 if there is no room for it.
func (s *sharedStrings) lookUp(b []byte, hash uint64) (place int, known bool) {
	for i := range uint64(4) {
		place = int((hash>>(64-knownBits) + i) % uint64(len(s.known)))
		if known = s.known[place] == string(b); known || s.known[place] == "" {
			return place, known
		}
	}
	return -1, false
}

// give gives a site the strings of the walk's current note.
func (s *sharedStrings) give(w *probeWalk, site *Site) {
	var arguments string
	if s.found {
		arguments = s.known[s.place]
	} else {
		var freshNames, freshArguments bool
		s.names, freshNames = s.share(w, w.data[w.provider:w.arguments])
		name := w.name - w.provider
		s.provider, s.name = s.names[:name-1], s.names[name:len(s.names)-1]
		arguments, freshArguments = s.share(w, w.data[w.arguments:w.stringsEnd])
		if freshNames || freshArguments {
			if s.fresh++; s.fresh >= manyFresh && s.fresh > (w.index-s.start)/2 {
				w.shared, w.sharesNothing = nil, true
			}
		}
	}
	site.Provider, site.Name = s.provider, s.name
	site.Arguments = arguments[:len(arguments)-1]
}

// share returns the known string that equals b, or a copy of b, which is fresh.
func (s *sharedStrings) share(w *probeWalk, b []byte) (shared string, fresh bool) {
	place, known := s.lookUpAny(b)
	if known {
		return s.known[place], false
	}
	if len(s.room) < len(b) {
		s.room = w.makeRoom(len(b))
	}
	shared = elffile.Text(s.room[:copy(s.room, b)])
	s.room = s.room[len(b):]
	if place >= 0 {
		s.known[place] = shared
	}
	return shared, true
}
