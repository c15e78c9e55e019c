// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

// runUnprivileged is not called: only Linux has processes to scan.
func runUnprivileged([]string) int { return exitError }
