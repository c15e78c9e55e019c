// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"os"
	"testing"
)

// skipOrFail ends a test that lacks something: where CI is "true" everything is
// expected to be there.
func skipOrFail(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
