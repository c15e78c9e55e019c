// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/usdt/proc"
)

// realWatch watches for the library that traced makes, on the real /proc, and
// records what the handler gets, as watch does.
func realWatch(t testing.TB, options WatcherOptions) (*Watcher, *[]string) {
	told := new([]string)
	describer := make(describer)
	options.Handler = func(c *Changes) { *told = append(*told, describer.describe(c)...) }
	// Errors of the other processes of the machine do not matter.
	options.Filter = func(p proc.Process) bool {
		return strings.HasPrefix(p.Command, "exe") || strings.HasPrefix(p.Command, "proc.test")
	}
	w := NewWatcher(&options, patterns(t, tracedProvider()+":*")...)
	w.patience = scansAnswer
	t.Cleanup(func() {
		qt.Check(t, qt.IsNil(w.Close()))
		w.awaitReturns(t)
	})
	return w, told
}

func syncOne(t testing.TB, w *Watcher, pid int) *ProcessFile {
	t.Helper()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), pid)))
	for _, p := range w.ProcessFiles() {
		if p.Process.PID == pid {
			return p
		}
	}
	t.Fatalf("process %d has no pair", pid)
	return nil
}

// tagOf reads which of the files that traced makes it is.
func tagOf(t testing.TB, f *CachedFile) byte {
	t.Helper()
	var b [1]byte
	_, err := elffile.OSFile(f.ELF()).ReadAt(b[:], 64+56) // after the headers
	qt.Assert(t, qt.IsNil(err))
	return b[0]
}

func TestProcessInItsOwnNamespaces(t *testing.T) {
	testneeds.Root(t)
	for _, enter := range []string{"chroot", "pivot"} {
		t.Run(enter, func(t *testing.T) {
			container := t.TempDir()
			lib := traced(1).write(t, container, "usr/lib/libtraced.so")
			h := startHelper(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
			h.do("private")
			if enter == "pivot" {
				h.pivot(container)
			} else {
				h.do(enter, container)
			}
			h.do("map", "/usr/lib/libtraced.so")

			w, _ := realWatch(t, WatcherOptions{})
			p := syncOne(t, w, h.pid)
			qt.Check(t, qt.Equals(p.Path, "/usr/lib/libtraced.so"))
			qt.Check(t, qt.IsTrue(strings.Contains(p.OpenedPath, "/map_files/")),
				qt.Commentf(p.OpenedPath))
			qt.Check(t, qt.Equals(p.File.ID(), identityOf(t, lib)))

			file, err := procfs.OpenIn("", h.pid, p.Path)
			qt.Assert(t, qt.IsNil(err))
			defer file.Close()
			id, err := procfs.IdentifyFile(file)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(id.FileID, p.File.ID()))
		})
	}
}

func TestPIDsOfAContainerAreNotTheCallersOwn(t *testing.T) {
	qt.Check(t, qt.IsTrue(procfs.HasOwnPIDs("/proc")))
	qt.Check(t, qt.IsTrue(procfs.HasOwnPIDs(procfs.FS("/proc/self/root/proc").Root())))
	testneeds.Root(t)
	mounted := t.TempDir()
	h := startHelper(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
	h.do("private")
	h.do("mount", "proc", "proc", mounted, "")
	foreign := procfs.FS(fmt.Sprintf("/proc/%d/root%s", h.pid, mounted))
	pids, err := foreign.PIDs()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(pids, []int{1}))
	qt.Check(t, qt.IsFalse(procfs.HasOwnPIDs(foreign.Root())))
}

