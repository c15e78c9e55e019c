// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/matrix"
)

const matrixUsage = `Usage: kernels matrix [flags] [PACKAGE...]

Builds the tests of the packages for each machine, boots each kernel under QEMU
and runs the tests in it. Prints a table at the end, with the reasons of what
was skipped. Packages are named as seen from the top of the checkout. Without
packages, these are tested: ` + defaultPackages + `. First of all come
tests of the kernel itself, whatever the packages.

Kernels are Debian's. They are fetched and kept in the cache, as are the logs
of what each machine printed. A kernel that cannot be fetched is reported as not
run. The command fails where a test fails, where a machine does not come to the
end of its tests, and where no kernel ran at all.

  -quick           only some kernels: an old one, and the newest of most machines
  -only LIST       only these: MACHINE/SERIES, MACHINE or SERIES, comma-separated
  -run PATTERN     only tests that match, as go test has it
  -short           pass -test.short on
  -timeout TIME    how long the tests of one package may take, 30m by default
  -parallel N      how many machines run at once, 2 by default
  -memory MB       memory of a machine, 1024 by default
  -markdown        print the table in Markdown
  -v               print what the tests print

Example:
  $ go -C kernels run . matrix -only amd64,s390x/newest ./usdt
`

const defaultPackages = "./usdt ./trace ./cmd/..."

func runMatrix(ctx context.Context, arguments []string) error {
	var o matrix.Options
	flags := newFlags("matrix", matrixUsage)
	flags.BoolVar(&o.Quick, "quick", false, "")
	flags.StringVar(&o.Only, "only", "", "")
	flags.StringVar(&o.Pattern, "run", "", "")
	flags.BoolVar(&o.Short, "short", false, "")
	flags.DurationVar(&o.Timeout, "timeout", 30*time.Minute, "")
	flags.IntVar(&o.Parallel, "parallel", 2, "")
	flags.IntVar(&o.Memory, "memory", 0, "")
	flags.BoolVar(&o.Markdown, "markdown", false, "")
	flags.BoolVar(&o.Verbose, "v", false, "")
	flags.Parse(arguments)
	o.Packages = flags.Args()
	if len(o.Packages) == 0 {
		o.Packages = strings.Fields(defaultPackages)
	}
	return matrix.Run(ctx, o)
}
