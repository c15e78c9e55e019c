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
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/gousdt/gousdt/internal/defs"
)

// problems has a line for each thing that is wrong.
type problems []string

func (p *problems) add(path string, line int, format string, args ...any) {
	*p = append(*p, fmt.Sprintf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
}

// Problems returns what is wrong with the documentation of the repository in a
// directory, a line each. If write is true, it first writes anew what comes
// from elsewhere: the page about probes, and blocks with the content of files.
func Problems(root string, write bool) ([]string, error) {
	var found problems
	path := filepath.Join(root, "docs", "probes.md")
	want, err := probes(root)
	if have, _ := os.ReadFile(path); err == nil && string(have) != want {
		if write {
			err = os.WriteFile(path, []byte(want), 0o644)
		} else {
			found.add(path, 1, "is not what it is made of: make docs")
		}
	}
	if err != nil {
		return nil, err
	}
	all, err := documents(root)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		before := d.String()
		found = append(found, d.blockProblems(write)...)
		if d.String() != before {
			if err := os.WriteFile(d.Path, []byte(d.String()), 0o644); err != nil {
				return nil, err
			}
		}
		found = append(found, d.linkProblems()...)
		found = append(found, d.wordProblems()...)
	}
	found = append(found, unlisted(root, all)...)
	more, err := measuredProblems(root, all)
	return append(found, more...), err
}

// documents returns README.md and what is in docs.
func documents(root string) (all []*Document, err error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--",
		"README.md", "docs/*.md")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
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

// blockProblems finds blocks that nothing checks, and those that are wrong. If
// write is true, blocks get what their files have.
func (d *Document) blockProblems(write bool) (found problems) {
	// In a list, indented lines belong to the item.
	blank, inList := true, false
	for _, l := range d.lines {
		text := strings.TrimSpace(l.text)
		indented := strings.HasPrefix(l.text, "    ") || strings.HasPrefix(l.text, "\t")
		if text != "" && !strings.HasPrefix(l.text, " ") {
			inList = strings.HasPrefix(text, "- ") || text[0] >= '0' && text[0] <= '9'
		}
		if text != "" && indented && blank && !inList {
			found.add(d.Path, l.number, "indented code is not checked: use a fence")
		}
		blank = text == ""
	}
	for _, b := range d.Blocks() {
		text, ok, err := d.source(b)
		if ok && err == nil && write {
			b.Text = text
		}
		switch {
		case err != nil:
		case ok && text != b.Text:
			err = errors.New("is not what the file has: make docs")
		case b.Kind == "mermaid":
		case b.Kind == "json":
			for in := json.NewDecoder(strings.NewReader(b.Text)); err == nil; {
				err = in.Decode(new(any))
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
		case b.Kind == "yaml":
			err = yaml.Unmarshal([]byte(b.Text), new(any))
		case len(b.Mark) != 1:
			err = errors.New("nothing checks this block, or two things do: see tools/docs/doc.go")
		case b.Mark["workload"] != "" && b.Kind != "console":
			err = fmt.Errorf("what is run is of the kind console, not %q", b.Kind)
		case !ok && b.Mark["workload"] == "" && slices.Contains([]string{"", "."}, b.Mark["not run"]):
			err = errors.New("why is it not run?")
		}
		if err != nil {
			found.add(d.Path, b.Line, "%v", err)
		}
	}
	return found
}

var quantity = regexp.MustCompile(`[0-9.]+ (ns|µs|ms|s|KiB|MiB)\b`)

// words are turns that the documentation does not use, and what to write.
var words = []struct {
	turn  *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`(?i)\bpass(es|ed)? (a|an|the|its|their|some|other|no|any)( USDT)? probes?\b`),
		"a probe fires"},
	{regexp.MustCompile(`(?i)\bprobes? (is|are) passed\b`), "fires"},
	{regexp.MustCompile(`(?i)\bwhoever\b`), "the user, the caller, a process that"},
	{regexp.MustCompile(`(?i)\bin vain\b`), "without effect"},
	{regexp.MustCompile(`(?i)\bfor so long\b`), "until"},
	{regexp.MustCompile(`(?i)\bmeasuring points?\b`), "a trace point"},
	{regexp.MustCompile(`(?i)\bsays so\b|\b(is|are|was) said\b`), "reports"},
	{regexp.MustCompile(`(?i)\bby itself\b`), "on its own"},
	{regexp.MustCompile(`(?i)\bso many\b`), "that many"},
	{regexp.MustCompile(`(?i)\b(is|are) told (of|about)\b`), "is reported"},
	{regexp.MustCompile(`(?i)\bspots?\b`), "a site"},
}

