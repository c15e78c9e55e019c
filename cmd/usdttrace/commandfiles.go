// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
)

const (
	// maxCommandFiles bounds the files that a command is known to map. Large
	// desktop programs are linked with some hundreds.
	maxCommandFiles = 4096

	// maxCommandWords bounds the words of a command that may name programs.
	maxCommandWords = 256

	// linkerPatience is how long a dynamic linker may take to name libraries.
	linkerPatience = 5 * time.Second
)

// commandFiles returns the programs that a command names, and the libraries
// that they are linked with: the program, the interpreter of a script, and
// every word that is a program, such as those after env, nice and sh -c.
// Attaching a program that is then not executed does no harm.
//
// A program's dynamic linker names the libraries. It may do anything, so it is
// run for the command and for programs in PATH, but not for other files that
// the command is about, such as an operand of readelf.
func commandFiles(program string, argv []string) []string {
	var files []string
	add := func(path string) {
		if path, err := filepath.Abs(path); err == nil && len(files) < maxCommandFiles &&
			!slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	var addProgram func(path string, isTrusted bool, depth int)
	addProgram = func(path string, isTrusted bool, depth int) {
		add(path)
		if isTrusted {
			for _, library := range linked(path) {
				add(library)
			}
		}
		if depth < maxInterpreters {
			for _, word := range interpreters(path) {
				if path, err := exec.LookPath(word); err == nil {
					addProgram(path, isTrusted, depth+1)
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

// interpreters returns the words of the first line of a script, which are its
// interpreter, or env and the name of one.
func interpreters(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	const longest = 256 // of what Linux reads
	line, _ := bufio.NewReader(io.LimitReader(file, longest)).ReadString('\n')
	words, isScript := strings.CutPrefix(line, "#!")
	if !isScript {
		return nil
	}
	return strings.Fields(words)
}

// linked asks a program's dynamic linker for the libraries that the program is
// linked with, and returns them and the linker.
func linked(program string) (libraries []string) {
	file, err := elffile.Open(program)
	if err != nil {
		return nil
	}
	linker := file.Interpreter()
	file.Close()
	if linker == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), linkerPatience)
	defer cancel()
	list, _ := exec.CommandContext(ctx, linker, "--list", program).Output() // a part of them will do
	// Lines like "libc.so.6 => /lib/libc.so.6 (0x7f...)".
	for line := range strings.Lines(string(list)) {
		path, _, _ := strings.Cut(line, " (0x")
		if _, found, ok := strings.Cut(path, "=> "); ok {
			path = found
		}
		if path = strings.TrimSpace(path); strings.HasPrefix(path, "/") {
			libraries = append(libraries, path)
		}
	}
	return libraries
}
