// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// prebuiltVariable names a folder with programs that were built elsewhere.
const prebuiltVariable = "GOUSDT_TESTDATA"

// Path returns the path of a program or library in testdata/build for this
// machine, and builds it first where that is needed. It is safe for concurrent
// use, also by the test processes of several packages.
//
//	target-pie       position independent, the probes in the program itself
//	target-static    position dependent and static
//	target-shared    a program without probes, linked with libtarget.so
//	libtarget.so     the probes; addresses are not file offsets, no .stapsdt.base
//	target-stripped  as target-pie, without symbols; they are in target-stripped.debug
//	target-clang     as target-pie, compiled by clang
//	target-musl      as target-pie, linked with musl
//	calls            calls inside each other, whose true times it tells
//	members          has arguments that point to structures, and says what is in them
//	launcher         starts other programs, as a shell does
//	hostile          serves files that do not answer; see StartHostile
//	demo             what `make demo` traces
//	throw            throws C++ exceptions
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
	if dir := os.Getenv(prebuiltVariable); dir != "" {
		path := filepath.Join(dir, arch, name)
		if _, err := os.Stat(path); err != nil {
			testneeds.Missing(t, "no prebuilt program: %v", err)
		}
		return path
	}
	path, err := builds.get(arch, name)
	var missing *missingToolsError
	if errors.As(err, &missing) {
		testneeds.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatalf("build %s for %s: %v", name, arch, err)
	}
	return path
}

// missingToolsError says what cannot be built here, and why.
type missingToolsError struct {
	arch  string
	tools []string
}

func (e *missingToolsError) Error() string {
	return fmt.Sprintf("traced programs for %s need %s (make setup installs them)",
		e.arch, strings.Join(e.tools, ", "))
}

// buildCache builds each program once for a test process.
type buildCache struct {
	mu    sync.Mutex
	built map[string]func() (string, error)
}

var builds = buildCache{built: make(map[string]func() (string, error))}

func (c *buildCache) get(arch, name string) (string, error) {
	c.mu.Lock()
	key := arch + "/" + name
	once := c.built[key]
	if once == nil {
		once = sync.OnceValues(func() (string, error) { return build(arch, name) })
		c.built[key] = once
	}
	c.mu.Unlock()
	return once()
}

// build runs make for one program. make alone knows what is out of date; two of
// them at once would spoil each other's files.
func build(arch, name string) (string, error) {
	dir, err := testdata()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, "build")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}

	if _, err := exec.LookPath("make"); err != nil {
		return "", &missingToolsError{arch: arch, tools: []string{"make"}}
	}
	out, err := makeIn(dir, "missing", "ARCH="+arch, "PROGRAM="+name)
	if err != nil {
		return "", err
	}
	if tools := strings.Split(strings.TrimSpace(out), "\n"); tools[0] != "" {
		return "", &missingToolsError{arch: arch, tools: tools}
	}
	program := filepath.Join("build", arch, name)
	if _, err := makeIn(dir, "ARCH="+arch, program); err != nil {
		return "", err
	}
	return filepath.Join(dir, program), nil
}

func makeIn(dir string, arguments ...string) (string, error) {
	cmd := exec.Command("make", append([]string{"-s", "-C", dir}, arguments...)...)
	// Called from a makefile, this make would take its flags and variables.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CC", "CXX", "ARCH"},
			name)
	})
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// testdata finds the folder from anywhere in the repository, also from a module
// inside it: tests run in the folder of their package.
func testdata() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		found := filepath.Join(dir, "testdata")
		if _, err := os.Stat(filepath.Join(found, "target.c")); err == nil {
			return found, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no testdata/target.c above the working directory (set %s to a folder of prebuilt programs)", prebuiltVariable)
		}
		dir = parent
	}
}
