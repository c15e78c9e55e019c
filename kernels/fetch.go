// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/debian"
	"github.com/gousdt/gousdt/kernels/internal/platform"
)

const fetchUsage = `Usage: kernels fetch [-refresh] [-qemu] [MACHINE/SERIES...]

Fetches the newest Debian kernel of each series, unless the cache has it, and
prints one line for each: the series, the package's version, and the path of
the kernel. Without arguments, fetches all kernels of the matrix.

  -refresh  ask the archive again, even if it was asked today
  -qemu     fetch QEMU too, unless one that is new enough is installed

Example:
  $ go -C kernels run . fetch amd64/6.12 s390x/newest
`

func setup(ctx context.Context) error {
	missing, err := debian.Missing(ctx, debian.BuildPackages())
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Println("installing", strings.Join(missing, " "))
	return debian.Install(ctx, missing)
}

func fetch(ctx context.Context, arguments []string) error {
	flags := newFlags("fetch", fetchUsage)
	refresh := flags.Bool("refresh", false, "")
	qemu := flags.Bool("qemu", false, "")
	flags.Parse(arguments)
	names := flags.Args()
	dir, err := debian.CacheDir()
	if err != nil {
		return err
	}
	list := platform.All()
	if len(names) > 0 {
		list = nil
		for _, name := range names {
			k, err := platform.ParseKernel(name)
			if err != nil {
				return err
			}
			list = append(list, k)
		}
	}
	cache := &debian.Cache{Dir: dir, Refresh: *refresh}
	failed := 0
	for _, k := range list {
		image, err := cache.Kernel(ctx, k)
		if err != nil {
			fmt.Fprintf(os.Stderr, "kernels fetch: %v\n", err)
			failed++
			continue
		}
		if image.Stale != nil {
			fmt.Fprintf(os.Stderr, "kernels fetch: taking an earlier one from the cache: %v\n",
				image.Stale)
		}
		fmt.Printf("%-16v  %-18s  %s\n", k, image.Version, image.Path)
	}
	if *qemu {
		for _, m := range platform.Machines() {
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
