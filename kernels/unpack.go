// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/gousdt/gousdt/kernels/internal/checkout"
	"github.com/gousdt/gousdt/kernels/internal/debian"
)

const unpackUsage = `Usage: kernels unpack PACKAGE DIRECTORY

Fetches the newest version of a package that Debian has, and unpacks it into a
directory of the repository, in the place of what is there. Nothing is
installed.
`

func unpack(ctx context.Context, arguments []string) error {
	flags := newFlags("unpack", unpackUsage)
	flags.Parse(arguments)
	if flags.NArg() != 2 || !filepath.IsLocal(flags.Arg(1)) {
		return errors.New("a package and a directory of the repository are expected (-help)")
	}
	repository, err := checkout.Find()
	if err != nil {
		return err
	}
	cacheDir, err := debian.CacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(repository, flags.Arg(1))
	file, err := (&debian.Cache{Dir: cacheDir}).Unpack(ctx, debian.NewestSuite, flags.Arg(0), dir)
	if err != nil {
		return err
	}
	fmt.Println("unpacked", file, "into", dir)
	return nil
}
