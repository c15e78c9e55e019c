// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package attaching

import (
	"errors"

	"github.com/cilium/ebpf"
)

// A Lease needs Linux.
type Lease struct{}

func Take(int, bool, func()) *Lease { return &Lease{} }

func (*Lease) Reason() error { return errors.ErrUnsupported }

func (*Lease) Return() {}

type Event struct{}

func AttachEvent(string, []Place, *ebpf.Program, EventOptions) (*Event, error) {
	return nil, errors.ErrUnsupported
}

func (*Event) Close() error { return nil }

func EventDescriptors() []int { return nil }

func RemoveEnded() ([]string, error) { return nil, errors.ErrUnsupported }
