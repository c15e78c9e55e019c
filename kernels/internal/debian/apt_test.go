// SPDX-License-Identifier: BSD-2-Clause

package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// A mirror that is being updated has a list of indexes and other indexes for
// some seconds.
func TestUpdateIsTriedAgainWhileTheMirrorIsUpdated(t *testing.T) {
	waits := updateWaits
	updateWaits = make([]time.Duration, 2)
	t.Cleanup(func() { updateWaits = waits })
	for _, test := range []struct {
		name, says string
		failures   int // after which it succeeds
		tries      int
		fails      bool
	}{
		{"succeeds", "", 0, 1, false},
		{"is half updated for a while", "Hashes of expected file:", 2, 3, false},
		{"stays half updated", "Hashes of expected file:", 9, 3, true},
		{"has no such suite", "does not have a Release file", 9, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			tries := filepath.Join(dir, "tries")
			script := "#!/bin/sh\necho >>" + tries + "\n[ $(wc -l <" + tries + ") -gt $FAILURES ] || " +
				"{ echo 'E: " + test.says + "' >&2; exit 100; }\n"
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755)))
			t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			t.Setenv("FAILURES", string(rune('0'+test.failures)))
			a := &apt{dir: dir}
			err := a.update(t.Context(), true)
			qt.Check(t, qt.Equals(err != nil, test.fails), qt.Commentf("%v", err))
			made, err := os.ReadFile(tries)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(strings.Count(string(made), "\n"), test.tries))
			_, err = os.Stat(filepath.Join(dir, "updated"))
			qt.Check(t, qt.Equals(err != nil, test.fails))
		})
	}
}
