// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package container

import (
	"errors"
	"fmt"
)

// Cgroups knows the paths of a machine's cgroups by their IDs. Only Linux
// has them.
type Cgroups struct{}

// Watch returns an error that wraps [errors.ErrUnsupported].
func Watch(string) (*Cgroups, error) {
	return nil, fmt.Errorf("watch cgroups: %w", errors.ErrUnsupported)
}

// Path knows no cgroup.
func (c *Cgroups) Path(uint64) (string, bool) { return "", false }

// Exists knows no cgroup.
func (c *Cgroups) Exists(uint64) bool { return false }

// Name returns "cgroup" and the ID.
func (c *Cgroups) Name(id uint64) string { return fmt.Sprintf("cgroup %d", id) }

// IDs returns an error.
func (c *Cgroups) IDs(name string) ([]uint64, error) {
	return nil, fmt.Errorf("container %q: %w", name, errors.ErrUnsupported)
}

// Err returns nil.
func (c *Cgroups) Err() error { return nil }

// Close does nothing.
func (c *Cgroups) Close() error { return nil }
