// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestACallThatUsesTheProcessorIsNotLeft(t *testing.T) {
	const patience = time.Second // longer than a busy machine keeps a thread waiting
	returned := One(t.Context(), patience, func() {
		for self := thisThread(); self.processorTime() < 5*patience/4; {
		}
	}, nil)
	qt.Check(t, qt.IsTrue(returned))
}
