// SPDX-License-Identifier: BSD-2-Clause

// Package testprog gives tests something to trace.
//
// The traced programs are the C sources in internal/testdata/. [Path] builds
// them with make, once for a test process however many tests ask, and returns
// where they are; [CrossPath] does so for another machine. [Start] runs one and
// talks to it:
//
//	p := testprog.Start(t, "target-pie")
//	p.Fire("three", 2)         // passes the probe three twice
//	p.Semaphore("counted")     // what the program itself sees in the semaphore
//
// The values that the programs pass are fixed. [Expected] lists them, probe by
// probe, as a tracer has to report them: a test compares every value of every
// argument, not just that something fired.
//
// Other software with probes is here too: [StartPostgres], [StartPython] and
// [StartThrow].
//
// # What skips and what fails
//
// A test that needs a privilege or a tool asks for it ([RequireBPF], [Path])
// and is skipped, with the reason, where it is missing, or fails where
// continuous integration should have it: see package testneeds.
//
// # Without a compiler
//
// In a guest that has neither make nor gcc, the environment variable
// GOUSDT_TESTDATA names a folder with programs built elsewhere, laid out as
// internal/testdata/build is: a folder per machine, by Go's name of it, with
// the programs in it.
package testprog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// prebuiltVariable names a folder with programs that were built elsewhere.
const prebuiltVariable = "GOUSDT_TESTDATA"

// Path returns the path of a program or library in internal/testdata/build for
// this machine, and builds it first where that is needed. It is safe for
// concurrent use, also by the test processes of several packages. A test that
// begins with [Parallel] gets a copy of its own.
//
//	target-pie       position independent, the probes in the program itself
//	target-static    position dependent and static
//	target-shared    a program without probes, linked with libtarget.so
//	libtarget.so     the probes; addresses are not file offsets, no .stapsdt.base
//	target-stripped  as target-pie, without symbols; they are in target-stripped.debug
//	target-clang     as target-pie, compiled by clang
//	target-musl      as target-pie, linked with musl
//	calls            calls inside each other, whose true times it tells
//	frames-0         leaves calls in many ways, compiled with -O0; frames-2 with -O2
//	members          has arguments that point to structures, and says what is in them
//	launcher         starts other programs, as a shell does
//	hostile          serves files that do not answer; see StartHostile
//	demo             what `make demo` traces
//	throw            throws C++ exceptions
//	go-shop          examples/shop, in Go
//
// Objects for libbpf are libbpf-installed/NAME.bpf.o and
// libbpf-newest/NAME.bpf.o, by the header that they are compiled with.
func Path(t testing.TB, name string) string {
	t.Helper()
	return CrossPath(t, runtime.GOARCH, name)
}

// CrossPath is [Path] for another machine, by Go's name of it: 386, amd64,
// arm64, riscv64, s390x.
func CrossPath(t testing.TB, arch, name string) string {
	t.Helper()
	path := built(t, arch, name)
	root, _, _ := strings.Cut(t.Name(), "/")
	if copies, ok := parallel.Load(root); ok && filepath.Ext(name) != ".o" {
		return copies.(*ownFiles).copy(path, filepath.Join(arch, name))
	}
	return path
}

// parallel has the files of tests that run beside others, by their names.
var parallel sync.Map

// ownFiles are copies of programs that one test traces.
type ownFiles struct {
	t    testing.TB
	mu   sync.Mutex
	dir  string
	made map[string]bool
}

// copy copies a file, and what belongs beside it.
func (o *ownFiles) copy(path, name string) string {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil {
		o.dir, o.made = o.t.TempDir(), make(map[string]bool)
	}
	folder, base := filepath.Split(name)
	for _, beside := range append(belonging[base], base) {
		to := filepath.Join(o.dir, folder, beside)
		if o.made[to] {
			continue
		}
		from, into := filepath.Dir(path), filepath.Dir(to)
		if contents, err := os.ReadFile(filepath.Join(from, beside)); err == nil {
			qt.Assert(o.t, qt.IsNil(os.MkdirAll(into, 0o755)))
			WriteProgram(o.t, to, contents)
			_ = os.Symlink(filepath.Join(from, "include"), filepath.Join(into, "include"))
			o.made[to] = true
		}
	}
	return filepath.Join(o.dir, name)
}

var belonging = map[string][]string{
	"target-shared": {"libtarget.so"}, "target-stripped": {"target-stripped.debug"},
	"members-stripped": {"members-stripped.debug"},
}

// WriteProgram writes a file that can be executed at once: no process that is
// started meanwhile has it open for writing until it executes its own program.
func WriteProgram(t testing.TB, path string, contents []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
}

// built returns the path of what make has made.
func built(t testing.TB, arch, name string) string {
	t.Helper()
	testneeds.Only(t, "the traced programs are built there", "linux")
	if dir := os.Getenv(prebuiltVariable); dir != "" {
		path := filepath.Join(dir, arch, name)
		if _, err := os.Stat(path); err != nil {
			testneeds.Missing(t, "no prebuilt program: %v", err)
		}
		return path
	}
	dir := testdata(t)
	builds.Lock()
	defer builds.Unlock()
	program := filepath.Join("build", arch, name)
	path := filepath.Join(dir, program)
	if builds.built[path] {
		return path
	}
	testneeds.Tool(t, "make", "make")
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, "build"), 0o777)))
	missing, err := makeIn(dir, "missing", "ARCH="+arch, "PROGRAM="+name)
	qt.Assert(t, qt.IsNil(err))
	if missing != "" {
		testneeds.Missing(t, "traced programs for %s need %s (make setup installs them)",
			arch, strings.ReplaceAll(strings.TrimSpace(missing), "\n", ", "))
	}
	// make alone knows what is out of date.
	_, err = makeIn(dir, "ARCH="+arch, program)
	giveToOwner(dir)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("build %s for %s", name, arch))
	builds.built[path] = true
	return path
}

// builds has the programs that this process has built.
var builds = struct {
	sync.Mutex
	built map[string]bool
}{built: make(map[string]bool)}

// makeIn runs make in a directory. Called from a makefile, it would take that
// one's flags and variables. Two at once would spoil each other's files.
func makeIn(dir string, arguments ...string) (string, error) {
	cmd := exec.Command("env", append([]string{"-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL",
		"-u", "CC", "-u", "CXX", "-u", "ARCH", "flock", filepath.Join(dir, "build", "lock"), "make",
		"-s", "-C", dir}, arguments...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// giveToOwner gives what root has built to the user whose folder it is in, who
// runs make clean.
func giveToOwner(dir string) {
	if os.Geteuid() != 0 {
		return
	}
	// What another process removes meanwhile is not found: that is no failure.
	_ = exec.Command("sh", "-c", `owner=$(stat -c %u:%g "$1")
		[ "$owner" = 0:0 ] || find "$1/build" -user root -exec chown -h "$owner" {} +`, "sh", dir).Run()
}

// testdata finds the folder from anywhere in the repository, also from a module
// inside it: tests run in the folder of their package.
func testdata(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	qt.Assert(t, qt.IsNil(err))
	for ; dir != "/"; dir = filepath.Dir(dir) {
		found := filepath.Join(dir, "internal", "testdata")
		if _, err := os.Stat(filepath.Join(found, "target.c")); err == nil {
			return found
		}
	}
	t.Fatalf("no internal/testdata/target.c above the working directory (set %s to a folder of prebuilt "+
		"programs)", prebuiltVariable)
	return ""
}
