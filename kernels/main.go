// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/debian"
)

const usage = `Usage: kernels matrix [flags] [PACKAGE...]
       kernels unpack [-source] PACKAGE DIRECTORY

Matrix builds the tests of the packages for each machine, boots each kernel
under QEMU and runs the tests in it. It prints a table at the end, with the
reasons of what was skipped. Packages are named as seen from the top of the
checkout. Without packages, these are tested: ` + defaultPackages + `. First of
all come tests of the kernel itself, whatever the packages.

Kernels are Debian's. They are fetched and kept in the cache, as are the logs
of what each machine printed. A kernel that cannot be fetched is reported as not
run. The command fails where a test fails, where a machine does not come to the
end of its tests, and where no kernel ran at all.

  -quick           only some kernels: an old one, and the newest of most machines
  -only LIST       only these: MACHINE/SERIES, MACHINE, SERIES, or MACHINE=FILE
                   for a kernel of your own; comma-separated
  -run PATTERN     only tests that match, as go test has it
  -short           pass -test.short on
  -timeout TIME    how long the tests of one package may take, 30m by default
  -parallel N      how many machines run at once, 2 by default
  -memory MB       memory of a machine, 1024 by default
  -v               print what the tests print

Unpack fetches the newest version of a package that Debian has, and unpacks it
in the place of a directory, as seen from the top of the checkout. Nothing is
installed.

  -source  the source of the package instead

Example:
  $ go -C kernels run . matrix -only amd64,s390x/newest ./usdt
`

const defaultPackages = "./usdt ./trace ./cmd/..."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	var err error
	switch name {
	case "matrix":
		err = runMatrix(ctx, flags, os.Args[2:])
	case "unpack":
		err = unpack(ctx, flags, os.Args[2:])
	default:
		flags.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kernels %s: %v\n", name, err)
		os.Exit(1)
	}
}

func runMatrix(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	var o options
	flags.BoolVar(&o.quick, "quick", false, "")
	flags.StringVar(&o.only, "only", "", "")
	flags.StringVar(&o.pattern, "run", "", "")
	flags.BoolVar(&o.short, "short", false, "")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "")
	flags.IntVar(&o.parallel, "parallel", 2, "")
	flags.IntVar(&o.memory, "memory", 0, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	flags.Parse(arguments)
	o.packages = flags.Args()
	if len(o.packages) == 0 {
		o.packages = strings.Fields(defaultPackages)
	}
	return o.run(ctx)
}

func unpack(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	source := flags.Bool("source", false, "")
	flags.Parse(arguments)
	if flags.NArg() != 2 {
		return errors.New("a package and a directory are expected (-help)")
	}
	name, dir := flags.Arg(0), flags.Arg(1)
	if !filepath.IsAbs(dir) {
		repository, err := findCheckout()
		if err != nil {
			return err
		}
		dir = filepath.Join(repository, dir)
	}
	cache, err := debian.OpenCache()
	if err != nil {
		return err
	}
	if err := cache.Unpack(ctx, name, dir, *source); err != nil {
		return err
	}
	fmt.Println("unpacked", name, "into", dir)
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
