// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// Probes of a hostile file may share a long string of arguments, for each of
// which code is generated.
func TestAttachRefusesTooManyArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 10_000 {
		notes = append(notes, testprog.Note{Provider: "p", Name: fmt.Sprint(i),
			Arguments: strings.Repeat("1 ", 256)})
	}
	testprog.WriteNotes(t, path, notes)
	s := newSession(t, nil)
	_, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.MustParsePattern("p:*"))
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrTooLarge))
	qt.Check(t,
		qt.ErrorMatches(err,
			`/.*/hostile.so: more than .* arguments and sites of different probes: .*`))
	qt.Check(t, qt.HasLen(s.Attachments(), 0))
}
