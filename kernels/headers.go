// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/gousdt/gousdt/kernels/internal/checkout"
	"github.com/gousdt/gousdt/kernels/internal/debian"
)

const headersUsage = `Usage: kernels headers

Fetches the newest headers of libbpf that Debian has into testdata/build, where
the tests of objects made for libbpf look for them.
`

func headers(ctx context.Context, arguments []string) error {
	newFlags("headers", headersUsage).Parse(arguments)
	repository, err := checkout.Find()
	if err != nil {
		return err
	}
	cacheDir, err := debian.CacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(repository, "testdata", "build", "libbpf-newest")
	file, err := (&debian.Cache{Dir: cacheDir}).Unpack(ctx, debian.NewestSuite, "libbpf-dev", dir)
	if err != nil {
		return err
	}
	fmt.Println("unpacked", file, "into", dir)
	return nil
}
