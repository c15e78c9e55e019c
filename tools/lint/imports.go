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
	this     = "github.com/gousdt/gousdt"
	demangle = "github.com/ianlancetaylor/demangle"
	ebpf     = "github.com/cilium/ebpf"
	pprof    = "github.com/google/pprof"
	arch     = "golang.org/x/arch"
	sys      = "golang.org/x/sys"
)

// dependency is what those who import a package get with it, on Linux: the
// other modules, exactly, and the other public packages of this module.
type dependency struct {
	packageName       string
	modules, packages []string
}

// dependencies are those of all packages that can be imported. Imports point
// one way.
var dependencies = []dependency{
	{"elfnote", nil, nil},
	{"argspec", nil, nil},
	{"bpf", nil, nil},
	{"providers", nil, []string{"elfnote"}},
	{"container", []string{sys}, nil},
	{"proc", []string{sys}, []string{"container", "elfnote"}},
	{"usdt", []string{ebpf, arch, sys}, []string{"argspec", "bpf", "container", "elfnote", "proc"}},
	{"stack", []string{pprof, demangle, sys}, []string{"container", "elfnote", "proc"}},
	{"trace", []string{ebpf, arch, sys},
		[]string{"argspec", "bpf", "container", "elfnote", "proc", "providers", "usdt"}},
}

// importProblems compares them with what the go command says.
func importProblems(dir string) ([]string, error) {
	public, err := publicPackages(dir)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range public {
		if !slices.ContainsFunc(dependencies,
			func(d dependency) bool { return d.packageName == name }) {
			problems = append(problems,
				fmt.Sprintf("package %s can be imported: say in tools/lint/imports.go what it may depend on", name))
		}
	}
	for _, want := range dependencies {
		modules, packages, err := listDependencies(dir, want.packageName)
		if err != nil {
			return nil, err
		}
		problems = append(problems, differences(want.packageName, "the module", want.modules,
			modules)...)
		problems = append(problems, differences(want.packageName, "the package", want.packages,
			packages)...)
	}
	return problems, nil
}

// differences names what is too much, and what is not there any more.
func differences(packageName, kind string, want, got []string) []string {
	var problems []string
	for _, name := range got {
		if !slices.Contains(want, name) {
			problems = append(problems,
				fmt.Sprintf("package %s must not depend on %s %s (tools/lint/imports.go)",
					packageName, kind, name))
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			problems = append(problems,
				fmt.Sprintf("package %s does not depend on %s %s any more: delete it from tools/lint/imports.go", packageName, kind, name))
		}
	}
	return problems
}

// publicPackages returns the packages that others can import.
func publicPackages(dir string) ([]string, error) {
	out, err := goList(dir, "-f", "{{.Name}} {{.ImportPath}}", "./...")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		name, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if own := strings.TrimPrefix(path, this+"/"); name != "main" && !isInternal(own) {
			names = append(names, own)
		}
	}
	return names, nil
}

func isInternal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }

// goList runs go list as it is on Linux.
func goList(dir string, arguments ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list"}, arguments...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}

// listDependencies returns the other modules, and the other public packages of
// this module, that a package depends on.
func listDependencies(dir, packageName string) (modules, packages []string, err error) {
	out, err := goList(dir, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}",
		"./"+packageName)
	if err != nil {
		return nil, nil, err
	}
	modules, packages = parseDependencies(packageName, out)
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
			if own != packageName && !isInternal(own) {
				packages = append(packages, own)
			}
		}
	}
	slices.Sort(packages)
	return slices.Sorted(maps.Keys(foreign)), packages
}
