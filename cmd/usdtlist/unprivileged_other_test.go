// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

// runUnprivileged is not called: only Linux has processes to look into.
func runUnprivileged([]string) int { return exitError }
