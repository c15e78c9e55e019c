// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// A Figure is a number that is measured, beside the one that the software says
// itself.
type Figure struct {
	Software string // what is traced
	Question string // what is asked
	Command  string // what answers it: flags and patterns of usdttrace
	Measured uint64
	Own      uint64
	Source   string // of the software's own number
}

// Check fails the test unless the numbers are equal. docs/figures.md has a row
// for each figure, which make figures writes.
func (f Figure) Check(t testing.TB) {
	t.Helper()
	qt.Check(t, qt.Equals(f.Measured, f.Own), qt.Commentf("%s: %s: %s", f.Software, f.Question,
		f.Source))
	qt.Check(t, qt.Not(qt.Equals(f.Own, 0)), qt.Commentf("%s: %s: says nothing", f.Software,
		f.Question))
	begin := fmt.Sprintf("| %s | %s | `%s` | ", f.Software, f.Question,
		strings.ReplaceAll(f.Command, "|", `\|`))
	if to := os.Getenv("GOUSDT_FIGURES"); to != "" {
		file, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		qt.Assert(t, qt.IsNil(err))
		defer file.Close()
		_, err = fmt.Fprintf(file, "%s%d | %d | %s |\n", begin, f.Measured, f.Own, f.Source)
		qt.Assert(t, qt.IsNil(err))
		return
	}
	if testneeds.IsGuest() {
		return // it has no docs
	}
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "figures.md"))
		if os.IsNotExist(err) && len(dir) < 100 {
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(string(text), "\n"+begin), qt.Commentf("run make figures"))
		return
	}
}
