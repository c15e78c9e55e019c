// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

//go:embed usage.txt
var usage string

// defaultPackages are what usage.txt says.
const defaultPackages = "./usdt ./trace ./cmd/..."

// options say what is run.
type options struct {
	quick    bool
	only     string
	packages []string // patterns, as seen from the top of the checkout
	pattern  string   // of tests
	short    bool
	timeout  time.Duration // of the tests of one package
	parallel int           // machines
	memory   int           // of a machine in megabytes; 0 is 1024
	verbose  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.BoolVar(&o.quick, "quick", false, "")
	flag.StringVar(&o.only, "only", "", "")
	flag.StringVar(&o.pattern, "run", "", "")
	flag.BoolVar(&o.short, "short", false, "")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "")
	flag.IntVar(&o.parallel, "parallel", 2, "")
	flag.IntVar(&o.memory, "memory", 0, "")
	flag.BoolVar(&o.verbose, "v", false, "")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = strings.Fields(defaultPackages)
	}
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// run fetches kernels, builds the tests for their machines, runs them and
// prints the results.
func (o options) run(ctx context.Context) error {
	list, err := choose(platform.All(), o.quick, o.only)
	if err != nil {
		return err
	}
	m, err := newMatrix(ctx, o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(m.work)
	rows := m.runAll(ctx, list)
	if err := ctx.Err(); err != nil {
		return err
	}
	printFailures(os.Stdout, rows)
	printTable(os.Stdout, rows)
	printReasons(os.Stdout, rows)
	printNews(os.Stdout, rows, platform.LastKnown)
	return verdict(rows)
}

// choose selects kernels. Each word of only is a kernel, a machine or a series;
// a kernel need not be one of the matrix.
func choose(all []platform.Kernel, quick bool, only string) (list []platform.Kernel, err error) {
	for word := range strings.SplitSeq(only, ",") {
		if strings.ContainsAny(word, "/=") {
			k, err := platform.ParseKernel(word)
			if err != nil {
				return nil, err
			}
			list = append(list, k)
			continue
		}
		n := len(list)
		for _, k := range all {
			if (word == "" || k.Machine == word || k.Series == word) && (k.Quick || !quick) {
				list = append(list, k)
			}
		}
		if len(list) == n {
			return nil, fmt.Errorf("-only %s: no kernel of the matrix is of that machine or series",
				word)
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
		if r.hasFailed() {
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

// findCheckout returns the directory of the repository that the working
// directory is in.
func findCheckout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "kernels", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working directory is not in a checkout of gousdt")
		}
		dir = parent
	}
}
