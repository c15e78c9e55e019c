// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func kernelVersion(t *testing.T) (major, minor int) {
	t.Helper()
	var name unix.Utsname
	qt.Assert(t, qt.IsNil(unix.Uname(&name)))
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	qt.Assert(t, qt.IsNil(err))
	return major, minor
}

// What the documentation says of kernel versions is true of this one: a feature
// that is missing where it should be is a failure, so that no other test is
// skipped for it unnoticed.
func TestKernelHasWhatItsVersionPromises(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := usdt.KernelFeatures()
	qt.Assert(t, qt.IsNil(err))
	major, minor := kernelVersion(t)
	t.Logf("Linux %d.%d: %+v", major, minor, kernel)

	qt.Check(t, qt.IsTrue(kernel.EventSource))
	qt.Check(t, qt.IsTrue(kernel.Semaphore))
	qt.Check(t, qt.Equals(kernel.Cookie, !older(t, 5, 15)))
	qt.Check(t, qt.Equals(kernel.Multi, !older(t, 6, 6)))
	if !older(t, 6, 10) {
		qt.Check(t, qt.IsTrue(kernel.MultiPID))
	}

	want := usdt.ModeSingleIPMap
	switch {
	case kernel.MultiPID:
		want = usdt.ModeMulti
	case !older(t, 5, 15):
		want = usdt.ModeSingle
	}
	qt.Check(t, qt.Equals(kernel.Mode(), want))
	t.Logf("gousdt-mode: %s", kernel.Mode())
	for _, mode := range modes {
		err := kernel.Supports(mode)
		wanted := mode == usdt.ModeMulti && kernel.Multi || mode == usdt.ModeSingle && kernel.Cookie || mode == usdt.ModeSingleIPMap
		qt.Check(t, qt.Equals(err == nil, wanted))
	}
}
