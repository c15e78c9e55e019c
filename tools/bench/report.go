// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
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
	if r.sizes != nil {
		return title + table(r.growth())
	}
	lines := [][]string{{"", "cost", "the first one's is so much of it"}}
	hasTails := slices.ContainsFunc(r.series, func(s series) bool { return len(s.Tails) > 0 })
	if hasTails {
		lines[0] = append(lines[0], "p99", "so much of the first one's")
	}
	for i, s := range r.series {
		line := make([]string, len(lines[0]))
		line[0], line[1] = s.Name, "not run: "+s.Missing
		if s.Missing == "" {
			line[1] = summarize(s.Samples).Spread(r.unit.Format)
			if i > 0 {
				line[2] = ratioOf(r.series[0], s).Spread(formatRatio)
			}
			if hasTails {
				line[3] = summarize(s.Tails).Spread(r.unit.Format)
			}
			if hasTails && i > 0 {
				line[4] = ratios(s.Tails, r.series[0].Tails).Spread(formatRatio)
			}
		}
		lines = append(lines, line)
	}
	return title + table(lines)
}

// growth returns the lines of a table with a contestant in each, and its cost
// at each size. The exponent is that of the last two steps: what a small size
// costs is mostly the same for all.
func (r *rowResult) growth() [][]string {
	head := []string{""}
	for _, size := range r.sizes {
		head = append(head, fmt.Sprint(size))
	}
	lines := [][]string{append(head, "exponent")}
	for all := range slices.Chunk(r.series, len(r.sizes)) {
		name, _, _ := strings.Cut(all[0].Name, ofSize)
		line := []string{name}
		for _, s := range all {
			cost := "not run: " + s.Missing
			if s.Missing == "" {
				cost = r.unit.Format(summarize(s.Samples).Median)
			}
			line = append(line, cost)
		}
		lines = append(lines, append(line, r.exponent(all)))
	}
	return lines
}

func (r *rowResult) exponent(all []series) string {
	last := len(all) - 1
	first := max(0, last-2)
	times := ratioOf(all[last], all[first]).Median
	if math.IsNaN(times) {
		return "–"
	}
	return fmt.Sprintf("%.2f", math.Log(times)/math.Log(float64(r.sizes[last])/float64(r.sizes[first])))
}

// isCost reports whether a row is about what tracing costs an application, or
// how costs grow.
func (r rowResult) isCost() bool {
	return strings.HasPrefix(r.name, applications) || r.sizes != nil
}

// costs returns the tables of these rows: applications beside nothing attached.
func (rep *report) costs() string {
	text := rep.machine
	for _, r := range rep.rows {
		switch {
		case !r.isCost():
			continue
		case r.missing != "" || r.sizes != nil:
			text += r.markdown()
			continue
		}
		lines := [][]string{{r.title, "speed", "p99"}}
		for i, s := range r.series {
			line := []string{s.Name, "not run: " + s.Missing, ""}
			if s.Missing == "" {
				line[1] = ratioOf(r.series[0], s).Spread(formatRatio)
			}
			if len(s.Tails) > 0 {
				line[2] = ratios(s.Tails, r.series[0].Tails).Spread(formatRatio)
			}
			if i == 0 && s.Missing == "" {
				line[1] = r.unit.Format(summarize(s.Samples).Median)
				if len(s.Tails) > 0 {
					line[2] = r.unit.Format(summarize(s.Tails).Median)
				}
			}
			lines = append(lines, line)
		}
		text += "\n" + table(lines)
	}
	return text
}

// goals returns a table with what was measured for each goal.
func (rep *report) goals() string {
	lines := [][]string{{"row", "of", "at most", "measured", ""}}
	for _, r := range rep.rows {
		for _, g := range r.goals {
			measured, verdict := g.Judge(r.series)
			lines = append(lines, []string{r.name, g.Of, g.limit(r.unit), measured, verdict})
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
func writeInto(path, results string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	updated, err := replaceResults(string(old), results)
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
