// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"hash/maphash"

	"github.com/gousdt/gousdt/elfnote"
)

// wanted are the patterns of those who acquire files. The number tells them
// from other patterns.
type wanted struct {
	patterns []elfnote.Pattern
	number   uint64
}

// anything is the number for answers that hold whatever is wanted.
const anything = 0

// wanted numbers patterns.
func (c *Cache) wanted(patterns []elfnote.Pattern) wanted {
	var hash maphash.Hash
	hash.SetSeed(c.seed)
	for _, p := range patterns {
		hash.WriteString(p.String())
		hash.WriteByte(0)
	}
	number := hash.Sum64()
	if number == anything {
		number++
	}
	return wanted{patterns, number}
}

// A question is whether a file has probes that match certain patterns.
type question struct {
	file FileID
	contents
	patterns uint64
}

// An answer says whether it has, or why it cannot be read.
type answer struct {
	matches bool
	err     error
}

// failure returns the error for those who ask about a mapped file.
func (a answer) failure(m *MappedFile) error {
	if a.err == nil {
		return nil
	}
	return m.wrap(opReadProbes, a.err)
}

// answers remembers answers: a file is not kept, nor are its probes. Those
// asked for recently survive: when limit new ones have come, the ones not asked
// for meanwhile are forgotten.
type answers struct {
	limit          int
	recent, former map[question]answer
}

// get returns what is known about a file.
func (s *answers) get(file FileID, is contents, w wanted) (answer, bool) {
	if a, known := s.find(question{file, is, anything}); known {
		return a, true
	}
	return s.find(question{file, is, w.number})
}

func (s *answers) find(q question) (answer, bool) {
	if a, known := s.recent[q]; known {
		return a, true
	}
	a, known := s.former[q]
	if known {
		s.put(q, a)
	}
	return a, known
}

func (s *answers) put(q question, a answer) {
	if len(s.recent) >= s.limit {
		s.former, s.recent = s.recent, nil
	}
	if s.recent == nil {
		s.recent = make(map[question]answer)
	}
	s.recent[q] = a
}
