// SPDX-License-Identifier: BSD-2-Clause

package abandon

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestACallThatUsesTheProcessorIsNotLeft(t *testing.T) {
	const patience = 400 * time.Millisecond
	returned := One(t.Context(), patience, func() {
		for self := thisThread(); self.processorTime() < 2*patience; {
		}
	}, nil)
	qt.Check(t, qt.IsTrue(returned))
}
