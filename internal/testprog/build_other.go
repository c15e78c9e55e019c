// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package testprog

import "testing"

// Path skips the test: the traced programs are built on Linux only.
func Path(t testing.TB, name string) string {
	t.Helper()
	t.Skip("the traced programs are built on Linux only")
	return ""
}

// CrossPath skips the test: the traced programs are built on Linux only.
func CrossPath(t testing.TB, arch, name string) string {
	t.Helper()
	return Path(t, name)
}
