// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

func TestPIDs(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"1", "77", "self", "sys", "0", "012", "1x"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(f.root, name), 0o755)))
	}
	pids, err := f.fs().PIDs()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.ContentEquals(pids, []int{1, 77}))
}

func TestPIDsOfWhatIsNoProcFileSystem(t *testing.T) {
	_, err := procfs.FS(t.TempDir()).PIDs()
	qt.Check(t, qt.ErrorMatches(err, "list processes of .*: not a proc file system .*"))
	_, err = procfs.FS(filepath.Join(t.TempDir(), "absent")).PIDs()
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
}

func TestRoot(t *testing.T) {
	for root, want := range map[string]string{"": "/proc", "/proc": "/proc",
		"/host/proc/": "/host/proc", "/": "/"} {
		qt.Check(t, qt.Equals(procfs.FS(root).Root(), want))
	}
}

func TestProcess(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 7, command: "a (b) c", startTime: 42, size: 1})
	p, err := proc.Find(proc.FS(f.fs().Root()), 7)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(ID{PID: p.PID, StartTime: p.StartTime}, ID{PID: 7, StartTime: 42}))
	qt.Check(t, qt.Equals(p.String(), "7 (a (b) c)"))
	qt.Check(t, qt.Equals(p.Parent, 1))

	running, err := p.IsRunning()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(running))
	for threads, want := range map[int]bool{1: false, 3: true} {
		f.put(fakeProcess{pid: 7, command: "a (b) c", startTime: 42, state: 'Z', threads: threads})
		running, err = p.IsRunning()
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(running, want), qt.Commentf("main thread has ended, of %d", threads))
	}
	f.put(fakeProcess{pid: 7, command: "a (b) c", startTime: 43, size: 1})
	running, err = p.IsRunning()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(running), qt.Commentf("another process has the PID"))
	f.remove(7)
	running, err = p.IsRunning()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(running))

	_, err = proc.Find(proc.FS(f.fs().Root()), 7)
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
	qt.Check(t, qt.ErrorMatches(err, `process 7: read stat: no such process: .*`))
}

func TestProcessTellsExecutableAndCgroup(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 7, startTime: 1, size: 1})
	f.link(7, "exe", "/jail/usr/bin/program (deleted)")
	f.link(7, "root", "/jail")
	f.write(7, "cgroup", "0::/kubepods/pod1/container2\n")
	p, err := proc.Find(proc.FS(f.fs().Root()), 7)
	qt.Assert(t, qt.IsNil(err))
	exe, err := p.Executable()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(exe, "/usr/bin/program (deleted)"))
	cgroup, err := p.Cgroup()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(cgroup, "0::/kubepods/pod1/container2\n"))

	f.remove(7)
	_, err = p.Executable()
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
	_, err = p.Cgroup()
	qt.Check(t, qt.ErrorIs(err, procfs.ErrGone))
}

func TestFilesGroupsMappings(t *testing.T) {
	f := newFixture(t)
	lib := func(start, offset uint64, permissions, path string, inode uint64) fakeMap {
		return fakeMap{start: start, end: start + 0x1000, permissions: permissions, offset: offset,
			minor: 0x1f, inode: inode, path: path}
	}
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{
		lib(0x1000, 0, "r--p", "/bin/program", 1),
		lib(0x2000, 0x1000, "r-xp", "/bin/program", 1),
		lib(0x3000, 0x2000, "rwxp", "/bin/program", 1),
		{start: 0x4000, end: 0x5000, permissions: "rwxp"},
		lib(0x5000, 0, "r-xp", "/lib/a.so (deleted)", 2),
		lib(0x6000, 0, "r-xp", "/lib/a.so", 3),
		lib(0x7000, 0x5000, "r-xp", "/lib/a.so (deleted)", 2),
		lib(0x8000, 0, "r--p", "/usr/share/locale", 4),
		lib(0x9000, 0, "r-xs", "/memfd:jit\n (deleted)", 5),
		{start: 0xa000, end: 0xb000, permissions: "r-xp", path: "[vdso]"},
		lib(0xc000, 0, "r-xp", "/mnt/a.so", 2),
	}})
	files, err := procfs.Files(f.fs(), 7)
	qt.Assert(t, qt.IsNil(err))
	type view struct {
		Path     string
		Deleted  bool
		Mappings []procfs.Mapping
	}
	all, err := procfs.AllFiles(f.fs(), 7)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(all[0].Mappings[0],
		procfs.Mapping{Start: 0x1000, End: 0x2000, Data: true}))
	var got []view
	for _, file := range files {
		got = append(got, view{file.Path, file.Deleted, file.Mappings})
	}
	qt.Assert(t, qt.DeepEquals(got, []view{
		{"/bin/program", false, []procfs.Mapping{
			{Start: 0x2000, End: 0x3000, Offset: 0x1000},
			{Start: 0x3000, End: 0x4000, Offset: 0x2000, Writable: true},
		}},
		{"/lib/a.so", true, []procfs.Mapping{
			{Start: 0x5000, End: 0x6000, Offset: 0},
			{Start: 0x7000, End: 0x8000, Offset: 0x5000},
		}},
		{"/lib/a.so", false, []procfs.Mapping{{Start: 0x6000, End: 0x7000, Offset: 0}}},
		{"/memfd:jit\n", true, []procfs.Mapping{{Start: 0x9000, End: 0xa000, Shared: true}}},
		{"/mnt/a.so", false, []procfs.Mapping{{Start: 0xc000, End: 0xd000, Offset: 0}}},
	}))
}

