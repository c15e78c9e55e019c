// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"context"
	"os"
	"time"

	"github.com/gousdt/gousdt/internal/abandon"
	"github.com/gousdt/gousdt/proc"
)

const (
	// patience is how long a process, or a file that it maps, may have one wait
	// before stacks are named without it: half as long with each that does not
	// answer, since somebody may withhold the answers of many.
	patience     = 250 * time.Millisecond
	mostHalvings = 3

	// maxUnanswered is how many calls for the processes of one container or
	// user may be waited for. No more are made until one returns.
	maxUnanswered = 2
)

// unanswered are calls that have not returned, by the container or user.
type unanswered map[string]int

// ask makes a call about a process that may never return, and reports whether
// it has returned. late, if not nil, is called if it does so after all. The
// caller holds the mutex.
func (s *Symbolizer) ask(pid int, call, late func()) bool {
	process := proc.Process{}
	if len(s.unanswered) > 0 {
		process, _ = s.fs.Process(pid)
		if s.unanswered[ownerOf(process)] >= maxUnanswered {
			return false
		}
	}
	var owner string
	wait := patience >> min(len(s.unanswered), mostHalvings)
	if abandon.One(context.Background(), wait, call, func() {
		if late != nil {
			late()
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.unanswered[owner]--; s.unanswered[owner] == 0 {
			delete(s.unanswered, owner)
		}
	}) {
		return true
	}
	if process.PID == 0 {
		process, _ = s.fs.Process(pid)
	}
	owner = ownerOf(process) // before the mutex is free
	s.unanswered[owner]++
	return false
}

// ownerOf returns who is to answer for a process, "" if that has ended.
func ownerOf(process proc.Process) string {
	if process.PID == 0 {
		return ""
	}
	return process.Owner()
}

// closeLater closes a file without waiting for long.
func closeLater(file *os.File) (err error) {
	abandon.One(context.Background(), patience, func() { err = file.Close() }, nil)
	return err
}
