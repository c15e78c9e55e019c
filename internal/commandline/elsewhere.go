// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/pattern"
)

// Elsewhere returns which other file has matching probes where the file at a
// path has none, and what to type: of a script its interpreter, or another
// program of the name in PATH, and of a program a library that it is linked
// with, or that is in its folders. If nothing of a program has probes, it
// returns what else can be done; otherwise "".
//
// name is what the user has typed for the file, in args.
func Elsewhere(
	path, name, command string, args []string, patterns ...elfnote.Pattern,
) string {
	other, relation := elsewhere(path, patterns)
	if other == "" {
		if isWithout(path) {
			return "; use a build that contains probes, or add your own " +
				"(bpftrace and perf trace functions without a probe)"
		}
		return ""
	}
	has := "has probes"
	if len(patterns) > 0 {
		has = "has matching probes"
	}
	typed := []string{command}
	isLibrary := strings.Contains(filepath.Base(other), ".so")
	for _, word := range args {
		switch {
		case word == "--" && isLibrary: // of a command
			typed = append(typed, ShellWord(other))
			name = ""
		case word == name:
			word = other
		}
		typed = append(typed, ShellWord(word))
	}
	return fmt.Sprintf("; "+relation+" %s: %s", other, has, strings.Join(typed, " "))
}

func elsewhere(path string, patterns []elfnote.Pattern) (other, relation string) {
	type candidates struct {
		relation string
		files    []string
	}
	var all []candidates
	if words := Interpreters(path); len(words) > 0 {
		var run, sameName []string
		for _, word := range words {
			if program, err := exec.LookPath(word); err == nil {
				own, _ := linkedWith(program)
				run = append(append(run, program), own...)
			}
		}
		for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
			program := filepath.Join(folder, filepath.Base(path))
			own, _ := linkedWith(program)
			sameName = append(append(sameName, program), own...)
		}
		all = []candidates{{"its interpreter %s", run}, {"another program of that name, %s,", sameName}}
	} else {
		own, common := linkedWith(path)
		all = []candidates{{"its library %s", own}, {"%s, in its folders,", Beside(path)},
			{"its library %s", common}}
	}
	for _, c := range all {
		for _, file := range c.files {
			if hasProbes(file, patterns) {
				return file, c.relation
			}
		}
	}
	return "", ""
}

// isCommon reports whether nearly every program is linked with a library.
func isCommon(library string) bool {
	name, _, _ := strings.Cut(filepath.Base(library), ".")
	return strings.HasPrefix(name, "ld-") || slices.Contains(
		[]string{"libc", "libm", "libpthread", "libdl", "libstdc++", "libgcc_s"}, name)
}

// linkedWith divides the libraries that a program is linked with into its own
// and those of nearly every program, which the user does not mean.
func linkedWith(path string) (own, common []string) {
	for _, library := range Linked(path) {
		if isCommon(library) {
			common = append(common, library)
		} else {
			own = append(own, library)
		}
	}
	return own, common
}

// isWithout reports whether neither a program has probes nor what it brings
// along.
func isWithout(path string) bool {
	file, err := elfnote.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	for range file.Sites() {
		return false
	}
	own, _ := linkedWith(path)
	return !slices.ContainsFunc(append(own, Beside(path)...),
		func(library string) bool { return hasProbes(library, nil) })
}

// hasProbes reports whether a file can be read and has a matching probe.
func hasProbes(path string, patterns []elfnote.Pattern) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := elfnote.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	for site, err := range file.Sites() {
		if err == nil && pattern.MatchAny(patterns, site.Provider, site.Name) {
			return true
		}
	}
	return false
}
