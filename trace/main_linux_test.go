// SPDX-License-Identifier: BSD-2-Clause

package trace_test

import (
	"os"
	"testing"

	"github.com/gousdt/gousdt/internal/abandon"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestMain(m *testing.M) {
	testprog.BeMapper()
	abandon.Patience = testneeds.Patience
	os.Exit(m.Run())
}
