// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package sys

import (
	"debug/elf"
	"errors"
	"math"
)

// KernelMachine knows no kernel that lays out registers.
func KernelMachine() (elf.Machine, error) { return elf.EM_NONE, errors.ErrUnsupported }

// MaxDescriptors returns the most that there can be: no limit is known.
func MaxDescriptors() int { return math.MaxInt32 }
