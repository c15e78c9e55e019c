// SPDX-License-Identifier: BSD-2-Clause

package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/checkout"
	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

// testPackage is a package with tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
}

// listPackages resolves patterns of packages of the module in the directory
// dir, and leaves out what has no tests for the machine.
func listPackages(
	ctx context.Context, machine, dir string, patterns []string,
) ([]testPackage, error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, commandError("go list", nil, err)
	}
	var list []testPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p testPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			list = append(list, p)
		}
	}
}

// suite is the test binary of a package, for one machine.
type suite struct {
	testPackage
	binary string
}

// selfTest is the package of this module that tests what all others rely on.
const selfTest = "./internal/selftest"

// buildTests builds the tests of the packages for a machine, those of the
// kernel itself first. It builds without cgo: the guest has no C library but
// the one of the traced programs.
func (m *matrix) buildTests(ctx context.Context, machine, dir string) ([]suite, error) {
	list, err := listPackages(ctx, machine, filepath.Join(m.repository, checkout.Module),
		[]string{selfTest})
	if err != nil {
		return nil, err
	}
	packages, err := listPackages(ctx, machine, m.repository, m.options.Packages)
	if err != nil {
		return nil, err
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no tests for %s in %s", machine,
			strings.Join(m.options.Packages, " "))
	}
	var suites []suite
	for i, p := range append(list, packages...) {
		binary := filepath.Join(dir, fmt.Sprint(i), filepath.Base(p.Dir)+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
		cmd.Dir = p.Dir
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, commandError("building the tests of "+p.ImportPath+" for "+
				machine, out, err)
		}
		suites = append(suites, suite{p, binary})
	}
	return suites, nil
}

// buildTraced builds the programs that tests trace, for all kinds of programs
// that the machine runs, with the makefile in testdata. What needs further
// tools is built where they are there, and what only the host's own compilers
// build, for the host's machine.
func buildTraced(ctx context.Context, machine platform.Machine, repository string) error {
	dir := filepath.Join(repository, "testdata")
	if _, err := os.Stat(filepath.Join(dir, "Makefile")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lockBuild(dir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, kind := range machine.Programs {
		missing, err := runMake(ctx, dir, "missing", "ARCH="+kind.Name, "PROGRAM=target-shared")
		if err != nil {
			return err
		}
		if missing := strings.TrimSpace(missing); missing != "" {
			return fmt.Errorf("traced programs for %s need %s (make kernels-setup installs it)",
				kind.Name, strings.ReplaceAll(missing, "\n", ", "))
		}
		if _, err := runMake(ctx, dir, "all", "ARCH="+kind.Name); err != nil {
			return err
		}
	}
	optional := map[string]string{
		"libbpf-installed": "libbpf-installed",
		"libbpf-newest":    "libbpf-newest",
	}
	if machine.Name == runtime.GOARCH {
		for _, name := range []string{"target-clang", "throw"} {
			optional[name] = filepath.Join("build", machine.Name, name)
		}
	}
	for name, goal := range optional {
		missing, err := runMake(ctx, dir, "missing", "ARCH="+machine.Name, "PROGRAM="+name)
		if err != nil || missing != "" {
			continue
		}
		if _, err := runMake(ctx, dir, "ARCH="+machine.Name, goal); err != nil {
			return err
		}
	}
	return nil
}

// lockBuild takes the lock that the tests of this module take while they
// build the same programs.
func lockBuild(dir string) (unlock func(), err error) {
	build := filepath.Join(dir, "build")
	if err := os.MkdirAll(build, 0o777); err != nil {
		return nil, err
	}
	return checkout.Lock(filepath.Join(build, "lock"))
}

func runMake(ctx context.Context, dir string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "make", append([]string{"-s", "-C", dir}, arguments...)...)
	// Called from a makefile, this make would take its flags and variables.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CC", "CXX", "ARCH"},
			name)
	})
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", commandError("make "+strings.Join(arguments, " "), []byte(said.String()), err)
	}
	return string(out), nil
}

// buildAllTraced builds the programs of all machines: tests on one machine look
// at those of others, too. The result has an error for each machine whose
// programs could not be built.
func buildAllTraced(ctx context.Context, repository string) map[string]error {
	failed := make(map[string]error)
	for _, machine := range platform.Machines() {
		if err := buildTraced(ctx, machine, repository); err != nil {
			failed[machine.Name] = err
		}
	}
	return failed
}

// machineBuild is what all kernels of a machine share.
type machineBuild struct {
	machine platform.Machine
	first   string // the guest's first process
	suites  []suite
}

func (m *matrix) build(ctx context.Context, name string) (*machineBuild, error) {
	machine, err := platform.MachineByName(name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(m.work, name)
	b := &machineBuild{machine: machine}
	if b.suites, err = m.buildTests(ctx, name, dir); err != nil {
		return nil, err
	}
	if b.first, err = vm.BuildInit(ctx, machine, m.repository, dir); err != nil {
		return nil, err
	}
	return b, m.untraced()[name]
}

func commandError(what string, output []byte, err error) error {
	var exit *exec.ExitError
	if len(output) == 0 && errors.As(err, &exit) {
		output = exit.Stderr
	}
	if text := strings.TrimSpace(string(output)); text != "" {
		return fmt.Errorf("%s: %w\n%s", what, err, text)
	}
	return fmt.Errorf("%s: %w", what, err)
}
