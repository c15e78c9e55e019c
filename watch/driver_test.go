// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A site with long texts or very many arguments counts as several, because they
// take memory for as long as it is attached.
func TestWeightIsOfMemory(t *testing.T) {
	testneeds.Only(t, "the argument strings of the file are those of x86-64", "amd64")
	path := filepath.Join(t.TempDir(), "file")
	testprog.WriteNotes(t, path, []testprog.Note{
		{Provider: "p", Name: "short", Arguments: "8@$1 8@$2"},
		{Provider: "p", Name: "long" + strings.Repeat("g", 3_000)},
		{Provider: "p", Name: "many", Arguments: strings.Repeat("8@$1\t", 25)},
	})
	for probe, counts := range map[string]int{"short": 1, "long*": 3, "many": 3} {
		sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.MustParsePattern("p:"+probe))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(weight(sel), counts), qt.Commentf("%s", probe))
		qt.Check(t, qt.IsNil(sel.Close()))
	}
	qt.Check(t, qt.Equals(weight(nil), 0))
}
