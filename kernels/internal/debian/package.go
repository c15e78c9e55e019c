// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// NewestSuite is the suite with the newest version of every package.
const NewestSuite = "sid"

// Unpack fetches a package of a suite, built for this machine, and puts its
// files in the place of a directory. It returns the name of the package's file,
// which has the version in it.
func (c *Cache) Unpack(ctx context.Context, suite, name, dir string) (file string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	architecture, err := command(ctx, "dpkg", "--print-architecture")
	if err != nil {
		return "", err
	}
	a, err := c.suite(ctx, suite, strings.TrimSpace(string(architecture)), false)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return "", err
	}
	// Beside the directory, for it may be in another file system than the
	// cache.
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	deb, err := a.download(ctx, temporary, name)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(temporary, "unpacked")
	if _, err := command(ctx, "dpkg-deb", "-x", deb, unpacked); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", name, err)
	}
	return filepath.Base(deb), replace(unpacked, dir)
}

// download fetches a package into a directory and returns its file.
func (a *apt) download(ctx context.Context, dir, name string) (string, error) {
	if _, err := a.get(ctx, dir, "download", name); err != nil {
		return "", &goneError{fmt.Errorf("fetching %s: %w", name, err)}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("fetching %s: apt left %d files (%w)", name, len(files), err)
	}
	return files[0], nil
}
