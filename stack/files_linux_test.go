// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/stack"
)

// mostOpen is how many files may be held open.
const mostOpen = 32

// openFiles returns how many descriptors of files below a directory this
// process has.
func openFiles(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	qt.Assert(t, qt.IsNil(err))
	n := 0
	for _, entry := range all {
		// The directory's own descriptor is gone.
		path, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if strings.HasPrefix(path, dir) {
			n++
		}
	}
	return n
}

// Files are gone with their processes, as where something is compiled or
// unpacked to be run.
func TestSymbolizerHoldsFewFilesOpenAndRemembersAll(t *testing.T) {
	testprog.LeakCheck(t)
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	p := stack.NewSymbolizer("")
	defer p.Close()
	var all []target
	for i := range mostOpen + 10 {
		path := filepath.Join(dir, fmt.Sprint("program", i))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
		target := startFile(t, path)
		p.Remember(target.PID)
		target.Kill()
		qt.Assert(t, qt.IsNil(os.Remove(path)))
		all = append(all, target)
		qt.Assert(t, qt.IsTrue(openFiles(t, dir) <= mostOpen), qt.Commentf("%d files", i+1))
	}
	for _, target := range all {
		frame := p.Frames(context.Background(), target.PID, []uint64{target.main})[0]
		qt.Check(t, qt.Equals(frame.Function, "main"))
		qt.Check(t, qt.Equals(frame.File, target.path))
	}
	qt.Assert(t, qt.IsNil(p.Close()))
	qt.Check(t, qt.Equals(openFiles(t, dir), 0))
}

func TestSymbolizerForgetsFilesThatNobodyMaps(t *testing.T) {
	testprog.LeakCheck(t)
	contents, err := os.ReadFile(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	p := stack.NewSymbolizer("")
	defer p.Close()
	pages, err := unix.MmapPtr(-1, 0, nil, uintptr(os.Getpagesize()), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	qt.Assert(t, qt.IsNil(err))
	defer func() { qt.Check(t, qt.IsNil(unix.MunmapPtr(pages, uintptr(os.Getpagesize())))) }()
	replace := func(path string, contents []byte) {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
		file, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		_, err = unix.MmapPtr(int(file.Fd()), 0, pages, uintptr(os.Getpagesize()),
			unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_FIXED)
		qt.Check(t, qt.IsNil(file.Close()))
		qt.Assert(t, qt.IsNil(err))
		p.Remember(os.Getpid())
	}
	path := ""
	for i := range 5 {
		path = filepath.Join(dir, fmt.Sprint("library", i))
		replace(path, contents)
		qt.Check(t, qt.Equals(openFiles(t, dir), 1),
			qt.Commentf("what it has replaced is not known any more"))
	}
	build := func() string {
		return p.Frames(t.Context(), os.Getpid(), []uint64{uint64(uintptr(pages))})[0].BuildID
	}
	qt.Check(t, qt.Not(qt.Equals(build(), "")))
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	replace(path, []byte("no program"))
	qt.Check(t, qt.Equals(build(), ""), qt.Commentf("of the same path"))
	qt.Check(t, qt.Equals(openFiles(t, dir), 0))
}
