// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/tracing"
)

func optionError(field string, err error) error {
	return &tracing.OptionError{Field: field, Index: -1, Err: err}
}

func notBetween(field string, value, low, high int) error {
	return optionError(field, fmt.Errorf("%d is not between %d and %d", value, low, high))
}

// A LostError is the number of events that were lost since the last LostError
// because the ring buffer was full.
type LostError uint64

func (e LostError) Error() string {
	return fmt.Sprintf("%d events lost: the ring buffer was full (use a larger one, a filter or aggregations)", uint64(e))
}

// explain returns a *follow.PermissionError if a privilege is missing, and any
// other error with the operation that failed.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &follow.PermissionError{Op: op, Err: err}
	}
	var refused *ebpf.VerifierError
	switch {
	case !errors.As(err, &refused):
	case follow.Classify(err) == follow.WithRoom:
		err = refused.Unwrap() // the log does not say more
	default:
		// The whole log: only this package can have made the mistake.
		return fmt.Errorf("%s: the kernel refuses a generated program: %+v", op, refused)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// ignoreMissing returns nil for the error that a key is not in a map.
func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
