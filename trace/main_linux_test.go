// SPDX-License-Identifier: BSD-2-Clause

package trace_test

import (
	"os"
	"testing"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestMain(m *testing.M) {
	testprog.BeMapper()
	deadline.Patience = testneeds.Patience
	os.Exit(m.Run())
}
