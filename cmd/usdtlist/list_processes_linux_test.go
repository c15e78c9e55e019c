// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// result is what a run of usdtlist gave.
type result struct {
	status         int
	stdout, stderr string
}

func usdtlist(args ...string) result {
	var out, errs strings.Builder
	status := run(args, &out, &errs)
	return result{status, out.String(), errs.String()}
}

// document is the part of the JSON document that is about processes.
type document struct {
	Files []struct {
		File, Path string
		Deleted    bool
		PIDs       []int
		Processes  []struct {
			PID           int
			Command, Path string
			Deleted       bool
		}
		Probes []struct{ Provider, Name string }
	}
	Errors []struct {
		File  string
		PID   int
		Error string
	}
}

func (r result) document(t *testing.T) (d document) {
	t.Helper()
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(r.stdout), &d)),
		qt.Commentf("%s%s", r.stdout, r.stderr))
	return d
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// startShared runs a program whose probes are in a library, both in a directory
// of their own.
func startShared(t *testing.T) (p *testprog.Process, program, library string) {
	t.Helper()
	dir := t.TempDir()
	program, library = put(t, dir, "target-shared"), put(t, dir, "libtarget.so")
	p = testprog.Start(t, program)
	p.Do("list") // the library is loaded
	return p, program, library
}

const three = "PROVIDER     NAME   SITES  LOCATION  SEMAPHORE  ARGUMENTS\ngousdt_test  three "

func TestFilesOfAProcess(t *testing.T) {
	p, program, library := startShared(t)
	pid := strconv.Itoa(p.PID)
	link := filepath.Join(filepath.Dir(library), "libcalled.so")
	qt.Assert(t, qt.IsNil(os.Symlink("libtarget.so", link)))

	for behaviour, words := range map[string][]string{
		"all of them":             {},
		"by a pattern":            {"*:thre?"},
		"by a bare name":          {"libtarget.so"},
		"by what linkers call it": {"target"},
		"by its path":             {library},
		"by a symbolic link":      {link},
	} {
		t.Run(behaviour, func(t *testing.T) {
			r := usdtlist(append(words, "-p", pid, "-e", "three")...)
			qt.Check(t, qt.Equals(r.status, exitFound))
			qt.Check(t, qt.Equals(r.stderr, ""))
			qt.Check(t, qt.IsTrue(strings.HasPrefix(r.stdout, "File: "+library+"\n"+three)),
				qt.Commentf(r.stdout))
			qt.Check(t, qt.Equals(strings.Count(r.stdout, "File: "), 1))
		})
	}

	r := usdtlist("-p", pid, program)
	qt.Check(t, qt.Equals(r, result{exitNothing, "", fmt.Sprintf(
		"usdtlist: no probes in %s of process %s (target-shared)\n"+
			"usdtlist: process %[2]s maps %s, which has probes to list: name that, or no file\n",
		program, pid, library)}))
	r = usdtlist("-p", pid, "gousdt_test:nonesuch")
	qt.Check(t, qt.Equals(r, result{exitNothing, "",
		"usdtlist: no probe matches gousdt_test:nonesuch (nearest: gousdt_test:none)\n"}))
	r = usdtlist("-p", pid, "libnonesuch.so")
	qt.Check(t, qt.Equals(r.status, exitError))
	qt.Check(t,
		qt.StringContains(r.stderr, "process "+pid+" maps no file of that name (give its path"))
	r = usdtlist("-p", pid, "/nonesuch")
	qt.Check(t, qt.Equals(r, result{exitError, "", fmt.Sprintf(
		"usdtlist: process %s: open \"/nonesuch\": no such file or directory\n", pid)}))
	r = usdtlist("-p", pid, "--format", "perf", "gousdt_test:three")
	qt.Check(t, qt.Equals(r.stdout, "perf probe -x "+library+" %sdt_gousdt_test:three\n"))
	r = usdtlist("-p", pid, "-v", "gousdt_test:three")
	qt.Check(t, qt.IsTrue(strings.HasPrefix(r.stdout, "File: "+library+"\n  ")),
		qt.Commentf(r.stdout))

	// A file that is not mapped can be listed before it is loaded.
	r = usdtlist("-p", pid, testprog.Path(t, "target-pie"), "gousdt_test:three")
	qt.Check(t, qt.Equals(r.status, exitFound))
	qt.Check(t,
		qt.Equals(firstLine(r.stdout), "File: "+testprog.Path(t, "target-pie")+" (not mapped)"))
}

