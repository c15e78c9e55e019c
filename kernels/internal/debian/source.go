// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Source fetches the source of a package of a suite, and puts it, unpacked, in
// the place of a directory. It returns the name of the package's description,
// which has the version in it.
func (c *Cache) Source(ctx context.Context, suite, name, dir string) (file string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	m, err := machineMirror(ctx)
	if err != nil {
		return "", err
	}
	sources, err := m.source(suite)
	if err != nil {
		return "", err
	}
	architecture, err := command(ctx, "dpkg", "--print-architecture")
	if err != nil {
		return "", err
	}
	// The index of sources is large, and nobody else needs it.
	a, err := newApt(filepath.Join(c.Dir, "apt", suite+"-source"),
		strings.TrimSpace(string(architecture)),
		strings.Replace(sources, "deb ", "deb-src ", 1), nil)
	if err != nil {
		return "", err
	}
	if err := a.update(ctx, c.Refresh); err != nil {
		return "", fmt.Errorf("index of the sources of %s: %w", suite, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if _, err := a.get(ctx, temporary, "source", "--only-source", name); err != nil {
		return "", &goneError{fmt.Errorf("fetching the source of %s: %w", name, err)}
	}
	found, err := filepath.Glob(filepath.Join(temporary, "*.dsc"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("fetching the source of %s: apt left %d descriptions (%w)", name,
			len(found), err)
	}
	unpacked, err := filepath.Glob(filepath.Join(temporary, name+"-*", "."))
	if err != nil || len(unpacked) != 1 {
		return "", fmt.Errorf("fetching the source of %s: apt left %d folders (%w)", name,
			len(unpacked), err)
	}
	return filepath.Base(found[0]), replace(filepath.Clean(unpacked[0]), dir)
}
