// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package debuginfo

// leadsThroughProcess reports whether a path leads through a magic link, which
// only Linux has.
func leadsThroughProcess(string) bool { return false }
