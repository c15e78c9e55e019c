// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// ErrNoEvents is wrapped by the error of Session.Events for a session that
// aggregates only.
var ErrNoEvents = errors.New("the session sends no events: set SessionOptions.WithEvents")

// ErrBusy is wrapped by the error of Session.Events where another iteration has
// not ended.
var ErrBusy = errors.New("another iteration over the session's events is going on")

// A SyntaxError says where an expression is wrong: its Expression, the Offset
// in bytes and a Message.
type SyntaxError = expr.SyntaxError

// A NeverError says that there is nothing to do at any of the sites: the filter
// cannot hold there, or no aggregation is about them. Nothing was attached.
type NeverError struct {
	File   string
	Sites  int // how many there are
	Filter string
}

func (e *NeverError) Error() string {
	if e.Filter == "" {
		return fmt.Sprintf("%s: no aggregation is about any of the %d sites: do the probes have the arguments that "+
			"it names?", e.File, e.Sites)
	}
	return fmt.Sprintf("%s: the condition %q can hold at none of the %d sites: does it name arguments that the probes "+
		"do not have?", e.File, e.Filter, e.Sites)
}

// A WatchError says why a file that a Watch has found was not attached. The
// others are.
type WatchError struct {
	// Path is the file as the process sees it.
	Path string
	// Process is the one in which it was found.
	Process proc.Process
	// Err is an error of those that Session.Attach returns.
	Err error
}

func (e *WatchError) Error() string {
	return fmt.Sprintf("attaching to %s in process %s: %v", e.Path, e.Process, e.Err)
}

// Unwrap returns Err.
func (e *WatchError) Unwrap() error { return e.Err }

// A LostError says how many events were lost since the last one was reported,
// because the ring buffer was full.
type LostError struct {
	Events uint64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%d events lost: the ring buffer was full (set SessionOptions.RingSize, filter, or aggregate)", e.Events)
}

// explain makes a *usdt.PermissionError of an error for want of privilege, and
// wraps any other with what was tried.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &usdt.PermissionError{Op: op, Err: err}
	}
	var refused *ebpf.VerifierError
	switch {
	case !errors.As(err, &refused):
	case follow.Classify(err) == follow.WithRoom:
		err = refused.Unwrap() // the log has nothing to say to that
	default:
		// The whole of the log, for only this package can have made the
		// mistake.
		return fmt.Errorf("%s: the kernel refuses a generated program: %+v", op, refused)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// ignoreMissing makes nothing of the error for a key that is not in a map.
func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
