// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package attaching

import (
	"errors"
)

// A Lease needs Linux.
type Lease struct{}

func Take(int, bool, func()) *Lease { return &Lease{} }

func (*Lease) Reason() error { return errors.ErrUnsupported }

func (*Lease) IsOpenForWriting() bool { return false }

func (*Lease) Return() {}
