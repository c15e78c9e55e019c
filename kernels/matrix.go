// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

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
	defer m.close()
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
