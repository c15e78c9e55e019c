// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// Statistics are asked for while the kernel is still verifying a program, or
// has refused it.
func TestOnlyLoadedProgramsHaveStatistics(t *testing.T) {
	var c programCache
	c.entry("being verified")
	refused, isNew := c.entry("refused")
	qt.Assert(t, qt.IsTrue(isNew))
	close(refused.loaded)
	qt.Check(t, qt.HasLen(c.all(), 0))
}
