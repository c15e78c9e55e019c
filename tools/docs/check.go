// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/providers"
)

// Problems returns what is wrong with the documentation of the repository in a
// directory, a line each.
func Problems(root string) (problems []string, err error) {
	all, err := documents(root)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		problems = append(problems, d.blockProblems()...)
		problems = append(problems, d.linkProblems()...)
	}
	problems = append(problems, unlisted(root, all)...)
	films, err := filmProblems(root, all)
	if err != nil {
		return nil, err
	}
	problems = append(problems, films...)
	for _, check := range []func(string) ([]string, error){referenceProblems, measuredProblems} {
		more, err := check(root)
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	return problems, nil
}

// Rewrite writes anew what comes from elsewhere: the blocks that have the
// content of files, and the reference of the commands.
func Rewrite(root string) error {
	all, err := documents(root)
	if err != nil {
		return err
	}
	for _, d := range all {
		before := d.String()
		for _, b := range d.Blocks() {
			text, ok, err := d.source(b)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", d.Path, b.Line, err)
			}
			if ok {
				b.Text = text
			}
		}
		if d.String() != before {
			if err := os.WriteFile(d.Path, []byte(d.String()), 0o644); err != nil {
				return err
			}
		}
	}
	return writeReference(root)
}

// documents returns README.md and what is in docs.
func documents(root string) (all []*Document, err error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
		"--", "README.md", "docs/*.md")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }) {
		d, err := Read(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed
		} else if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// blockProblems finds blocks that nothing checks, and those that are wrong.
func (d *Document) blockProblems() (problems []string) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", d.Path, line,
			fmt.Sprintf(format, args...)))
	}
	for _, line := range d.indentedCode() {
		report(line, "indented code is not checked: use a fence")
	}
	for _, b := range d.Blocks() {
		text, ok, err := d.source(b)
		switch {
		case err != nil:
			report(b.Line, "%v", err)
		case ok && text != b.Text:
			report(b.Line, "is not what the file has: make docs")
		case b.Kind == "mermaid":
		case b.Kind == "json":
			if err := parseJSON(b.Text); err != nil {
				report(b.Line, "%v", err)
			}
		case b.Kind == "yaml":
			if err := yaml.Unmarshal([]byte(b.Text), new(any)); err != nil {
				report(b.Line, "%v", err)
			}
		case len(b.Mark) != 1:
			report(b.Line, "nothing checks this block, or two things do: see tools/docs/doc.go")
		case b.Mark["workload"] != "" && b.Kind != "console":
			report(b.Line, "what is run is of the kind console, not %q", b.Kind)
		case slices.Contains([]string{"", "."}, b.Mark["not run"]) &&
			b.Mark["workload"] == "" && !ok:
			report(b.Line, "why is it not run?")
		}
	}
	return problems
}

