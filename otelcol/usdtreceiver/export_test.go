// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// NewFactoryThatParks is NewFactory with another time for what was shut down.
var NewFactoryThatParks = newFactory

// MissingCapabilities returns what the metric of that name says.
func MissingCapabilities(t testing.TB) map[string]bool {
	missing, err := missingCapabilities()
	qt.Assert(t, qt.IsNil(err))
	return missing
}
