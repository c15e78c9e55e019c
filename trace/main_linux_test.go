// SPDX-License-Identifier: BSD-2-Clause

package trace_test

import (
	"os"
	"testing"

	"github.com/gousdt/gousdt/internal/testprog"
)

func TestMain(m *testing.M) {
	testprog.BeMapper()
	os.Exit(m.Run())
}
