// SPDX-License-Identifier: BSD-2-Clause

// Package matrix runs tests on many kernels and machines, and prints a table.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Options say what is run.
type Options struct {
	// Quick takes only the quick ones of [platform.All].
	Quick bool
	// Only names kernels, machines and series, separated by commas; all where
	// it is empty.
	Only string
	// Packages are patterns of packages, as seen from the top of the checkout.
	Packages []string
	// Pattern selects tests, as go test -run does. Short is go test -short.
	Pattern string
	Short   bool
	// Timeout is the most that the tests of one package may take.
	Timeout time.Duration
	// Parallel is how many machines run at once.
	Parallel int
	// Memory of a machine in megabytes; 0 is 1024.
	Memory int
	// Markdown prints the table in Markdown. Verbose prints what the tests
	// print.
	Markdown, Verbose bool
}

// Run fetches kernels, builds the tests for their machines, runs them and
// prints the results.
func Run(ctx context.Context, o Options) error {
	list, err := choose(platform.All(), o.Quick, o.Only)
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
	if o.Markdown {
		printMarkdown(os.Stdout, rows)
	} else {
		printTable(os.Stdout, rows)
	}
	printReasons(os.Stdout, rows)
	printNews(os.Stdout, rows, platform.LastKnown)
	return verdict(rows)
}

// choose selects platform. Each word of only is a kernel, a machine or a
// series; a kernel need not be one of the matrix.
func choose(all []platform.Kernel, quick bool, only string) ([]platform.Kernel, error) {
	if only == "" {
		var list []platform.Kernel
		for _, k := range all {
			if k.Quick || !quick {
				list = append(list, k)
			}
		}
		return list, nil
	}
	var list []platform.Kernel
	for word := range strings.SplitSeq(only, ",") {
		if strings.Contains(word, "/") {
			k, err := platform.ParseKernel(word)
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
