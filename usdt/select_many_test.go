// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// hostile writes a file whose notes, of some megabytes, have millions of
// arguments.
func hostile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 10_000 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n",
			Arguments: strings.Repeat("1 ", 255) + fmt.Sprint(i)})
	}
	testprog.WriteNotes(t, path, notes)
	return path
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

func TestSelectRefusesTooManyArguments(t *testing.T) {
	path := hostile(t)
	before := allocated()
	_, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrTooLarge))
	qt.Check(t, qt.ErrorMatches(err, `/.*/hostile.so: more than 524288 arguments of probes: .*`))
	took := allocated() - before
	qt.Check(t, qt.IsTrue(took < 450<<19), qt.Commentf("%d MB", took>>20))
}

func TestSelectTakesManySites(t *testing.T) {
	const sites = 100_000
	path := filepath.Join(t.TempDir(), "many.so")
	var notes []testprog.Note
	for i := range sites {
		// Equal strings count once, and some are different at each site.
		args := strings.Repeat("1 ", 200)
		if i%100 != 0 {
			args = fmt.Sprintf("8@%d 4@%d 1 2", i, -i)
		}
		notes = append(notes, testprog.Note{Provider: "p", Name: fmt.Sprint(i), Arguments: args})
	}
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(sel.Len(), sites))
}

func TestSelectionListsTheFirstSkippedSites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "unfit.so")
	notes := []testprog.Note{{Provider: "p", Name: "fit"}}
	for i := range 3 * 1024 {
		notes = append(notes,
			testprog.Note{Provider: "p", Name: fmt.Sprint("unfit", i), NoNop: true})
	}
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path})
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(sel.Len(), 1))
	qt.Check(t, qt.Equals(sitesOf(sel)[0].Name, "fit"))
	skipped, count := sel.Skipped()
	qt.Check(t, qt.HasLen(skipped, 1024))
	qt.Check(t, qt.Equals(count, 3*1024))
}

// If no probe can be used, the error does not say that there is none.
func TestSelectWithNothingButMalformedNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.so")
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: "p", Name: "n", Broken: true}})
	for _, name := range []string{"n", "another"} {
		_, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", name))
		qt.Check(t, qt.ErrorAs(err, new(*elffile.NoteError)))
		qt.Check(t, qt.Not(qt.ErrorAs(err, new(*usdt.NotFoundError))))
	}
}

func TestSelectionListsTheFirstMalformedNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.so")
	notes := []testprog.Note{{Provider: "p", Name: "n"}}
	for range 40 {
		notes = append(notes, testprog.Note{Provider: "p", Name: "n", Broken: true})
	}
	notes = append(notes, testprog.Note{Provider: "p", Name: "n", NoNop: true})
	testprog.WriteNotes(t, path, notes)
	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	qt.Check(t, qt.Equals(sel.Len(), 1))
	skipped, count := sel.Skipped()
	qt.Check(t, qt.HasLen(skipped, 16+1))
	qt.Check(t, qt.Equals(count, 40+1))
	qt.Check(t, qt.ErrorAs(error(skipped[0]), new(*elffile.NoteError)))
	qt.Check(t, qt.ErrorMatches(skipped[16], ".*: no nop there but .*"))
}

func TestWatchRemembersRefusedFiles(t *testing.T) {
	testneeds.NoGuest(t, "to read that many notes takes longer there than a process has to answer")
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	c := newCollector(t, nil)
	path := hostile(t)
	told, handled := make(chan error, 16), make(chan struct{}, 16)
	w, err := c.Watch(&watch.Options{
		Mapped: func(_, _ []*proc.ProcessFile) { handled <- struct{}{} },
	}, func(changes *watch.Changes[*watch.Attachment]) {
		for _, err := range failures(changes) {
			if errors.Is(err, elffile.ErrTooLarge) {
				told <- err
			}
		}
	}, watching(t, c.Collect12, "p:n")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	// On a loaded machine the scan may outlast what a process has to answer. It
	// is then set aside, and handled when the scan has ended.
	scan := func() {
		if err := w.Sync(t.Context(), os.Getpid()); !errors.Is(err, proc.ErrBlocked) {
			qt.Assert(t, qt.IsNil(err))
		}
		await(t, handled)
	}

	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	for range 3 {
		code, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC,
			unix.MAP_PRIVATE)
		qt.Assert(t, qt.IsNil(err))
		scan()
		qt.Assert(t, qt.IsNil(unix.Munmap(code)))
		scan()
	}
	await(t, told)
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Assert(t, qt.HasLen(told, 0))
}

// Symbols are found all at once: one by one, each would take a search through
// the file.
func TestSelectFindsManySymbolsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "symbols.so")
	var notes []testprog.Note
	const count = 100_000
	for i := 0; i < count; i += 200 {
		var arguments strings.Builder
		for j := range 200 {
			fmt.Fprintf(&arguments, "8@symbol_%d ", i+j)
		}
		notes = append(notes,
			testprog.Note{Provider: "p", Name: "n", Arguments: arguments.String()})
	}
	testprog.WriteNotes(t, path, notes)
	before := allocated()
	sel, err := usdt.Select(usdt.Target{Path: path}, elfnote.Exact("p", "n"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	took := allocated() - before
	qt.Check(t, qt.IsTrue(took < 2000*count), qt.Commentf("%d MB", took>>20))
	for _, site := range sel.Sites() {
		for _, arg := range site.Args {
			qt.Assert(t, qt.ErrorIs(arg.Err, elffile.ErrSymbolNotFound))
		}
	}
}
