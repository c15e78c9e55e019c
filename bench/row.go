// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"slices"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

// ours is the contestant that the goals are about, in most rows.
const ours = "gousdt"

// A row is some work that several contestants do.
type row struct {
	name  string // what -run matches
	title string
	unit  compare.Unit
	// rounds of a full run, and how long a contestant works in each, for short
	// work that is repeated.
	rounds int
	sample time.Duration
	goals  []compare.Goal
	// prepare is called once, and what it prepares is cleaned up after the row.
	// A notHereError means that something is not installed.
	prepare func(e *env) ([]compare.Contestant, error)
}

// A table shows how something grows, or what it consists of. It is measured by
// its own code.
type table struct {
	name, title string
	head        []string
	note        string
	measure     func(e *env) ([][]string, error)
}

// notHereError says what is not installed.
type notHereError struct{ reason string }

func (e *notHereError) Error() string { return e.reason }

func isNotHere(err error) bool {
	var notHere *notHereError
	return errors.As(err, &notHere)
}

// unableError says why something cannot be run, or is not worth while, whatever
// is installed.
type unableError struct{ reason string }

func (e *unableError) Error() string { return e.reason }

func isUnable(err error) bool {
	var unable *unableError
	return errors.As(err, &unable)
}

// missing is a contestant that does not take part.
func missing(name string, err error) compare.Contestant {
	return compare.Contestant{Name: name, Missing: err}
}

// repeated makes a Measure of a function that does the work once.
func repeated(work func() error) func(n int) (float64, error) {
	return func(n int) (float64, error) {
		start := time.Now()
		for range n {
			if err := work(); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(start).Nanoseconds()) / float64(n), nil
	}
}

// rows returns all rows, in the order of the report.
func rows() []row {
	return slices.Concat(
		listRows(), toolRows(), attachRows(), jvmRows(), detachRows(), hitRows(), ringRows(),
		callRows(), deliverRows(), losslessRows(), printRows(), watchRows(), execRows(),
		memoryRows(), sizeRows(), collectorRows(),
	)
}

// tables returns all tables, in the order of the report.
func tables() []table {
	return slices.Concat(jvmTables(), growthTables(), memoryTables(), sizeTables())
}