func TestContainersWithTheSamePathsAndDifferentFiles(t *testing.T) {
	testneeds.Root(t)
	w, told := realWatch(t, WatcherOptions{})
	var pairs []*ProcessFile
	for tag := range byte(2) {
		container := t.TempDir()
		traced(tag+1).write(t, container, "usr/lib/libtraced.so")
		h := startHelper(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
		h.do("private")
		h.pivot(container)
		h.do("map", "/usr/lib/libtraced.so")
		pairs = append(pairs, syncOne(t, w, h.pid))
	}
	qt.Check(t, qt.Equals(pairs[0].Path, pairs[1].Path))
	qt.Check(t, qt.Equals(tagOf(t, pairs[0].File), 1))
	qt.Check(t, qt.Equals(tagOf(t, pairs[1].File), 2))
	qt.Check(t, qt.HasLen(*told, 4), qt.Commentf("two files, two pairs"))
}

func TestContainersOfOneImageShareAFileUntilItIsWritten(t *testing.T) {
	testneeds.Root(t)
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	traced(1).write(t, image, "libtraced.so")
	w, told := realWatch(t, WatcherOptions{})
	container := func(name string, write bool, flags uintptr) *ProcessFile {
		for _, sub := range []string{"upper", "work", "merged"} {
			qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, name, sub), 0o755)))
		}
		merged := filepath.Join(dir, name, "merged")
		options := ""
		h := startHelper(t, unix.CLONE_NEWNS|flags)
		h.do("private")
		if flags&unix.CLONE_NEWUSER != 0 {
			options = "userxattr," // trusted ones may not be read there
		}
		h.mountOverlay(merged, options+"lowerdir="+image+
			",upperdir="+filepath.Join(dir, name, "upper")+",workdir="+
			filepath.Join(dir, name, "work"))
		lib := filepath.Join(merged, "libtraced.so")
		if write {
			h.do("write", lib, "changed")
		}
		h.do("map", lib)
		return syncOne(t, w, h.pid)
	}
	one, two, three := container("one", false, 0), container("two", false, 0),
		container("three", true, 0)
	qt.Check(t, qt.Equals(one.File, two.File))
	qt.Check(t, qt.Not(qt.Equals(three.File, one.File)))
	qt.Check(t, qt.HasLen(*told, 5), qt.Commentf("two files, three pairs: %q", *told))

	// A user can mount over a file system that reports anything, in an own user
	// namespace: its files are merged with others only because they are in the
	// same memory.
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		testneeds.Missing(t, "needs user namespaces in the kernel")
	}
	testneeds.Kernel(t, "5.11", "overlayfs in user namespaces")
	*told = nil
	hostile := container("four", false, unix.CLONE_NEWUSER)
	qt.Check(t, qt.Equals(hostile.File, one.File))
	qt.Check(t, qt.HasLen(*told, 1), qt.Commentf("a pair: %q", *told))
}

// A file that a process maps through two mounts of overlayfs is one, in
// whichever order they are.
func TestFileMappedThroughTwoMountsIsOne(t *testing.T) {
	testneeds.Root(t)
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	traced(1).write(t, image, "libtraced.so")
	qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, "empty"), 0o755)))
	w, _ := realWatch(t, WatcherOptions{})
	h := startHelper(t, unix.CLONE_NEWNS)
	h.do("private")
	for _, mount := range []string{"one", "two"} {
		merged := filepath.Join(dir, mount)
		qt.Assert(t, qt.IsNil(os.Mkdir(merged, 0o755)))
		h.mountOverlay(merged, "lowerdir="+image+":"+filepath.Join(dir, "empty"))
		h.do("map", filepath.Join(merged, "libtraced.so")) // below the one before
		pair := syncOne(t, w, h.pid)
		qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
		qt.Check(t, qt.Equals(pair.File.references, 1))
	}
	qt.Check(t, qt.HasLen(w.ProcessFiles()[0].Mappings, 2))
	h.stop()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), h.pid)))
	qt.Check(t, qt.HasLen(w.cache.files, 0))
}

func TestLibraryDeletedAndReplacedWhileMapped(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	needBirthTime(t, lib)
	id := identityOf(t, lib)
	early, late := startHelper(t, 0), startHelper(t, 0)
	early.do("map", lib)
	w, told := realWatch(t, WatcherOptions{})
	p := syncOne(t, w, early.pid)

	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	traced(2).write(t, lib)
	late.do("map", lib)
	again, other := syncOne(t, w, early.pid), syncOne(t, w, late.pid)
	qt.Check(t, qt.Equals(again.key(), p.key()), qt.Commentf("it maps what it did"))
	qt.Check(t, qt.IsTrue(again.Deleted))
	qt.Check(t, qt.Equals(again.Path, lib))
	qt.Check(t, qt.Equals(tagOf(t, again.File), 1))
	qt.Check(t, qt.IsFalse(other.Deleted))
	qt.Check(t, qt.Equals(tagOf(t, other.File), 2))
	provider := "+" + tracedProvider()
	qt.Check(t, qt.ContentEquals(*told, []string{
		provider, fmt.Sprintf("+%d libtraced.so", early.pid), fmt.Sprintf("~%d libtraced.so",
			early.pid),
		provider, fmt.Sprintf("+%d libtraced.so", late.pid),
	}))

	after, _ := realWatch(t, WatcherOptions{}) // one that starts when the file is gone
	p = syncOne(t, after, early.pid)
	qt.Check(t, qt.Equals(p.File.ID(), id))
	qt.Check(t, qt.Equals(tagOf(t, p.File), 1))
	qt.Check(t, qt.Equals(p.Path, lib))
}

func TestPairOpensItsFile(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	h := startHelper(t, 0)
	h.do("map", lib)
	w, _ := realWatch(t, WatcherOptions{})
	p := syncOne(t, w, h.pid)
	file, err := p.Open()
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	id, err := procfs.IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(id.FileID, p.File.ID()))

	h.stop()
	_, err = p.Open()
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
}

