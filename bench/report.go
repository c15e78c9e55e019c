// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
)

// report is what came out of a run, in Markdown.
type report struct {
	machine string
	rows    []rowResult
}

// markdown returns a table with, for each contestant, its cost, and how much of
// that the first contestant's is.
func (r *rowResult) markdown() string {
	title := fmt.Sprintf("\n**%s%s** (`%s`)\n\n", strings.ToUpper(r.title[:1]), r.title[1:], r.name)
	if r.missing != "" {
		return title + "Not run: " + r.missing + ".\n"
	}
	lines := [][]string{{"", "cost", "the first one's is so much of it"}}
	for i, s := range r.series {
		line := []string{s.Name, "not run: " + s.Missing, ""}
		if s.Missing == "" {
			line[1] = summarize(s.Samples).Spread(r.unit.Format)
			if i > 0 {
				line[2] = ratioOf(r.series[0], s).Spread(formatRatio)
			}
		}
		lines = append(lines, line)
	}
	return title + table(lines)
}

// goals returns a table with what was measured for each goal.
func (rep *report) goals() string {
	lines := [][]string{{"row", "of", "at most", "measured", ""}}
	for _, r := range rep.rows {
		for _, g := range r.goals {
			measured, verdict := g.Judge(r.series)
			lines = append(lines, []string{r.name, g.Of, formatRatio(g.Times) + " × " + g.Than,
				measured, verdict})
		}
	}
	return table(lines)
}

func (rep *report) markdown() string {
	text := "## The machine\n\n" + rep.machine + "\n## The goals\n\n" + rep.goals() +
		"\n## Who takes how long\n"
	for _, r := range rep.rows {
		text += r.markdown()
	}
	return text
}

// table returns lines as a table that is also read well where it is printed.
// The first has its head.
func table(lines [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for i, cells := range lines {
		for _, cell := range cells {
			fmt.Fprintf(w, "| %s\t", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		fmt.Fprintln(w, "|")
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("| ---\t", len(cells))+"|")
		}
	}
	w.Flush()
	return b.String()
}

// A run writes the text between these lines of a Markdown file.
const (
	beginMarker = "<!-- results: written by make bench -->"
	endMarker   = "<!-- end of results -->"
)

// writeInto replaces the results in a Markdown file.
func (rep *report) writeInto(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	updated, err := replaceResults(string(old), rep.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(updated), 0o644)
}

func replaceResults(text, results string) (string, error) {
	before, rest, ok := strings.Cut(text, beginMarker)
	_, after, closed := strings.Cut(rest, endMarker)
	if !ok || !closed {
		return "", fmt.Errorf("no place for the results: the lines %q and %q are missing",
			beginMarker, endMarker)
	}
	return before + beginMarker + "\n\n" + results + "\n" + endMarker + after, nil
}

// describeMachine returns a list of what the results depend on.
func describeMachine() string {
	const script = `
		echo "$(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed 1q)"
		echo "$(uname -srm)"
		echo "load at the beginning (1, 5, 15 minutes): $(cut -d ' ' -f 1-3 /proc/loadavg)"
		go version
		for tool in bpftrace readelf clang-14; do
			command -v $tool >/dev/null && $tool --version | sed 1q || echo "$tool: not installed"
		done`
	out, _ := exec.Command("bash", "-c", script).Output() // it is what it is
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	_, bcc := bccPython()
	lines = append(lines, "libbpf: "+libbpfVersion(), "bcc: "+cmp.Or(bcc, "not installed"))
	path, err := libjvm()
	if err != nil {
		path = err.Error()
	} else if info, err := os.Stat(path); err == nil {
		path += fmt.Sprintf(", %.1f MB", float64(info.Size())/1e6)
	}
	lines = append(lines, path)
	text := ""
	for _, line := range lines {
		if line != "" {
			text += "- " + line + "\n"
		}
	}
	return text
}

func libbpfVersion() string {
	p, err := startPeer("libbpf")
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	answer, err := p.Ask("version")
	if err != nil {
		return err.Error()
	}
	version := strings.Join(answer, " ")
	if os.Getenv("LIBBPF_LIBS") == "" {
		version += ", the system's (the newest release is not run: it is not built)"
	}
	return version
}
