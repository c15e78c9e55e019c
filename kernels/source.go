// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"

	"github.com/gousdt/gousdt/kernels/internal/debian"
)

const sourceUsage = `Usage: kernels source DIRECTORY

Fetches the source of the newest release of libbpf that Debian has into a
directory, for the benchmarks to build.
`

func source(ctx context.Context, arguments []string) error {
	flags := newFlags("source", sourceUsage)
	flags.Parse(arguments)
	if flags.NArg() != 1 {
		return fmt.Errorf("one directory is needed, not %d", flags.NArg())
	}
	cacheDir, err := debian.CacheDir()
	if err != nil {
		return err
	}
	file, err := (&debian.Cache{Dir: cacheDir}).Source(ctx, debian.NewestSuite, "libbpf",
		flags.Arg(0))
	if err != nil {
		return err
	}
	fmt.Println("unpacked", file, "into", flags.Arg(0))
	return nil
}
