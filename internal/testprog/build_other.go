// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package testprog

import (
	"testing"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Path skips the test: the traced programs are built on Linux only.
func Path(t testing.TB, name string) string {
	t.Helper()
	testneeds.Only(t, "the traced programs are built there", "linux")
	return ""
}

// CrossPath skips the test: the traced programs are built on Linux only.
func CrossPath(t testing.TB, arch, name string) string {
	t.Helper()
	return Path(t, name)
}
