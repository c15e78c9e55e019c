// SPDX-License-Identifier: BSD-2-Clause

// Api lists the exported identifiers of this module's packages, one a line, so
// that a change of them is seen in review.
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

Compares the exported identifiers of the packages of the module in the directory
with those of ` + list + `, and prints the lines that differ and how many
identifiers each package has.

  -w   write the file instead
`

// list is the file with all identifiers, below the directory of the module.
const list = "api/v1.txt"

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
	packages, err := load(dir, "linux")
	if err != nil {
		return err
	}
	others, err := load(dir, "darwin")
	if err != nil {
		return err
	}
	if changes := differences(text(packages), text(others)); len(changes) > 0 {
		return fmt.Errorf("what needs Linux must be there on other systems, too, and return an error:\n%s", strings.Join(changes, "\n"))
	}
	printCounts(packages)
	unused, err := withoutUsers(dir)
	if err != nil {
		return err
	}
	if len(unused) > 0 {
		return fmt.Errorf("exported, and used by no command, no example and no Example function:\n%s", strings.Join(unused, "\n"))
	}
	now, path := text(packages), filepath.Join(dir, list)
	if write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(now), 0o644)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if changes := differences(string(old), now); len(changes) > 0 {
		return fmt.Errorf("%s is not what the packages export:\n%s\nIf this is meant, run make api and commit the file",
			list, strings.Join(changes, "\n"))
	}
	return nil
}

// text is the content of the file.
func text(packages []exported) string {
	var b strings.Builder
	for _, p := range packages {
		for _, l := range p.lines {
			fmt.Fprintf(&b, "%s: %s\n", p.name, l)
		}
	}
	return b.String()
}

func printCounts(packages []exported) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "package\ttop level\twith methods and fields\t")
	top, all := 0, 0
	for _, p := range packages {
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", p.name, p.top, len(p.lines))
		top, all = top+p.top, all+len(p.lines)
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
