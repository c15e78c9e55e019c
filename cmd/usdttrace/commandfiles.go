// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
)

const (
	// maxCommandFiles bounds the files that a command is known to map. Large
	// desktop programs are linked with some hundreds.
	maxCommandFiles = 4096

	// maxCommandWords bounds the words of a command that may name programs.
	maxCommandWords = 256
)

// commandFiles returns the programs that a command names, and the libraries
// that they are linked with: the program, the interpreter of a script, and
// every word that is a program, such as those after env, nice and sh -c.
// Attaching a program that is then not executed does no harm.
//
// Other files that the command is about, such as an operand of readelf, are
// among them, but not their libraries.
func commandFiles(program string, argv []string) []string {
	var files []string
	add := func(path string) {
		if path, err := filepath.Abs(path); err == nil && len(files) < maxCommandFiles &&
			!slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	var addProgram func(path string, isRun bool, depth int)
	addProgram = func(path string, isRun bool, depth int) {
		add(path)
		if isRun {
			for _, library := range commandline.Linked(path) {
				add(library)
			}
		}
		if depth < maxInterpreters {
			for _, word := range commandline.Interpreters(path) {
				if path, err := exec.LookPath(word); err == nil {
					addProgram(path, isRun, depth+1)
				}
			}
		}
	}
	addProgram(program, true, 0)
	words := 0
	for _, argument := range argv[1:] {
		for word := range strings.FieldsFuncSeq(argument, isShellPunctuation) {
			if words++; words > maxCommandWords {
				return files
			}
			if path, err := exec.LookPath(word); err == nil {
				addProgram(path, !strings.Contains(word, "/"), 0)
			}
		}
	}
	return files
}

func isShellPunctuation(c rune) bool { return strings.ContainsRune(" \t\n;|&()`'\"$<>=", c) }

// maxInterpreters is how many scripts may interpret one another, as in Linux.
const maxInterpreters = 4
