// SPDX-License-Identifier: BSD-2-Clause

// Command fetch fetches kernels, and QEMU, into the cache and prints where
// they are. It can also install the compilers that the matrix needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gousdt/gousdt/internal/kernels"
	"github.com/gousdt/gousdt/internal/kernels/debian"
)

const usage = `Usage: fetch [-refresh] [-qemu] [MACHINE/SERIES...]
       fetch -setup

Fetches the newest Debian kernel of each series, unless the cache has it, and
prints one line for each: the series, the package's version, and the path of
the kernel. Without arguments, fetches all kernels of the matrix.

  -refresh  ask the archive again, even if it was asked today
  -qemu     fetch QEMU too, unless one that is new enough is installed
  -setup    only install, as root, the packages that are missing for building
            traced programs for all machines

Example:
  $ fetch amd64/6.12 s390x/newest
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	refresh := flag.Bool("refresh", false, "")
	qemu := flag.Bool("qemu", false, "")
	install := flag.Bool("setup", false, "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *install {
		err = setup(ctx)
	} else {
		err = run(ctx, *refresh, *qemu, flag.Args())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fetch: %v\n", err)
		os.Exit(1)
	}
}

func setup(ctx context.Context) error {
	missing, err := debian.Missing(ctx, debian.BuildPackages())
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Println("installing", strings.Join(missing, " "))
	return debian.Install(ctx, missing)
}

func run(ctx context.Context, refresh, qemu bool, names []string) error {
	dir, err := kernels.CacheDir()
	if err != nil {
		return err
	}
	list := kernels.All()
	if len(names) > 0 {
		list = nil
		for _, name := range names {
			k, err := kernels.ParseKernel(name)
			if err != nil {
				return err
			}
			list = append(list, k)
		}
	}
	cache := &debian.Cache{Dir: dir, Refresh: refresh}
	failed := 0
	for _, k := range list {
		image, err := cache.Kernel(ctx, k)
		if err != nil {
			fmt.Fprintf(os.Stderr, "fetch: %v\n", err)
			failed++
			continue
		}
		if image.Stale != nil {
			fmt.Fprintf(os.Stderr, "fetch: taking an earlier one from the cache: %v\n", image.Stale)
		}
		fmt.Printf("%-16v  %-18s  %s\n", k, image.Version, image.Path)
	}
	if qemu {
		for _, m := range kernels.Machines() {
			e, err := cache.Emulator(ctx, m)
			if err != nil {
				return err
			}
			fmt.Printf("%-16s  %-18s  %s\n", m.Emulator, e.Version, e.Path)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d kernels could not be fetched", failed, len(list))
	}
	return nil
}
