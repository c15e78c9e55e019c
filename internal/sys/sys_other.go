// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package sys

import "math"

// MaxDescriptors returns as many as there can be.
func MaxDescriptors() int { return math.MaxInt32 }
