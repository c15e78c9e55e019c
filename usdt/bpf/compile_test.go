// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// The machines that the header knows, as bpf2go names them to clang.
var machines = []string{"x86", "arm64", "s390", "riscv", "powerpc", "loongarch", "arm"}

// compilers returns every clang that is installed, each version once.
func compilers(t *testing.T) []string {
	t.Helper()
	var found, seen []string
	names := []string{"clang"}
	for version := 14; version < 40; version++ {
		names = append(names, fmt.Sprintf("clang-%d", version))
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		path, err = filepath.EvalSymlinks(path)
		if err != nil || slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		found = append(found, name)
	}
	if len(found) == 0 {
		testneeds.Missing(t, "needs clang 14 or newer (Debian: clang-14)")
	}
	return found
}

// clang compiles a file of testdata for a machine and returns the object. The
// header is found as a user of this module finds it.
func clang(t *testing.T, compiler, machine, source string, flags ...string) (object, output string,
	err error) {
	t.Helper()
	return compile(t, compiler, machine, source, append([]string{"-I", ".."}, flags...)...)
}

// compile compiles a file of testdata without this module's header.
func compile(t *testing.T, compiler, machine, source string, flags ...string) (object,
	output string, err error) {
	t.Helper()
	object = filepath.Join(t.TempDir(), filepath.Base(source)+".o")
	target := "bpfel"
	if machine == "s390" {
		target = "bpfeb"
	}
	args := []string{
		"-O2", "-g", "-target", target, "-Wall", "-Wextra", "-Wshadow",
		"-Wno-unused-parameter", "-Werror",
		"-c", source, "-o", object,
	}
	if machine != "" {
		args = append(args, "-D__TARGET_ARCH_"+machine)
	}
	// Debian has <asm/...> in a directory for each machine.
	directories, _ := filepath.Glob("/usr/include/*-linux-gnu")
	for _, directory := range directories {
		args = append(args, "-idirafter", directory)
	}
	out, err := exec.Command(compiler, append(args, flags...)...).CombinedOutput()
	return object, string(out), err
}

func mustCompile(t *testing.T, compiler, machine, source string, flags ...string) string {
	t.Helper()
	object, output, err := clang(t, compiler, machine, source, flags...)
	if err != nil {
		t.Fatalf("%s %s for %s: %v\n%s", compiler, strings.Join(flags, " "), machine, err, output)
	}
	return object
}

func TestProgramsForLibbpfsHeaderCompileUnchanged(t *testing.T) {
	for _, compiler := range compilers(t) {
		for i, machine := range machines {
			variants := []string{"-mcpu=v1", "-mcpu=v3"}
			if i == 0 {
				variants = append(variants, "-DWITH_VMLINUX_H", "-g0")
			}
			for _, flag := range variants {
				t.Run(compiler+"/"+machine+"/"+flag, func(t *testing.T) {
					mustCompile(t, compiler, machine, "testdata/samples.bpf.c", flag)
				})
			}
		}
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for _, test := range []struct{ name, machine, flag, want string }{
		{"no machine", "", "", "unknown target machine"},
		{"unknown machine", "pdp11", "", "unknown target machine"},
		{"13 parameters", "x86", "-DTHIRTEEN", "at_most_12_arguments"},
		{"libbpf's header too", "x86", "-D__USDT_BPF_H__", "put the root of gousdt ahead"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, output, err := clang(t, compilers(t)[0], test.machine, "testdata/mistakes.bpf.c",
				test.flag)
			qt.Assert(t, qt.IsNotNil(err))
			qt.Assert(t, qt.StringContains(output, test.want))
		})
	}
	mustCompile(t, compilers(t)[0], "x86", "testdata/mistakes.bpf.c")
}
