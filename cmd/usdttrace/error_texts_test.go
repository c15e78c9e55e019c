// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestMissingCapabilities(t *testing.T) {
	status := []byte("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t000001ffffffffff\n")
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(status)), 0))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capBPF), []string{"CAP_PERFMON"}))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capPerfmon), []string{"CAP_BPF"}))
	qt.Check(t, qt.HasLen(missingCapabilities(1<<capSysAdmin), 0))
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(nil)), 2))
}