func TestLibraryInAMemfd(t *testing.T) {
	testneeds.Root(t)
	lib := traced(3).write(t, t.TempDir(), "libtraced.so")
	one, two := startHelper(t, 0), startHelper(t, 0)
	one.do("memfd", lib)
	two.do("memfd", lib)
	w, _ := realWatch(t, WatcherOptions{})
	p, q := syncOne(t, w, one.pid), syncOne(t, w, two.pid)
	qt.Check(t, qt.Equals(p.Path, "/memfd:provider"))
	qt.Check(t, qt.IsTrue(p.Deleted))
	qt.Check(t, qt.Equals(tagOf(t, p.File), 3))
	qt.Check(t, qt.Not(qt.Equals(p.File, q.File)), qt.Commentf("each has its own"))
	one.stop()
	qt.Check(t, qt.Equals(tagOf(t, p.File), 3), qt.Commentf("good for as long as it is held"))
}

func TestProcessesThatGoOnWithoutTheFileOrEnd(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	ends := map[string]func(h *helper){
		"unmap": func(h *helper) { h.do("unmap") },
		"exec":  func(h *helper) { h.do("exec") },
		"exit":  func(h *helper) { h.stop() },
		"kill":  func(h *helper) { qt.Check(t, qt.IsNil(h.cmd.Process.Kill())); h.stop() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w, told := realWatch(t, WatcherOptions{})
			h := startHelper(t, 0)
			h.do("map", lib)
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Assert(t, qt.HasLen(w.ProcessFiles(), 1))
			running, err := w.ProcessFiles()[0].Process.IsRunning()
			qt.Check(t, qt.IsNil(err))
			qt.Check(t, qt.IsTrue(running))
			*told = nil
			end(h)
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
			qt.Check(t, qt.DeepEquals(*told, []string{fmt.Sprintf("-%d libtraced.so", h.pid), "-" +
				tracedProvider()}))
			qt.Check(t, qt.HasLen(w.cache.files, 0))
		})
	}
}

func TestProcessWhoseFirstThreadHasEnded(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	h := startHelper(t, 0)
	h.do("map", lib)
	w, told := realWatch(t, WatcherOptions{})
	p := syncOne(t, w, h.pid)
	h.do("leaderless")
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.Equals(syncOne(t, w, h.pid).key(), p.key()))
	qt.Check(t, qt.HasLen(*told, 2), qt.Commentf("%q", *told))

	after, _ := realWatch(t, WatcherOptions{})
	p = syncOne(t, after, h.pid)
	qt.Check(t, qt.IsTrue(strings.Contains(p.OpenedPath, "/map_files/")))
	files, err := procfs.Files("", h.pid)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(files) > 1))

	h.stop()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 0))
}

func TestPIDUsedAgain(t *testing.T) {
	testneeds.Root(t)
	needWaitCode(t)
	// The helper is the first process of a PID namespace and has a /proc of it,
	// which is read from here.
	dir := t.TempDir()
	lib := traced(1).write(t, t.TempDir(), "program")
	h := startHelper(t, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
	h.do("private")
	h.do("mount", "proc", "proc", dir, "")
	fs := procfs.FS(fmt.Sprintf("/proc/%d/root%s", h.pid, dir))
	told, describer := []string{}, make(describer)
	w := NewWatcher(&WatcherOptions{FS: fs, Handler: func(c *Changes) {
		told = append(told, describer.describe(c)...)
	}}, patterns(t, tracedProvider()+":*")...)
	defer w.Close()
	w.patience = scansAnswer

	pid := h.do("start", lib)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	first := w.ProcessFiles()[0]
	h.do("stop", pid)
	h.do("tick") // else both could have the same start time
	startAs(h, pid, lib)
	running, err := first.Process.IsRunning()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(running))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	second := w.ProcessFiles()[0]
	qt.Check(t, qt.Equals(second.Process.PID, first.Process.PID))
	qt.Check(t, qt.Not(qt.Equals(second.key(), first.key())))
	qt.Check(t, qt.DeepEquals(told, []string{"+" + tracedProvider(), "+" + pid + " program", "+" +
		pid + " program", "-" + pid + " program"}))
	h.do("stop", pid)

	_, err = w.openEvents()
	qt.Check(t,
		qt.ErrorMatches(err,
			`no kernel events, polling only: .* is not the proc file system of the caller's PID namespace`))
}

// startAs has the helper start a program until it gets the PID: threads that
// the helper starts meanwhile take numbers, too.
func startAs(h *helper, pid, path string) {
	h.t.Helper()
	wanted, err := strconv.Atoi(pid)
	qt.Assert(h.t, qt.IsNil(err))
	for range 100 {
		h.do("lastpid", strconv.Itoa(wanted-1))
		got := h.do("start", path)
		if got == pid {
			return
		}
		h.do("stop", got)
	}
	h.t.Fatalf("no process got PID %s", pid)
}
