// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// What is printed is what has happened: no hit is counted twice, and no call
// takes longer than the tracing.

func TestFileOfTwoNamesIsWatchedOnce(t *testing.T) {
	path := copyOf(t, "target-static")
	other := filepath.Join(t.TempDir(), "other")
	qt.Assert(t, qt.IsNil(os.Symlink(path, other)))
	result := startWith(t, "fire three 3\nquit\n", "--json", "--count", "-c", path, path, other, path,
		"gousdt_test:three").wait()
	rows := result.objects("row")
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Count, uint64(3)))
	qt.Check(t, qt.Equals(result.objects("summary")[0].Sites, 1))
	qt.Check(t, qt.StringContains(result.stderr,
		other+" is the same file as "+path+", and is watched once"))
}

func TestNoCallOfACommandTakesLongerThanItsTracing(t *testing.T) {
	path := copyOf(t, "calls")
	for range 5 { // the two were once in a race
		result := startWith(t, "deep\n", "--json", "--latency", "gousdt_calls:inner", "-c", path, path).wait()
		rows := result.objects("row")
		qt.Assert(t, qt.HasLen(rows, 1))
		longest, err := rows[0].Max.Float64()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(longest <= 1e9*result.objects("summary")[0].Seconds),
			qt.Commentf("%s", result.stdout))
	}
}