func TestProcessesThatMapAFileAreGroupedUnderIt(t *testing.T) {
	testneeds.Root(t)
	one, program, library := startShared(t)
	two := testprog.Start(t, program)
	two.Do("list")
	first, second := min(one.PID, two.PID), max(one.PID, two.PID)

	for _, args := range [][]string{
		{"-a", library, "gousdt_test:three"},
		{"-p", strconv.Itoa(first), "-p", strconv.Itoa(second), "gousdt_test:three"},
	} {
		r := usdtlist(args...)
		qt.Check(t, qt.Equals(strings.Count(r.stdout, "File: "), 1))
		want := fmt.Sprintf("File: %s\n  Mapped by: target-shared %d %d\n%s", library, first,
			second, three)
		qt.Check(t, qt.IsTrue(strings.HasPrefix(r.stdout, want)), qt.Commentf(r.stdout))
	}

	// The same file under another name for one of them.
	link := filepath.Join(t.TempDir(), "libtarget.so")
	qt.Assert(t, qt.IsNil(os.Link(library, link)))
	put(t, filepath.Dir(link), "target-shared")
	three := testprog.Start(t, filepath.Join(filepath.Dir(link), "target-shared"))
	three.Do("list")
	r := usdtlist("-p", strconv.Itoa(one.PID), "-p", strconv.Itoa(three.PID))
	qt.Check(t, qt.Equals(strings.Count(r.stdout, "File: "), 1))
	qt.Check(t,
		qt.StringContains(r.stdout,
			fmt.Sprintf("  Mapped by: target-shared %d, target-shared (as %s) %d\n",
				one.PID, link, three.PID)))

	r = usdtlist("-a", "libnonesuch.so")
	qt.Check(t, qt.Equals(r.stdout, ""))
	qt.Check(t, qt.StringContains(r.stderr, "usdtlist: no process maps libnonesuch.so, or it has no probes to list\n"))
}

func TestDeletedLibraryIsReadFromItsMapping(t *testing.T) {
	testneeds.Root(t)
	p, _, library := startShared(t)
	qt.Assert(t, qt.IsNil(os.Remove(library)))
	qt.Assert(t, qt.IsNil(os.WriteFile(library, []byte("another file"), 0o644)))
	pid := strconv.Itoa(p.PID)

	r := usdtlist("-p", pid, "libtarget.so", "*:three")
	qt.Check(t, qt.Equals(r.status, exitFound))
	lines := strings.Split(r.stdout, "\n")
	qt.Check(t, qt.Equals(lines[0], "File: "+library+" (deleted)"))
	qt.Check(t, qt.Matches(lines[1], `  Path here: /proc/`+pid+`/map_files/[0-9a-f]+-[0-9a-f]+`))

	files := usdtlist("-p", pid, "--json", "*:three").document(t).Files
	qt.Assert(t, qt.HasLen(files, 1))
	f := files[0]
	qt.Check(t, qt.Equals(f.Path, library))
	qt.Check(t, qt.IsTrue(f.Deleted))
	qt.Check(t, qt.DeepEquals(f.PIDs, []int{p.PID}))
	qt.Check(t, qt.Equals("  Path here: "+f.File, lines[1]))
	qt.Check(t, qt.Equals(f.Processes[0].Command, "target-shared"))
	qt.Check(t, qt.Equals(f.Processes[0].Path, library))
	qt.Check(t, qt.Equals(f.Probes[0].Name, "three"))

	// Any user of the line can open the path.
	r = usdtlist("-p", pid, "--format", "bpftrace", "*:three")
	qt.Check(t, qt.Equals(r.stdout, "usdt:"+f.File+":gousdt_test:three\n"))
	qt.Check(t, qt.Equals(usdtlist(f.File).status, exitFound))
}