// wordProblems finds such turns outside of blocks of code.
func (d *Document) wordProblems() (found problems) {
	for _, l := range d.lines {
		for _, w := range words {
			if turn := w.turn.FindString(code.ReplaceAllString(l.text, "")); turn != "" {
				found.add(d.Path, l.number, "%q: write %s", turn, w.write)
			}
		}
	}
	return found
}

// measuredProblems finds costs in rows of README.md that link to
// docs/measurements.md, which was made anew since and has them no longer.
func measuredProblems(root string, all []*Document) (found problems, err error) {
	measured, err := os.ReadFile(filepath.Join(root, "docs", "measurements.md"))
	for _, d := range all {
		for _, l := range d.lines {
			if d.Path != filepath.Join(root, "README.md") || !strings.HasPrefix(l.text, "|") ||
				!strings.Contains(l.text, "(docs/measurements.md") {
				continue
			}
			for _, cost := range quantity.FindAllString(l.text, -1) {
				if !strings.Contains(string(measured), " "+cost+" ") {
					found.add(d.Path, l.number, "docs/measurements.md has no %s", cost)
				}
			}
		}
	}
	return found, err
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`^#+ (.*)\n?$`)
)

// linkProblems finds links to files and headings that are not there.
func (d *Document) linkProblems() (found problems) {
	for _, l := range d.lines {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(l.text, ""), -1) {
			to := m[1] + m[2]
			name, part, _ := strings.Cut(to, "#")
			path := d.Path
			if name != "" {
				path = filepath.Join(filepath.Dir(d.Path), name)
			}
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			} else if _, err := os.Stat(path); err != nil {
				found.add(d.Path, l.number, "links to %s, which is not there", name)
			} else if part == "" || filepath.Ext(path) != ".md" {
				continue
			} else if target, err := Read(path); err != nil {
				found.add(d.Path, l.number, "%v", err)
			} else if !target.hasPart(part) {
				found.add(d.Path, l.number, "links to %s, which has no heading #%s",
					filepath.Base(path), part)
			}
		}
	}
	return found
}

// hasPart reports whether a link to a part of the document finds it.
func (d *Document) hasPart(name string) bool {
	return slices.ContainsFunc(d.lines, func(l line) bool {
		m := heading.FindStringSubmatch(l.text)
		return m != nil && slug(m[1]) == name || strings.Contains(l.text, `<a id="`+name+`">`)
	})
}

// slug returns the name that GitHub gives a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// unlisted finds the pages that no index of a folder links to.
func unlisted(root string, all []*Document) (found problems) {
	linked := map[string]bool{filepath.Join(root, "README.md"): true}
	for _, d := range all {
		if filepath.Base(d.Path) != "README.md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(d.String(), -1) {
			name, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(d.Path), name)] = true
		}
	}
	for _, d := range all {
		if !linked[d.Path] {
			found.add(d.Path, 1, "no README.md links to this page")
		}
	}
	return found
}

const probesHead = `# The probes of applications, and what they mean

Made by ` + "`make docs`" + ` of the definitions in
[internal/defs/definitions](../internal/defs/definitions). ` + "`usdtlist -v FILE`" + ` says the
same of the probes that a file has, which depends on its version and on how it
was built. Texts are shown as such, and arguments can be named in conditions and
keys: ` + "`--where 'mode == 7' --by tranche`" + `.
`

var definition = regexp.MustCompile(`(?m)^(?:provider|\tprobe) (\w+)(\(?)`)

// probes returns the page about the probes that package defs knows, in the
// order of its files.
func probes(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "internal", "defs", "definitions", "*.d"))
	if err != nil {
		return "", err
	}
	known, b := defs.Builtin(), strings.Builder{}
	b.WriteString(probesHead)
	arguments := make(map[[2]string][]string)
	for p := range known.Probes() {
		var names []string
		for _, a := range p.Arguments {
			name := "`" + a.Name + "`"
			if a.Note != "" {
				name += " (" + a.Note + ")"
			}
			names = append(names, name)
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
	for key := range arguments {
		return "", fmt.Errorf("no file of internal/defs/definitions defines probe %s:%s", key[0], key[1])
	}
	return b.String(), nil
}

var address = regexp.MustCompile(`https://\S+`)
