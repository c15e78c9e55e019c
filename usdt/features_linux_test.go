// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// The documented kernel versions are true of this kernel. A missing feature is
// a failure here, so that no other test is skipped for it unnoticed.
func TestModesOfTheKernel(t *testing.T) {
	testprog.RequireBPF(t)
	mode, err := usdt.ModeAuto.Resolve()
	qt.Assert(t, qt.IsNil(err))
	switch {
	case testneeds.KernelAtLeast(t, "6.10"):
		qt.Check(t, qt.Equals(mode, usdt.ModeMulti))
	case testneeds.KernelAtLeast(t, "6.6"): // whose PID filter may have been set right
		qt.Check(t, qt.IsTrue(mode == usdt.ModeMulti || mode == usdt.ModeSingle))
	case testneeds.KernelAtLeast(t, "5.15"):
		qt.Check(t, qt.Equals(mode, usdt.ModeSingle))
	default:
		qt.Check(t, qt.Equals(mode, usdt.ModeSingleIPMap))
	}
	t.Logf("gousdt-mode: %s", mode)
	for _, mode := range modes {
		resolved, err := mode.Resolve()
		if testneeds.KernelAtLeast(t, since[mode]) {
			qt.Check(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(resolved, mode))
		} else {
			qt.Check(t, qt.ErrorIs(err, errors.ErrUnsupported))
		}
	}
}
