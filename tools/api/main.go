// SPDX-License-Identifier: BSD-2-Clause

// Api lists the exported identifiers of the library's packages, and what these
// depend on, one a line, so that a change of them is seen in review.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const usage = `Usage: api [-w] DIR

Compares the packages of the module in the directory, and of stack below it, with
the files that describe them.

  api/v1.txt            the exported identifiers
  api/dependencies.txt  what those who import a package get with it, on Linux:
                        other modules, and other public packages of this one

  -w   write the files instead
`

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	write := flag.Bool("w", false, "")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *write); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(dir string, write bool) error {
	m, err := load(dir, "linux", "stack", "cmd") // which is a user
	if err != nil {
		return err
	}
	other, err := load(dir, "darwin", "stack")
	if err != nil {
		return err
	}
	if changes := differences(m.text(), other.text()); len(changes) > 0 {
		return fmt.Errorf("what needs Linux must be there on other systems, too, and return an "+
			"error:\n%s", strings.Join(changes, "\n"))
	}
	if hidden := withInternal(m.all); len(hidden) > 0 {
		return fmt.Errorf("exported, with a type that users can neither declare nor make (give "+
			"the package a type or an alias of its own):\n%s", strings.Join(hidden, "\n"))
	}
	if unused := m.withoutUsers(); len(unused) > 0 {
		return fmt.Errorf("exported, and used by no command, no example and no Example "+
			"function:\n%s", strings.Join(unused, "\n"))
	}
	for name, now := range map[string]string{
		"api/v1.txt": m.text(), "api/dependencies.txt": m.dependencies,
	} {
		path := filepath.Join(dir, name)
		if write {
			if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
				return err
			}
			continue
		}
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if changes := differences(string(old), now); len(changes) > 0 {
			return fmt.Errorf("%s is not true any more:\n%s\nIf this is meant, run make api "+
				"and commit the file", name, strings.Join(changes, "\n"))
		}
	}
	return nil
}

// text has a line for each identifier.
func (m *module) text() (text string) {
	for _, i := range m.all {
		text += i.line + "\n"
	}
	return text
}

// differences returns the lines of one text alone, "-" before the old ones and
// "+" before the new ones.
func differences(old, now string) (changes []string) {
	add := func(sign, text, other string) {
		for line := range strings.Lines(text) {
			if !strings.Contains("\n"+other, "\n"+line) {
				changes = append(changes, sign+strings.TrimSuffix(line, "\n"))
			}
		}
	}
	add("- ", old, now)
	add("+ ", now, old)
	return changes
}
