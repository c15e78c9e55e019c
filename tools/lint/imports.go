// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Names of modules.
const (
	this = "github.com/gousdt/gousdt"
	ebpf = "github.com/cilium/ebpf"
	arch = "golang.org/x/arch"
	sys  = "golang.org/x/sys"
)

// dependencies is what those who import a package get with it, on Linux: the
// modules, exactly, and the other public packages of this module, as imports
// point one way.
var dependencies = []struct {
	packageName string
	modules     []string
	packages    []string
}{
	{"elfnote", nil, nil},
	{"argspec", nil, nil},
	{"bpf", nil, nil},
	{"proc", []string{sys}, []string{"elfnote"}},
	{"usdt", []string{ebpf, arch, sys}, []string{"argspec", "bpf", "elfnote", "proc"}},
	{"trace", []string{ebpf, arch, sys}, []string{"argspec", "bpf", "elfnote", "proc", "usdt"}},
}

// importProblems compares them with what the go command says.
func importProblems(dir string) ([]string, error) {
	var problems []string
	for _, want := range dependencies {
		modules, packages, err := listDependencies(dir, want.packageName)
		if err != nil {
			return nil, err
		}
		problems = append(problems, differences(want.packageName, "the module", want.modules, modules)...)
		problems = append(problems, differences(want.packageName, "the package", want.packages, packages)...)
	}
	return problems, nil
}

// differences names what is too much, and what is not there any more.
func differences(packageName, kind string, want, got []string) []string {
	var problems []string
	for _, name := range got {
		if !slices.Contains(want, name) {
			problems = append(problems, fmt.Sprintf("package %s must not depend on %s %s (tools/lint/imports.go)", packageName, kind, name))
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			problems = append(problems, fmt.Sprintf("package %s does not depend on %s %s any more: delete it from tools/lint/imports.go", packageName, kind, name))
		}
	}
	return problems
}

// listDependencies returns the other modules, and the other public packages of
// this module, that a package depends on.
func listDependencies(dir, packageName string) (modules, packages []string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", "./"+packageName)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list ./%s: %w", packageName, err)
	}
	modules, packages = parseDependencies(packageName, string(out))
	return modules, packages, nil
}

// parseDependencies reads lines of a module, "" for the standard library, and a
// package.
func parseDependencies(packageName, list string) (modules, packages []string) {
	foreign := make(map[string]bool)
	for line := range strings.Lines(list) {
		module, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case module == "":
		case module != this:
			foreign[module] = true
		default:
			own := strings.TrimPrefix(path, this+"/")
			if own != packageName && !slices.Contains(strings.Split(own, "/"), "internal") {
				packages = append(packages, own)
			}
		}
	}
	slices.Sort(packages)
	return slices.Sorted(maps.Keys(foreign)), packages
}
