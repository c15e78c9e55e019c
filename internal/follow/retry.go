// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

// maxRound is after how long a round of attempts leaves the rest to the next
// one: processes are waiting to be scanned.
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
	// WithShare is for what lacks room of what the Follower shares out. Owners
	// that have more give some of it up.
	WithShare
	// WithTime is for what waits until its owner may take time again.
	WithTime
)

// errNotSupported is ENOTSUPP, by which kernels refuse some instructions.
const errNotSupported = syscall.Errno(524)

// Classify takes what the system answered for something that may pass, and all
// else for something that will not.
func Classify(err error) When {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, procfs.ErrChanged) {
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

// shareText stands for the texts of errors for want of a share, whose numbers
// change all the time.
const shareText = "share"

// An attempt is what is to be attached where.
type attempt struct {
	Place
	part int
}

// attempts are those that have failed and may succeed. The zero value is none.
type attempts struct {
	failed map[attempt]*failure
	turn   uint64 // counts failures
}

type failure struct {
	text  string
	when  When
	turn  uint64
	owner string
	// needs is what a file needs that was closed for want of a share, and of
	// descriptors what a part has had.
	needs amounts
}

func (a *attempts) len() int { return len(a.failed) }

// fail notes that an attempt has failed. It reports whether that is news, and
// not what it failed with before.
func (a *attempts) fail(key attempt, owner string, err error, when When) (news bool) {
	if when == Never {
		delete(a.failed, key)
		return true
	}
	if a.failed == nil {
		a.failed = make(map[attempt]*failure)
	}
	before := a.failed[key]
	if whole := a.failed[attempt{key.Place, WholeFile}]; before == nil && whole != nil &&
		whole.needs[sites] > 0 {
		before = whole // the file was closed since
	}
	a.turn++
	now := &failure{text: err.Error(), when: when, turn: a.turn, owner: owner}
	if before != nil {
		now.needs[descriptors] = before.needs[descriptors]
	}
	switch {
	case isShare(err):
		now.text = shareText
	case before != nil && errors.Is(err, errWaits):
		now.text, now.needs = before.text, before.needs // it waits to be tried again
	}
	a.failed[key] = now
	return before == nil || before.text != now.text
}

// again calls try for attempts that have failed, those first that did so first,
// with WithRoom only for those that need it. It ends after a time, so that a
// call does not take long and later ones come to the rest. It forgets an
// attempt that does not fail again, and one for what is not among the pairs.
func (a *attempts) again(
	pairs []*procwatch.ProcessFile, when When, try func(attempt, *procwatch.ProcessFile),
) {
	current := make(map[Place]*procwatch.ProcessFile, 2*len(pairs))
	for _, pair := range slices.Backward(pairs) {
		current[inProcess(pair)] = pair
		current[inEveryProcess(pair)] = pair
	}
	var keys []attempt
	for key, failed := range a.failed {
		switch {
		case current[key.Place] == nil:
			delete(a.failed, key)
		case failed.when >= when:
			keys = append(keys, key)
		}
	}
	a.sort(keys)

	start := time.Now()
	for _, key := range keys {
		before := a.failed[key]
		if pair := current[key.Place]; !isOver(key.Place, pair) {
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

// sort puts those first that failed first, with the owners taking turns.
func (a *attempts) sort(keys []attempt) {
	slices.SortFunc(keys,
		func(x, y attempt) int { return cmp.Compare(a.failed[x].turn, a.failed[y].turn) })
	nth, of := make(map[attempt]int, len(keys)), make(map[string]int)
	for _, key := range keys {
		owner := a.failed[key].owner
		nth[key] = of[owner]
		of[owner]++
	}
	slices.SortStableFunc(keys, func(x, y attempt) int { return cmp.Compare(nth[x], nth[y]) })
}

// isOver reports whether the place is in a process that has ended, whose PID
// may be that of another one already.
func isOver(place Place, pair *procwatch.ProcessFile) bool {
	if place.isInEveryProcess() {
		return false
	}
	running, err := pair.Process.IsRunning()
	return err == nil && !running
}