func TestMappingAddress(t *testing.T) {
	m := procfs.Mapping{Start: 0x7f0000001000, End: 0x7f0000003000, Offset: 0x5000}
	for offset, want := range map[uint64]uint64{0x5000: 0x7f0000001000, 0x6fff: 0x7f0000002fff} {
		address, ok := m.Address(offset)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(address, want))
	}
	for _, offset := range []uint64{0, 0x4fff, 0x7000, 1<<64 - 1} {
		_, ok := m.Address(offset)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%#x", offset))
	}
}

func TestFilesOfAMalformedMapsAreThoseUnderstood(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 7, size: 1})
	good := code(0x1000, "/lib/a.so").line()
	tooLong := code(0x5000, "/"+strings.Repeat("x", 64<<10)).line()
	f.write(7, "maps", "nonsense\n"+good+tooLong+"\n\n")
	files, err := procfs.Files(f.fs(), 7)
	qt.Assert(t, qt.ErrorIs(err, procfs.ErrMalformed))
	qt.Assert(t, qt.HasLen(files, 1))
	qt.Assert(t, qt.Equals(files[0].Path, "/lib/a.so"))
}

func TestFilesOfAProcessAfterChroot(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{
		{start: 0x1000, end: 0x2000, permissions: "r-xp", inode: 1, minor: 1,
			path: "/jail/lib/a.so (deleted)"},
		{start: 0x2000, end: 0x3000, permissions: "r-xp", inode: 2, minor: 1, path: "/jailed/b.so"},
	}})
	f.link(7, "root", "/jail")
	files, err := procfs.Files(f.fs(), 7)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(files[0].Path, "/lib/a.so"))
	qt.Check(t, qt.Equals(files[1].Path, "/jailed/b.so"), qt.Commentf("it lies outside"))
}

func TestFilesOfAProcessWhoseFirstThreadHasEnded(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 7, state: 'Z', threads: 2, startTime: 5})
	for _, tid := range []int{7, 8, 9} {
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(f.root, "7", "task", strconv.Itoa(tid)),
			0o755)))
	}
	f.put(fakeProcess{pid: 8, state: 'Z', threads: 2})
	lib := noProbes.write(t, t.TempDir(), "a.so")
	f.put(fakeProcess{pid: 9, threads: 2, size: 4096, maps: []fakeMap{code(0x1000, lib)}})
	files, err := procfs.Files(f.fs(), 7)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 1))
	_, err = new(Mounts).ID(files[0])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(files[0].OpenedPath, f.root+"/9/map_files/1000-2000"))
}

func TestErrorsOfAProcess(t *testing.T) {
	for errno, want := range map[syscall.Errno]error{
		syscall.EACCES: procfs.ErrAccess, syscall.EPERM: procfs.ErrAccess, syscall.ENOENT: procfs.ErrGone,
		syscall.ESRCH: procfs.ErrGone,
	} {
		err := error(&procfs.Error{PID: 7, Path: "/a\x1b[2J", Op: "open",
			Err: procfs.Classify(&fs.PathError{Op: "open", Path: "x", Err: errno})})
		qt.Check(t, qt.ErrorIs(err, want))
		qt.Check(t, qt.ErrorIs(err, error(errno)))
		qt.Check(t, qt.ErrorMatches(err, `process 7: open "/a\\x1b\[2J": .*`))
	}
	qt.Check(t, qt.IsFalse(errors.Is(procfs.Classify(syscall.EIO), procfs.ErrAccess)))
}

func TestWhetherPIDsAreTheCallersOwn(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for status, want := range map[string]bool{
		"Name:\ta\nNSpid:\t" + own + "\nNSpgid:\t1\n": true,
		"NSpid:\t1" + own + "\t" + own + "\n":         false, // a host's
		"NSpid:\t" + own + "\t" + own + "\n":          false, // a host's, equal by chance
		"NSpid:\t1" + own + "\n":                      false, // of another process: a copy
		"Name:\ta\nPid:\t" + own + "\n":               true,  // no PID namespaces
	} {
		f := newFixture(t)
		qt.Check(t, qt.IsFalse(procfs.HasOwnPIDs(f.root)), qt.Commentf("it does not know this process"))
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(f.root, "self"), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(f.root, "self", "status"), []byte(status),
			0o644)))
		qt.Check(t, qt.Equals(procfs.HasOwnPIDs(f.root), want), qt.Commentf("%q", status))
	}
}
