// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package uprobeevent

import (
	"errors"

	"github.com/cilium/ebpf"
)

// An Event is a program attached to many places of a file.
type Event struct{}

// Attach needs Linux.
func Attach(string, []Place, *ebpf.Program, Options) (*Event, error) {
	return nil, errors.ErrUnsupported
}

func (*Event) Close() error { return nil }

func Descriptors() []int { return nil }

// Remove needs Linux.
func Remove() ([]string, error) { return nil, errors.ErrUnsupported }
