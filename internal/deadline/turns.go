// SPDX-License-Identifier: BSD-2-Clause

package deadline

import "context"

// InTurns is a lock that goroutines get in the order in which they ask for it,
// and for which they need not wait longer than a context lasts.
type InTurns chan struct{} // holds a value while it is locked

// NewInTurns returns a lock that nobody holds.
func NewInTurns() InTurns { return make(InTurns, 1) }

// Lock waits for the lock.
func (l InTurns) Lock() { l <- struct{}{} }

// LockWhile waits for the lock until the context ends, whose error it returns
// then.
func (l InTurns) LockWhile(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives the lock to who asked first.
func (l InTurns) Unlock() { <-l }
