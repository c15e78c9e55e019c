// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"errors"
	"fmt"
)

// Unwinder holds what has been found out about code, for the tables of many
// files, and bounds the work that they cause. It is not safe for concurrent
// use.
type Unwinder struct {
	// Work is what may still be done, in steps of some nanoseconds: executing
	// an instruction or an operation of an expression is one. Step fails with
	// ErrWork when nothing is left.
	Work int

	rows   map[rowKey]*row // nil for an address without an entry
	size   int             // of rows, in bytes
	tables uint32
}

// rowKey is an address in the file of a table. The number does not keep a table
// in memory that is not used any more.
type rowKey struct {
	table   uint32
	address uint64
}

const (
	// maxRowBytes bounds the memory for rows: when it is full they are found
	// anew. A row takes some 300 bytes, and programs call from a few thousand
	// places on their hot paths.
	maxRowBytes = 16 << 20

	// What a row takes in memory, and each of its rules.
	rowSize     = 160
	rowRuleSize = 48

	// workOfRow is what it takes to find the entry for an address, and
	// workOfState to remember or restore the rules of all registers.
	workOfRow   = 32
	workOfState = 16
)

// NewUnwinder returns an unwinder with nothing known, and no work to be done.
func NewUnwinder() *Unwinder { return &Unwinder{rows: make(map[rowKey]*row)} }

// spend takes some steps off the work that may be done, and reports whether
// that can be.
func (u *Unwinder) spend(steps int) bool {
	if u.Work < steps {
		u.Work = 0
		return false
	}
	u.Work -= steps
	return true
}

// row returns how to find the caller of the instruction at an address in the
// file.
func (t *Table) row(address uint64) (*row, error) {
	u := t.unwinder
	if !u.spend(1) {
		return nil, ErrWork
	}
	key := rowKey{t.number, address}
	if r, ok := u.rows[key]; ok {
		if r == nil {
			return nil, ErrNoEntry
		}
		return r, nil
	}
	r, err := t.newRow(address)
	if errors.Is(err, ErrWork) {
		return nil, err
	}
	if u.size >= maxRowBytes {
		clear(u.rows)
		u.size = 0
	}
	u.rows[key] = r
	u.size += rowSize
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoEntry, err)
	}
	u.size += rowRuleSize * len(r.rules)
	return r, nil
}

func (t *Table) newRow(address uint64) (*row, error) {
	if !t.unwinder.spend(workOfRow) {
		return nil, ErrWork
	}
	at, ok := t.lookup(address)
	if !ok {
		return nil, ErrNoEntry
	}
	e, _, err := t.entry(at)
	if err != nil {
		return nil, err
	}
	if address-e.start >= e.size {
		return nil, ErrNoEntry
	}
	return t.interpret(e, address)
}
