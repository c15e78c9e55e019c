// SPDX-License-Identifier: BSD-2-Clause

// Command matrix runs this module's tests on many kernels and machines, and
// prints a table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/internal/kernels"
)

const usage = `Usage: matrix [flags] [PACKAGE...]

Builds the tests of the packages for each machine, boots each kernel under QEMU
and runs the tests in it. Prints a table at the end, with the reasons of what
was skipped. Run it in the module's directory. Without packages, these are
tested, as far as they have tests: ` + defaultPackages + `

Kernels are Debian's. They are fetched and kept in the cache, as are the logs
of what each machine printed. A kernel that cannot be had is reported as not
run; a test that fails, or a machine that does not come to the end of its
tests, makes the command fail, and so does a matrix of which nothing ran.

  -quick           only some kernels: an old one, and the newest of most machines
  -only LIST       only these: MACHINE/SERIES, MACHINE or SERIES, comma-separated
  -run PATTERN     only tests that match, as go test has it
  -short           pass -test.short on
  -timeout TIME    how long the tests of one package may take, 10m by default
  -parallel N      how many machines run at once, 2 by default
  -memory MB       memory of a machine, 1024 by default
  -markdown        print the table in Markdown
  -v               print what the tests print

Example:
  $ go run ./internal/kernels/matrix -only amd64,s390x/newest ./usdt
`

const defaultPackages = "./internal/kernels/selftest ./usdt ./trace ./cmd/..."

type options struct {
	quick, short, markdown, verbose bool
	only, pattern                   string
	timeout                         time.Duration
	parallel, memory                int
	packages                        []string
}

func main() {
	var o options
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.BoolVar(&o.quick, "quick", false, "")
	flag.StringVar(&o.only, "only", "", "")
	flag.StringVar(&o.pattern, "run", "", "")
	flag.BoolVar(&o.short, "short", false, "")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "")
	flag.IntVar(&o.parallel, "parallel", 2, "")
	flag.IntVar(&o.memory, "memory", 0, "")
	flag.BoolVar(&o.markdown, "markdown", false, "")
	flag.BoolVar(&o.verbose, "v", false, "")
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = strings.Fields(defaultPackages)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "matrix: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	list, err := choose(kernels.All(), o.quick, o.only)
	if err != nil {
		return err
	}
	m, err := newMatrix(ctx, o)
	if err != nil {
		return err
	}
	defer m.close()
	rows := m.runAll(ctx, list)
	if err := ctx.Err(); err != nil {
		return err
	}
	printFailures(os.Stdout, rows)
	if o.markdown {
		printMarkdown(os.Stdout, rows)
	} else {
		printTable(os.Stdout, rows)
	}
	printReasons(os.Stdout, rows)
	return verdict(rows)
}

// choose selects kernels. Each word of only is a kernel, a machine or a
// series; a kernel need not be one of the matrix.
func choose(all []kernels.Kernel, quick bool, only string) ([]kernels.Kernel, error) {
	if only == "" {
		var list []kernels.Kernel
		for _, k := range all {
			if k.Quick || !quick {
				list = append(list, k)
			}
		}
		return list, nil
	}
	var list []kernels.Kernel
	for word := range strings.SplitSeq(only, ",") {
		if strings.Contains(word, "/") {
			k, err := kernels.ParseKernel(word)
			if err != nil {
				return nil, err
			}
			list = append(list, k)
			continue
		}
		n := len(list)
		for _, k := range all {
			if (k.Machine == word || k.Series == word) && (k.Quick || !quick) {
				list = append(list, k)
			}
		}
		if len(list) == n {
			return nil, fmt.Errorf("-only %s: no kernel of the matrix is of that machine or series", word)
		}
	}
	return list, nil
}

// verdict is the error of the whole command.
func verdict(rows []row) error {
	ran, failed := 0, 0
	for _, r := range rows {
		if r.notRun == nil {
			ran++
		}
		if r.failed() {
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("tests failed on %d of %d kernels", failed, ran)
	case ran == 0:
		return errors.New("no kernel was run")
	}
	return nil
}
