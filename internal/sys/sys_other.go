// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

package sys

import "math"

// MaxDescriptors returns the most that there can be: no limit is known.
func MaxDescriptors() int { return math.MaxInt32 }
