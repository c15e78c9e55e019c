// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/suggest"
	"github.com/gousdt/gousdt/usdt"
)

// An OptionError says which option of a session, or of what its options have,
// is wrong.
type OptionError struct {
	// Field is a field of SessionOptions. In an OptionError that is the Err of
	// another one it is a field of Aggregation, Latency or Capture.
	Field string
	// Index is the index of the element if the field is a slice, and -1
	// otherwise.
	Index int
	// Err says what is wrong with the field. It is an *OptionError for a field
	// of the field. Of an expression it says at which column it is wrong.
	Err error
}

func (e *OptionError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("%s[%d]: %v", e.Field, e.Index, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Field, e.Err)
}

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

func optionError(field string, err error) error {
	return &OptionError{Field: field, Index: -1, Err: err}
}

func notBetween(field string, value, low, high int) error {
	return optionError(field, fmt.Errorf("%d is not between %d and %d", value, low, high))
}

// A FilteredError says that there is nothing to do at any site of a file: the
// filter cannot hold there, or with [SessionOptions.NoEvents] or Spans no
// aggregation or span is about them. Nothing was attached.
type FilteredError struct {
	file    string
	sites   int
	filter  string
	missing error // an argument at one of the sites, nil if that is not the reason
}

func (e *FilteredError) Error() string {
	text := fmt.Sprintf("%s: no span or aggregation is about any of the %d sites", e.file, e.sites)
	if e.filter != "" {
		text = fmt.Sprintf("%s: the condition %q can hold at none of the %d sites", e.file,
			e.filter, e.sites)
	}
	if e.missing != nil {
		text += ": " + e.missing.Error()
	}
	return text
}

// A LostError says how many events were lost since the last one was reported,
// because the ring buffer was full.
type LostError struct {
	Events uint64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%d events lost: the ring buffer was full (a larger one, a filter and aggregates lose less)", e.Events)
}

// explain returns a *usdt.PermissionError if a privilege is missing, and any
// other error with what was tried.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &usdt.PermissionError{Op: op, Err: err}
	}
	var refused *ebpf.VerifierError
	switch {
	case !errors.As(err, &refused):
	case follow.Classify(err) == follow.WithRoom:
		err = refused.Unwrap() // the log does not say more
	default:
		// The whole of the log, for only this package can have made the
		// mistake.
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

// A PairError says that a file has no pair of probes that a pattern selects.
type PairError struct {
	Pattern elfnote.PairPattern
	// Pairs are those that the file has, as far as their names end as usual.
	Pairs []elfnote.Pair
}

func newPairError(pattern elfnote.PairPattern, listing *elfnote.Listing) *PairError {
	return &PairError{Pattern: pattern, Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}
}

// maxNamedPairs is how many pairs an error names.
const maxNamedPairs = 20

func (e *PairError) Error() string {
	text := fmt.Sprintf("there is no pair of probes %s", e.Pattern)
	if len(e.Pairs) == 0 {
		return text + " (the names of no two probes end as those of a pair do)"
	}
	var names []string
	for _, p := range suggest.Pairs(e.Pairs, e.Pattern) {
		names = append(names, p.String())
	}
	if len(names) > 0 {
		return text + " (nearest: " + strings.Join(names, ", ") + ")"
	}
	for _, p := range e.Pairs {
		if len(names) == maxNamedPairs {
			names = append(names, "...")
			break
		}
		names = append(names, p.String())
	}
	return text + " (there are: " + strings.Join(names, ", ") + ")"
}
