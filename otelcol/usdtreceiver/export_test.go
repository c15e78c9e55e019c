// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// MissingCapabilities returns what the metric of that name says.
func MissingCapabilities(t testing.TB) map[string]bool {
	missing, err := missingCapabilities()
	qt.Assert(t, qt.IsNil(err))
	return missing
}
