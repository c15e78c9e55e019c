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

const unpackUsage = `Usage: kernels unpack [-source] PACKAGE DIRECTORY

Fetches the newest version of a package that Debian has, and unpacks it in the
place of a directory, as seen from the top of the checkout. Nothing is installed.

  -source  the source of the package instead
`

func unpack(ctx context.Context, arguments []string) error {
	flags := newFlags("unpack", unpackUsage)
	source := flags.Bool("source", false, "")
	flags.Parse(arguments)
	if flags.NArg() != 2 {
		return errors.New("a package and a directory are expected (-help)")
	}
	name, dir := flags.Arg(0), flags.Arg(1)
	if !filepath.IsAbs(dir) {
		repository, err := checkout.Find()
		if err != nil {
			return err
		}
		dir = filepath.Join(repository, dir)
	}
	cacheDir, err := debian.CacheDir()
	if err != nil {
		return err
	}
	if err := (&debian.Cache{Dir: cacheDir}).Unpack(ctx, name, dir, *source); err != nil {
		return err
	}
	fmt.Println("unpacked", name, "into", dir)
	return nil
}
