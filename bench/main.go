// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

//go:embed usage.txt
var usage string

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	isQuick := flag.Bool("quick", false, "")
	isSmoke := flag.Bool("smoke", false, "")
	pattern := flag.String("run", "", "")
	list := flag.Bool("list", false, "")
	output := flag.String("o", "", "")
	wait := flag.Duration("wait", 15*time.Minute, "")
	flag.Parse()
	wanted, err := regexp.Compile(*pattern)
	if err != nil || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *list {
		for _, r := range rows() {
			fmt.Println(r.name)
		}
		return
	}
	s := full
	switch {
	case *isSmoke:
		s = smoke
	case *isQuick:
		s = quick
	}
	if err := run(s, wanted, *output, *wait); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(s scale, wanted *regexp.Regexp, output string, wait time.Duration) error {
	if os.Geteuid() != 0 {
		return errors.New("attaching needs root")
	}
	e, err := newEnv(s)
	if err != nil {
		return err
	}
	defer e.close()

	waited := ""
	if output != "" {
		if waited, err = waitForRest(wait); err != nil {
			return err
		}
	}
	rep := report{machine: describeMachine(waited)}
	fmt.Println(rep.machine)
	start := time.Now()
	for _, r := range rows() {
		if wanted.MatchString(r.name) {
			result := e.measureRow(r)
			rep.rows = append(rep.rows, result)
			fmt.Println(result.markdown())
		}
	}
	fmt.Printf("%s\nmeasured in %v\n", rep.goals(), time.Since(start).Round(time.Second))
	if output != "" {
		return rep.writeInto(output)
	}
	return nil
}

// rowResult is a row with what came out.
type rowResult struct {
	row
	series   []series
	outcomes []outcome
	missing  string // why it was not run
}

func (e *env) measureRow(r row) rowResult {
	own := e.nested()
	defer own.close()
	result := rowResult{row: r}
	contestants, err := r.prepare(own)
	if err != nil {
		result.missing = err.Error()
	} else {
		result.series = takeTurns(contestants, e.effort(r))
	}
	for _, g := range r.goals {
		o := g.Judge(result.series, r.unit)
		if err != nil {
			o.Measured = result.missing
		}
		result.outcomes = append(result.outcomes, o)
	}
	return result
}

// ours is the contestant that the goals are about, in most rows.
const ours = "gousdt"

// A row is some work that several contestants do.
type row struct {
	name  string // what -run matches
	title string
	unit  unit
	// rounds of a full run, and how long a contestant works in each, for short
	// work that is repeated.
	rounds int
	sample time.Duration
	goals  []goal
	// prepare is called once, and what it prepares is cleaned up after the row.
	// An unableError says why nobody can do the work here.
	prepare func(e *env) ([]contestant, error)
}

// unableError says why something cannot be run here, or is not worth while.
type unableError struct{ reason string }

func (e *unableError) Error() string { return e.reason }

// missing is a contestant that does not take part.
func missing(name string, err error) contestant {
	return contestant{Name: name, Missing: err}
}

// once is a contestant whose work is not repeated within a round.
func once(name string, work func() (float64, error)) contestant {
	return contestant{Name: name, Once: true, Measure: func(int) (float64, error) { return work() }}
}

// repeated is a contestant whose work is repeated by the clock.
func repeated(name string, work func() error) contestant {
	return contestant{Name: name, Measure: func(n int) (float64, error) {
		spent, err := timed(func() error {
			for range n {
				if err := work(); err != nil {
					return err
				}
			}
			return nil
		})
		return spent / float64(n), err
	}}
}

// timed returns how many nanoseconds something took.
func timed(work func() error) (float64, error) {
	start := time.Now()
	err := work()
	return float64(time.Since(start).Nanoseconds()), err
}

// rows returns all rows, in the order of the report.
func rows() []row {
	return slices.Concat(
		listRows(), toolRows(), attachRows(), detachRows(), hitRows(),
		callRows(), deliverRows(), losslessRows(), printRows(), watchRows(),
	)
}
