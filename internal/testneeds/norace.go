// SPDX-License-Identifier: BSD-2-Clause

//go:build !race

package testneeds

// Race reports whether the race detector runs, under which a sync.Pool forgets
// at random: a test that counts what is allocated may then have other limits.
const Race = false
