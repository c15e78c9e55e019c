// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// What the documentation says of kernel versions is true of this one: a feature
// that is missing where it should be is a failure, so that no other test is
// skipped for it unnoticed.
func TestKernelFeatures(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := usdt.KernelFeatures()
	qt.Assert(t, qt.IsNil(err))
	t.Logf("%+v", kernel)

	switch mode := kernel.Mode(); {
	case testneeds.KernelAtLeast(t, "6.10"):
		qt.Check(t, qt.Equals(mode, usdt.ModeMulti))
	case testneeds.KernelAtLeast(t, "6.6"): // whose PID filter may have been set right
		qt.Check(t, qt.IsTrue(mode == usdt.ModeMulti || mode == usdt.ModeSingle))
	case testneeds.KernelAtLeast(t, "5.15"):
		qt.Check(t, qt.Equals(mode, usdt.ModeSingle))
	default:
		qt.Check(t, qt.Equals(mode, usdt.ModeSingleIPMap))
	}
	t.Logf("gousdt-mode: %s", kernel.Mode())
	for _, mode := range modes {
		err := kernel.Supports(mode)
		qt.Check(t, qt.Equals(err == nil, testneeds.KernelAtLeast(t, since[mode])))
	}
}
