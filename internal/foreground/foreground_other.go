// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

// Package foreground has a command end when its work has ended. On systems
// other than Linux it does nothing for that.
package foreground

// IsWorker reports whether this process is the one that does the work.
func IsWorker() bool { return false }

// Run returns what work returns, the exit status.
func Run(work func() int) int { return work() }
