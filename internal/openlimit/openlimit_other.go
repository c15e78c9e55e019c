// SPDX-License-Identifier: BSD-2-Clause

//go:build !unix

// Package openlimit says how many descriptors this process may have.
package openlimit

import "math"

// Get returns as many as there can be.
func Get() int { return math.MaxInt32 }
