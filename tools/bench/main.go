// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Bench measures this module and other tools that do the same work, on the same
// machine in the same run.
//
//	make -C tools/bench          # as root: everything, and writes the results into docs/measurements.md
//	make -C tools/bench costs    # as root: what tracing costs, into docs/performance.md
//	make -C tools/bench quick    # the same in a tenth of the time, printed only
//	make -C tools/bench smoke    # everything once, to see that it works
//
//	cd bench && go run . -run 'attach/|list/'    # some of it
//
// Compared with: libbpf, libelf, debug/elf, readelf, bpftrace, bcc, and the
// floors: the system calls that no program can do without, made with everything
// prepared. What is not installed is named as not run.
//
// docs/measurements.md tells how to read the results.
//
// # From a row to a line of the report
//
//	main.go        a row: some work, who does it, and the goals; runs those that are asked for
//	env.go         what rows share: synthetic files, programs of peers/, what is closed at the end
//	report.go      waits for a machine at rest, prints what came out, writes docs/measurements.md
//
// The rows:
//
//	list.go        listing the probes of a file, in process and by a command
//	attach.go      attaching to 1 to 10,000 sites, and closing a hundred links together
//	hit.go         one hit, and a call of two (tracers.go: who is attached to what)
//	deliver.go     events on their way to a Go program
//	lossless.go    how fast they may come
//	print.go       events printed by a command
//	watch.go       following thousands of processes
//	application.go what tracing costs PostgreSQL and Python
//	java.go        and a Java program
//	web.go         and a web site of nginx and PHP
//	grow.go        how costs grow with sites, files, processes and keys
//
// compare.go takes the turns and computes the ratios, peer.go runs the programs
// of peers/, which are in C and Python.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

func main() {
	isQuick := flag.Bool("quick", false, "a fifth of the rounds: for a look, not to be published")
	pattern := flag.String("run", "", "only rows whose name matches this regular expression")
	list := flag.Bool("list", false, "print the names of the rows")
	output := flag.String("o", "", "write the results into this Markdown file, between its markers")
	costs := flag.String("costs", "", "write the rows application/ and grow/ into this one")
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
	if *isQuick {
		s = quick
	}
	if err := run(s, wanted, *output, *costs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(s scale, wanted *regexp.Regexp, output, costs string) error {
	if os.Geteuid() != 0 {
		return errors.New("attaching needs root")
	}
	e, err := newEnv(s)
	if err != nil {
		return err
	}
	defer e.close()

	rep := report{machine: describeMachine()}
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
	if costs != "" && slices.ContainsFunc(rep.rows, rowResult.isCost) {
		err = writeInto(costs, rep.costs())
	}
	if output != "" {
		err = errors.Join(err, writeInto(output, rep.markdown()))
	}
	return err
}

// rowResult is a row with what came out.
type rowResult struct {
	row
	series  []series
	missing string // why it was not run
}

func (e *env) measureRow(r row) rowResult {
	own := e.nested()
	defer own.close()
	result := rowResult{row: r}
	contestants, err := r.prepare(own)
	if err != nil {
		result.missing = err.Error()
	} else {
		result.series = takeTurns(contestants, e.rounds(r), e.pick(max(r.times, 1), max(r.times/2, 1), 1))
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
	// rounds of a full run, and how often a contestant does short work in each.
	rounds, times int
	goals         []goal
	// sizes, if set, are those that each contestant takes part with: all sizes
	// of the first contestant come first, with names that end in ofSize and the
	// size.
	sizes []int
	// prepare is called once, and what it prepares is cleaned up after the row.
	// An unableError says why the work cannot be done here.
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
	return contestant{Name: name, Measure: func(int) (float64, error) { return work() }}
}

// repeated is a contestant whose work is repeated within a round.
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
		callRows(), fireRows(), deliverRows(), losslessRows(), printRows(), watchRows(),
		applicationRows(), growRows(),
	)
}
