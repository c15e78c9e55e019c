// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// licensed are the endings of sources; scripts are sources, too.
	licensed = []string{".go", ".c", ".h", ".cc", ".S", ".s", ".java", ".rs", ".py", ".rb", ".php", ".js",
		".yml", ".yaml", ".mk"}
	generated = regexp.MustCompile(`(?m)^\W* ?(Code generated|Generated) .*DO NOT EDIT\.`)
	unpinned  = regexp.MustCompile(`(?m)^\s*-? *uses: *([^\s@]+@\S*)`)
	pinned    = regexp.MustCompile(`@[0-9a-f]{40}$`)
)

// bundled is by other authors: NOTICE has their licences.
const bundled = "stack/flamegraph/renderer.js"

// licence returns an error for a source file that does not name its licence,
// unless it is generated, bundled or a fixture.
func licence(name string, text []byte) (problems []string) {
	base := path.Base(name)
	isSource := slices.Contains(licensed, path.Ext(name)) || base == "Makefile" || base == "Dockerfile" ||
		bytes.HasPrefix(text, []byte("#!"))
	head := text[:min(len(text), 2000)]
	if isSource && !bytes.Contains(head, []byte("SPDX-License-Identifier: ")) && !generated.Match(head) &&
		!strings.Contains(name, "testdata/") && name != bundled {
		problems = append(problems, name+":1: no SPDX-License-Identifier")
	}
	return problems
}

// actions returns an error for each action of a workflow that is not named by
// its commit: a tag can be moved.
func actions(name string, text []byte) (problems []string) {
	if !strings.HasPrefix(name, ".github/workflows/") {
		return nil
	}
	for _, use := range unpinned.FindAllSubmatch(text, -1) {
		if !pinned.Match(use[1]) {
			problems = append(problems, fmt.Sprintf("%s: %s: name the commit of an action", name, use[1]))
		}
	}
	return problems
}

// checkText checks a file of any kind, by its name below the directory.
func checkText(dir, name string) ([]string, error) {
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	return append(licence(name, text), actions(name, text)...), err
}
