// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage: kernels COMMAND [flags] [arguments]

Runs the tests of this repository on kernels of other versions and on machines
of other kinds, under QEMU. Run it anywhere in a checkout.

  matrix   run tests on many kernels and machines, and print a table
  boot     run one test binary on one kernel: for go test -exec
  unpack   fetch the newest version of a package of Debian, or its source

kernels COMMAND -help describes a command.
`

// statusTrouble is the exit status where a test did not get to a verdict.
const statusTrouble = 125

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var status int
	var err error
	name, arguments := flag.Arg(0), flag.Args()[min(1, flag.NArg()):]
	switch name {
	case "matrix":
		err = runMatrix(ctx, arguments)
	case "boot":
		status, err = boot(ctx, arguments)
	case "unpack":
		err = unpack(ctx, arguments)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kernels %s: %v\n", name, err)
		status = 1
		if name == "boot" {
			status = statusTrouble
		}
	}
	os.Exit(status)
}

// newFlags returns the flags of a command with its own usage text.
func newFlags(name, usage string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	return flags
}
