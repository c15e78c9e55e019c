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
func TestKernelHasWhatItsVersionPromises(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := usdt.KernelFeatures()
	qt.Assert(t, qt.IsNil(err))
	t.Logf("%+v", kernel)

	qt.Check(t, qt.IsTrue(kernel.EventSource))
	qt.Check(t, qt.IsTrue(kernel.Semaphore))
	qt.Check(t, qt.Equals(kernel.Cookie, testneeds.KernelAtLeast(t, "5.15")))
	qt.Check(t, qt.Equals(kernel.Multi, testneeds.KernelAtLeast(t, "6.6")))
	if testneeds.KernelAtLeast(t, "6.10") {
		qt.Check(t, qt.IsTrue(kernel.MultiPID))
	}

	want := usdt.ModeSingleIPMap
	switch {
	case kernel.MultiPID:
		want = usdt.ModeMulti
	case testneeds.KernelAtLeast(t, "5.15"):
		want = usdt.ModeSingle
	}
	qt.Check(t, qt.Equals(kernel.Mode(), want))
	t.Logf("gousdt-mode: %s", kernel.Mode())
	for _, mode := range modes {
		err := kernel.Supports(mode)
		qt.Check(t, qt.Equals(err == nil, testneeds.KernelAtLeast(t, since[mode])))
	}
}
