// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

// testPackage is a package with tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
}

// suite is the test binary of a package, for one machine.
type suite struct {
	testPackage
	binary string
}

// buildTests builds the tests of the packages for a machine, those of the
// kernel itself first, on which all others rely. It builds without cgo: the
// guest has no C library but the one of the traced programs.
func (m *matrix) buildTests(ctx context.Context, machine, dir string) ([]suite, error) {
	goCommand := func(dir string, arguments ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", arguments...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
		out, err := cmd.Output()
		return out, commandError(fmt.Sprintf("go %s for %s", arguments[0], machine), err)
	}
	var suites []suite
	build := func(module string, patterns ...string) error {
		out, err := goCommand(module, append([]string{"list",
			"-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
		if err != nil {
			return err
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p testPackage
			err := decoder.Decode(&p)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("go list: %w", err)
			}
			if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
				continue
			}
			binary := filepath.Join(dir, fmt.Sprint(len(suites)), filepath.Base(p.Dir)+".test")
			if _, err := goCommand(p.Dir, "test", "-c", "-o", binary, "."); err != nil {
				return fmt.Errorf("tests of %s: %w", p.ImportPath, err)
			}
			suites = append(suites, suite{p, binary})
		}
	}
	if err := build(filepath.Join(m.repository, "kernels"), "./internal/selftest"); err != nil {
		return nil, err
	}
	before := len(suites)
	if err := build(m.repository, m.options.packages...); err != nil {
		return nil, err
	}
	if len(suites) == before {
		return nil, fmt.Errorf("no tests for %s in %s", machine,
			strings.Join(m.options.packages, " "))
	}
	return suites, nil
}

// buildAllTraced builds the programs that tests trace, of all machines: tests
// on one machine look at those of others, too. The result has an error for each
// machine whose programs could not be built.
func buildAllTraced(ctx context.Context, repository string) map[string]error {
	failed := make(map[string]error)
	for _, machine := range platform.Machines() {
		failed[machine.Name] = buildTraced(ctx, machine, filepath.Join(repository, "testdata"))
	}
	return failed
}

// buildTraced builds them for all kinds of programs that a machine runs, with
// the makefile in a directory. What needs further tools is built where they are
// there, and what only the host's own compilers build, for the host's machine.
func buildTraced(ctx context.Context, machine platform.Machine, dir string) error {
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

// runMake runs make in a directory. Called from a makefile, it would take that
// one's flags and variables. The tests take the same lock.
func runMake(ctx context.Context, dir string, arguments ...string) (string, error) {
	build := filepath.Join(dir, "build")
	if err := os.MkdirAll(build, 0o777); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "env", append([]string{"-u", "MAKEFLAGS", "-u", "MFLAGS",
		"-u", "MAKELEVEL", "-u", "CC", "-u", "CXX", "-u", "ARCH", "flock",
		filepath.Join(build, "lock"), "make", "-s", "-C", dir}, arguments...)...).Output()
	return string(out), commandError("make "+strings.Join(arguments, " "), err)
}

// machineBuild is what all kernels of a machine share.
type machineBuild struct {
	machine platform.Machine
	first   string // the guest's first process
	suites  []suite

	emulator   vm.Emulator
	noEmulator error // why there is none
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
	b.emulator, b.noEmulator = m.emulator(ctx, machine)
	return b, m.untraced()[name]
}

// commandError returns nil for nil, else an error with what a command said.
func commandError(what string, err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%s: %w\n%s", what, err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