func TestLibraryInAMemfdIsListed(t *testing.T) {
	testneeds.Root(t)
	content, err := os.ReadFile(testprog.Path(t, "libtarget.so"))
	qt.Assert(t, qt.IsNil(err))
	fd, err := unix.MemfdCreate("made-up", unix.MFD_CLOEXEC)
	qt.Assert(t, qt.IsNil(err))
	file := os.NewFile(uintptr(fd), "memfd")
	defer file.Close()
	_, err = file.Write(content)
	qt.Assert(t, qt.IsNil(err))
	p := testprog.Start(t, "target-pie")
	p.Do("load " + fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))

	r := usdtlist("-p", strconv.Itoa(p.PID), "/memfd:made-up", "*:three")
	qt.Check(t, qt.Equals(r.status, exitFound), qt.Commentf(r.stderr))
	qt.Check(t, qt.Equals(firstLine(r.stdout), "File: /memfd:made-up (deleted)"))
}

// Two processes with a file of the same name, each in its own mount namespace
// and with its own root directory.
func TestNamesAreThoseOfTheProcess(t *testing.T) {
	testneeds.Root(t)
	var pids []string
	for range 2 {
		root := t.TempDir()
		put(t, root, "target-static")
		libraries := filepath.Join(root, "usr", "lib")
		qt.Assert(t, qt.IsNil(os.MkdirAll(libraries, 0o755)))
		put(t, libraries, "libtarget.so")
		cmd := exec.Command("/target-static")
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNS}
		cmd.Dir = "/"
		p := testprog.StartCommand(t, cmd)
		p.Do("list")
		pids = append(pids, strconv.Itoa(p.PID))
	}

	r := usdtlist("-p", pids[0], "-p", pids[1], "/target-static", "*:three")
	qt.Check(t, qt.Equals(r.status, exitFound), qt.Commentf(r.stderr))
	for i, list := range strings.Split(r.stdout, "\n\n") {
		want := fmt.Sprintf("File: /target-static\n  Path here: /proc/%s/root/target-static\n  Mapped by: target-static %[1]s\n", pids[i])
		qt.Check(t, qt.IsTrue(strings.HasPrefix(list, want)), qt.Commentf(list))
	}
	r = usdtlist("-p", pids[1], "--format", "bcc", "target-static", "*:three")
	qt.Check(t, qt.Equals(r.stdout, fmt.Sprintf("u:/proc/%s/root/target-static:three\n", pids[1])))
	r = usdtlist("-p", pids[1], "/usr/lib/libtarget.so", "*:three")
	qt.Check(t, qt.IsTrue(strings.HasPrefix(r.stdout, fmt.Sprintf(
		"File: /usr/lib/libtarget.so (not mapped)\n  Path here: /proc/%s/root/usr/lib/libtarget.so\n", pids[1]))), qt.Commentf(r.stdout))
	r = usdtlist("-p", pids[1], "libc.so.6")
	qt.Check(t, qt.Equals(r.status, exitError),
		qt.Commentf("it is not mapped"))
}

func TestThreadsOfTheKernelExecuteNoFiles(t *testing.T) {
	const kthreadd = 2
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", kthreadd))
	if err != nil || string(command) != "kthreadd\n" {
		testneeds.Missing(t, "needs the first PID namespace, which sees threads of the kernel")
	}
	r := usdtlist("-p", strconv.Itoa(kthreadd))
	qt.Check(t,
		qt.Equals(r,
			result{exitNothing, "",
				"usdtlist: no probes in the files of process 2 (kthreadd)\n"}))
}
