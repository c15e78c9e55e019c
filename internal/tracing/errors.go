// SPDX-License-Identifier: BSD-2-Clause

// Package tracing has what package trace tells the commands and the receiver of
// this project beyond its API: which option is wrong, what a session costs, and
// exponential histograms as they are exported.
package tracing

import (
	"fmt"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/suggest"
)

// An OptionError says which option of a session is wrong.
type OptionError struct {
	// Field is a field of trace.SessionOptions or EventOptions. In an
	// OptionError that is the Err of another one it is a field of Aggregation,
	// Latency or Capture.
	Field string
	Index int // of the element if the field is a slice, else -1
	Err   error
}

func (e *OptionError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("%s[%d]: %v", e.Field, e.Index, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Field, e.Err)
}

func (e *OptionError) Unwrap() error { return e.Err }

// A FilteredError says that there is nothing to do at any site of a file: the
// filter cannot hold there, or no aggregation or span is about them. Nothing
// was attached.
type FilteredError struct {
	File    string
	Filter  string
	Missing error // an argument at one of the sites, nil if that is not the reason
}

func (e *FilteredError) Error() string {
	text := e.File + ": its probes that match have no part in what is asked for"
	switch {
	case e.Filter != "":
		text = fmt.Sprintf("%s: the condition %q can never hold", e.File, e.Filter)
	case e.Missing != nil:
		text = e.File + ": nothing can be measured"
	}
	if e.Missing != nil {
		text += ": " + e.Missing.Error()
	}
	return text
}

// A PairError says that a file has no pair of probes that a pattern selects.
type PairError struct {
	Pattern elfnote.PairPattern
	Pairs   []elfnote.Pair // that the file has, as far as their names end as usual
}

// NewPairError returns the error for a file with these probes.
func NewPairError(pattern elfnote.PairPattern, listing *elfnote.Listing) *PairError {
	return &PairError{Pattern: pattern, Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}
}

// maxNamedPairs is how many pairs an error names.
const maxNamedPairs = 20

func (e *PairError) Error() string {
	text := fmt.Sprintf("there is no pair of probes %s", e.Pattern)
	if len(e.Pairs) == 0 {
		return text + " (the names of no two probes end as those of a pair do)"
	}
	pairs, intro, more := suggest.Pairs(e.Pairs, e.Pattern), "nearest", ""
	if len(pairs) == 0 {
		pairs, intro = e.Pairs, "there are"
		if len(pairs) > maxNamedPairs {
			pairs, more = pairs[:maxNamedPairs], ", ..."
		}
	}
	names := make([]string, len(pairs))
	for i, p := range pairs {
		names[i] = p.String()
	}
	return fmt.Sprintf("%s (%s: %s%s)", text, intro, strings.Join(names, ", "), more)
}
