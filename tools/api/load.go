// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// load returns the packages of the module in dir that others can import, as
// they are on a system, in the order of their names.
func load(dir, system string) ([]exported, error) {
	compiled, err := goList(dir, system)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for _, p := range compiled {
		exports[p.ImportPath] = p.Export
	}
	// The compiler's own description of a package, which go list names.
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var packages []exported
	for _, p := range compiled {
		if !p.Module.Main || p.Name == "main" || slices.Contains(strings.Split(p.ImportPath, "/"),
			"internal") {
			continue
		}
		types, err := imports.Import(p.ImportPath)
		if err != nil {
			return nil, err
		}
		packages = append(packages, describe(strings.TrimPrefix(p.ImportPath, p.Module.Path+"/"),
			types))
	}
	slices.SortFunc(packages, func(a, b exported) int { return strings.Compare(a.name, b.name) })
	return packages, nil
}

// compiledPackage is what go list prints of a package.
type compiledPackage struct {
	ImportPath, Name, Export string
	Module                   struct {
		Path string
		Main bool
	}
}

// goList returns the packages of a module and all those that they import,
// compiled.
func goList(dir, system string) ([]compiledPackage, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,Module",
		"./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []compiledPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p compiledPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		list = append(list, p)
	}
}
