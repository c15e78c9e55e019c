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
	xz       = "github.com/therootcompany/xz"
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
	{"proc", []string{sys}, []string{"container"}},
	{"usdt", []string{ebpf, arch, sys}, []string{"argspec", "bpf", "container", "elfnote", "proc"}},
	{"stack", []string{pprof, demangle, sys, xz}, []string{"container", "elfnote", "proc"}},
	{"trace", []string{ebpf, arch, sys},
		[]string{"argspec", "bpf", "container", "elfnote", "proc", "providers", "usdt"}},
}

// importProblems compares them with what the go command says of Linux.
func importProblems(dir string) (problems []string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		`{{.ImportPath}} {{.Name}} {{with .Module}}{{.Path}}{{else}}-{{end}} {{join .Deps " "}}`, "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	list := parsePackages(string(out))
	for name, p := range list {
		own, ok := strings.CutPrefix(name, this+"/")
		if ok && p.isPublic(own) && !slices.ContainsFunc(dependencies,
			func(d dependency) bool { return d.packageName == own }) {
			problems = append(problems,
				fmt.Sprintf("package %s can be imported: say in tools/lint/imports.go what it may depend on", own))
		}
	}
	slices.Sort(problems)
	for _, want := range dependencies {
		modules, packages := list.dependencies(want.packageName)
		problems = append(problems, differences(want.packageName, "the module", want.modules,
			modules)...)
		problems = append(problems, differences(want.packageName, "the package", want.packages,
			packages)...)
	}
	return problems, nil
}

// listed is a package: its name, the module that it is of, "-" for the standard
// library, and all that it depends on.
type listed struct {
	name, module string
	needs        []string
}

func (p listed) isPublic(path string) bool {
	return p.name != "main" && !slices.Contains(strings.Split(path, "/"), "internal")
}

type packageList map[string]listed // by import path

func parsePackages(text string) packageList {
	list := make(packageList)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 {
			list[f[0]] = listed{f[1], f[2], f[3:]}
		}
	}
	return list
}

// dependencies returns the other modules, and the other public packages of this
// module, that a package depends on.
func (list packageList) dependencies(packageName string) (modules, packages []string) {
	foreign := make(map[string]bool)
	for _, path := range list[this+"/"+packageName].needs {
		switch p := list[path]; {
		case p.module == this:
			if own := strings.TrimPrefix(path, this+"/"); p.isPublic(own) {
				packages = append(packages, own)
			}
		case p.module != "-":
			foreign[p.module] = true
		}
	}
	slices.Sort(packages)
	return slices.Sorted(maps.Keys(foreign)), packages
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
