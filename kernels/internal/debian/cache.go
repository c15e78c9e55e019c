// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gousdt/gousdt/kernels/internal/filelock"
)

// Cache is a directory with what was fetched:
//
//	apt/SUITE-MACHINE/             apt's state, with the suite's index
//	linux/MACHINE/PACKAGE_VERSION/ a kernel, and the modules that guests load
//	linux/MACHINE/series-SERIES    the name of the newest one of a series
//	qemu/                          QEMU and its libraries, unpacked
//
// Several processes may use one at a time.
type Cache struct {
	// Dir is created where it is missing.
	Dir string
	// Refresh asks the archive even where the last answer is from today.
	Refresh bool
}

// CacheDir is the directory that holds everything fetched or built for the
// matrix: "gousdt/kernels" in the user's cache directory ($XDG_CACHE_HOME, or
// ~/.cache). It may be deleted at any time.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for kernels: %w (set HOME or XDG_CACHE_HOME)",
			err)
	}
	return filepath.Join(dir, "gousdt", "kernels"), nil
}

// lock keeps other processes from fetching the same thing meanwhile.
func (c *Cache) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return filelock.Lock(filepath.Join(c.Dir, "lock"))
}

// suite returns an apt for one suite and machine, with the index of today. A
// suite has a state of its own so that an index that is not available does not
// affect the others.
func (c *Cache) suite(ctx context.Context, suite, architecture string, force bool) (*apt, error) {
	m, err := machineMirror(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := m.source(suite)
	if err != nil {
		return nil, err
	}
	a, err := newApt(filepath.Join(c.Dir, "apt", suite+"-"+architecture), architecture,
		sources, nil)
	if err != nil {
		return nil, err
	}
	if err := a.update(ctx, force || c.Refresh); err != nil {
		return nil, fmt.Errorf("index of %s for %s: %w", suite, architecture, err)
	}
	return a, nil
}

// replace puts the file or directory made at temporary in the place of target.
func replace(temporary, target string) error {
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.Rename(temporary, target)
}