// parseJSON reads values until the end.
func parseJSON(text string) error {
	in := json.NewDecoder(strings.NewReader(text))
	for {
		switch err := in.Decode(new(any)); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// indentedCode returns the lines that begin code without a fence. In a list,
// indented lines belong to the item.
func (d *Document) indentedCode() (found []int) {
	for _, p := range d.Pieces {
		blank, inList := true, false
		for i, line := range strings.Split(p.Text, "\n") {
			text := strings.TrimSpace(line)
			indented := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
			if text != "" && !strings.HasPrefix(line, " ") {
				inList = strings.HasPrefix(text, "- ") || text[0] >= '0' && text[0] <= '9'
			}
			if text != "" && indented && blank && !inList {
				found = append(found, p.Line+i)
			}
			blank = text == ""
		}
	}
	return found
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	header = regexp.MustCompile(`^[A-Z][A-Z0-9_%(), .]*$`)
	flags  = regexp.MustCompile(` (--?[a-z-]+)`)
)

// filmProblems finds films of a terminal that are out of date: with a flag that
// usdttrace has no longer, or a table with columns that no document shows. The
// commands of documents are run.
func filmProblems(root string, all []*Document) (problems []string, err error) {
	reference, err := os.ReadFile(referencePath(root, "usdttrace"))
	if err != nil {
		return nil, err
	}
	shown := make(map[string]bool)
	for _, d := range all {
		for _, b := range d.Blocks() {
			for line := range strings.Lines(b.Text) {
				shown[strings.Join(strings.Fields(line), " ")] = b.Kind == "console"
			}
		}
	}
	films, err := filepath.Glob(filepath.Join(root, "docs", "pictures", "*.svg"))
	for _, path := range films {
		film, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		title, rest, _ := strings.Cut(string(film), "</title>")
		for _, flag := range flags.FindAllStringSubmatch(title, -1) {
			if !strings.Contains(string(reference), "`"+flag[1]) {
				problems = append(problems, fmt.Sprintf("%s: there is no flag %s: make pictures", path,
					flag[1]))
			}
		}
		for line := range strings.Lines(rest) {
			// Fields takes no-break spaces for spaces.
			line = strings.Join(strings.Fields(tags.ReplaceAllString(line, "")), " ")
			if header.MatchString(line) && !shown[line] {
				problems = append(problems, fmt.Sprintf("%s: no document has the table %q", path, line))
			}
		}
	}
	return problems, err
}

var quantity = regexp.MustCompile(`[0-9.]+ (ns|µs|ms|s|KiB|MiB)\b`)

// measuredProblems finds costs in rows of README.md that link to
// docs/measurements.md, which was made anew since and has them no longer.
func measuredProblems(root string) (problems []string, err error) {
	measured, err := os.ReadFile(filepath.Join(root, "docs", "measurements.md"))
	if err != nil {
		return nil, err
	}
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if !strings.HasPrefix(line, "|") || !strings.Contains(line, "(docs/measurements.md") {
			continue
		}
		for _, cost := range quantity.FindAllString(line, -1) {
			if !strings.Contains(string(measured), " "+cost+" ") {
				problems = append(problems, fmt.Sprintf("%s:%d: docs/measurements.md has no %s",
					readme, number, cost))
			}
		}
	}
	return problems, nil
}

// references returns the pages that are made of something else, by their paths.
func references(root string) (map[string]string, error) {
	pages := make(map[string]string)
	for _, command := range commands {
		text, err := reference(root, command)
		if err != nil {
			return nil, err
		}
		pages[referencePath(root, command)] = text
	}
	var err error
	pages[filepath.Join(root, "docs", "probes.md")], err = probes(root)
	return pages, err
}

func referenceProblems(root string) (problems []string, err error) {
	pages, err := references(root)
	for path, want := range pages {
		if have, _ := os.ReadFile(path); string(have) != want {
			problems = append(problems, path+": is not what it is made of: make docs")
		}
	}
	return problems, err
}

func writeReference(root string) error {
	pages, err := references(root)
	for path, text := range pages {
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
	}
	return err
}

const probesHead = `# The probes of applications, and what they mean

Made by ` + "`make docs`" + ` of the definitions in
[providers/definitions](../providers/definitions). ` + "`usdtlist -v FILE`" + ` says the
same of the probes that a file has, which depends on its version and on how it
was built. Texts are shown as such, and arguments can be named in conditions and
keys: ` + "`--where 'mode == 7' --by tranche`" + `.
`

var definition = regexp.MustCompile(`(?m)^(?:provider|\tprobe) (\w+)(\(?)`)

// probes returns the page about the probes that package providers knows, in the
// order of its files.
func probes(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "providers", "definitions", "*.d"))
	if err != nil {
		return "", err
	}
	known, b := providers.Builtin(), strings.Builder{}
	b.WriteString(probesHead)
	arguments := make(map[[2]string][]string)
	for p := range known.Probes() {
		var names []string
		for _, a := range p.Arguments {
			names = append(names, "`"+a.Name+"`")
		}
		key := [2]string{p.Provider, p.Name}
		arguments[key] = append(arguments[key], strings.Join(names, ", "))
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		head, _, _ := strings.Cut(strings.TrimPrefix(string(source), "/*"), "*/")
		head = strings.ReplaceAll(head, "\n *", "\n")
		head = address.ReplaceAllString(strings.Join(strings.Fields(head), " "), "<$0>")
		provider := ""
		for _, m := range definition.FindAllStringSubmatch(string(source), -1) {
			if m[2] == "" {
				provider = m[1]
				fmt.Fprintf(&b, "\n## %s\n\n", provider)
				if head != "" {
					b.WriteString(head + "\n\n")
				}
				b.WriteString("| probe | arguments | fires when |\n|---|---|---|\n")
				head = ""
				continue
			}
			key := [2]string{provider, m[1]}
			all, ok := arguments[key]
			if !ok {
				continue // with other arguments before
			}
			delete(arguments, key)
			slices.Sort(all)
			when, only := known.Fires(provider, m[1])
			if only != "" {
				when += ", " + only
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m[1], strings.Join(all, " or "), when)
		}
	}
	return b.String(), nil
}

var address = regexp.MustCompile(`https://\S+`)
