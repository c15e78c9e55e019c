// SPDX-License-Identifier: BSD-2-Clause

// Package retry remembers what a watch could not attach to and may be able to
// later, so that it tries again.
package retry

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/proc"
)

// maxRound is after how long a round of attempts leaves the rest to the next
// one: processes are waiting to be looked at.
const maxRound = 100 * time.Millisecond

// When says when what has failed may succeed.
type When int

const (
	// Never is for what is wrong with a file or a program.
	Never When = iota
	// Later is for what may pass by itself.
	Later
	// WithRoom is for what may pass by itself, or when something is detached.
	WithRoom
)

// errNotSupported is ENOTSUPP, by which kernels refuse some instructions.
const errNotSupported = syscall.Errno(524)

// Classify takes what the system answered for something that may pass, and all
// else for something that will not.
func Classify(err error) When {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, proc.ErrChanged) {
			return Later
		}
		return Never
	}
	switch errno {
	case syscall.EOPNOTSUPP, errNotSupported:
		return Never
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC:
		return WithRoom
	default:
		return Later
	}
}

// A Key is one attempt: what is to be attached where, without a process where
// it is to every process.
type Key struct {
	proc.PairKey
	Program int // the caller's number
}

// Attempts are those that have failed and may succeed. The zero value is none.
type Attempts struct {
	failed map[Key]*failure
	turn   uint64 // counts failures
}

type failure struct {
	text string
	when When
	turn uint64
}

// Len returns how many there are.
func (a *Attempts) Len() int { return len(a.failed) }

// Fail notes that an attempt has failed. It tells whether that is news, and not
// what it failed with before.
func (a *Attempts) Fail(key Key, err error, when When) (news bool) {
	if when == Never {
		delete(a.failed, key)
		return true
	}
	if a.failed == nil {
		a.failed = make(map[Key]*failure)
	}
	before := a.failed[key]
	a.turn++
	now := &failure{text: err.Error(), when: when, turn: a.turn}
	a.failed[key] = now
	return before == nil || before.text != now.text
}

// Again calls try for attempts that have failed, those that did it first before
// others; with WithRoom only for those that need that. It ends after a time, so
// that a call takes not long and later ones come to the rest. An attempt that
// does not Fail again is forgotten, and so is one for what is not among the
// pairs.
func (a *Attempts) Again(pairs []*proc.Pair, when When, try func(Key, *proc.Pair)) {
	current := make(map[proc.PairKey]*proc.Pair, 2*len(pairs))
	for _, pair := range slices.Backward(pairs) {
		current[pair.Key()] = pair
		current[proc.PairKey{File: pair.File}] = pair
	}
	var keys []Key
	for key, f := range a.failed {
		switch {
		case current[key.PairKey] == nil:
			delete(a.failed, key)
		case f.when >= when:
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y Key) int { return cmp.Compare(a.failed[x].turn, a.failed[y].turn) })

	start := time.Now()
	for _, key := range keys {
		before := a.failed[key]
		if pair := current[key.PairKey]; !isOver(key, pair) {
			try(key, pair)
		}
		if a.failed[key] == before {
			delete(a.failed, key)
		}
		if time.Since(start) >= maxRound {
			return
		}
	}
}

// isOver tells whether the attempt is for a process that has ended, whose PID
// may be that of another one already.
func isOver(key Key, pair *proc.Pair) bool {
	if key.Process == (proc.ProcessID{}) {
		return false
	}
	running, err := pair.Process.IsRunning()
	return err == nil && !running
}
