// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// Statistics are asked for while the kernel is still verifying a program, or
// has refused it.
func TestOnlyLoadedProgramsHaveStatistics(t *testing.T) {
	c := programCache{loaded: map[string]*program{
		"being verified": {loaded: make(chan struct{})},
		"refused":        {loaded: make(chan struct{})},
	}}
	close(c.loaded["refused"].loaded)
	qt.Check(t, qt.HasLen(c.all(), 0))
}
