// SPDX-License-Identifier: BSD-2-Clause

// Api lists the exported identifiers of this module's packages, and what these
// depend on, one a line, so that a change of them is seen in review.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

const usage = `Usage: api [-w] DIR

Compares the packages of the module in the directory with the files that describe
them, prints the lines that differ, and how many identifiers each package has.

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
	m, err := load(dir, "linux")
	if err != nil {
		return err
	}
	other, err := load(dir, "darwin")
	if err != nil {
		return err
	}
	if changes := differences(m.text(), other.text()); len(changes) > 0 {
		return fmt.Errorf("what needs Linux must be there on other systems, too, and return an error:\n%s", strings.Join(changes, "\n"))
	}
	m.printCounts()
	if unused := m.withoutUsers(); len(unused) > 0 {
		return fmt.Errorf("exported, and used by no command, no example and no Example function:\n%s", strings.Join(unused, "\n"))
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
			return fmt.Errorf("%s is not true any more:\n%s\nIf this is meant, run make api and commit the file",
				name, strings.Join(changes, "\n"))
		}
	}
	return nil
}

// text has a line for each identifier.
func (m *module) text() string {
	var b strings.Builder
	for _, p := range m.packages {
		for _, i := range p.all {
			fmt.Fprintf(&b, "%s: %s\n", p.name, i.line)
		}
	}
	return b.String()
}

func (m *module) printCounts() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "package\ttop level\twith methods and fields\t")
	top, all := 0, 0
	for _, p := range m.packages {
		own := 0
		for _, i := range p.all {
			if i.of == nil {
				own++
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", p.name, own, len(p.all))
		top, all = top+own, all+len(p.all)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t\n", top, all)
	w.Flush()
}

// differences returns the lines of one text alone, "-" before the old ones and
// "+" before the new ones.
func differences(old, now string) []string {
	before, after := strings.Split(old, "\n"), strings.Split(now, "\n")
	var changes []string
	for _, l := range before {
		if !slices.Contains(after, l) {
			changes = append(changes, "- "+l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			changes = append(changes, "+ "+l)
		}
	}
	return changes
}
