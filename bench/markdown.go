// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// What is between these lines of a Markdown file is written by a run.
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

func (rep *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## The machine\n\n")
	for _, line := range rep.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "\n## The goals\n\n")
	markdownTable(&b, goalHead, rep.goalLines())
	fmt.Fprintf(&b, "\n## Who takes how long\n")
	for _, r := range rep.rows {
		fmt.Fprintf(&b, "\n**%s**\n\n", capital(r.title))
		if r.missing != "" {
			fmt.Fprintf(&b, "Not run: %s.\n", r.missing)
			continue
		}
		markdownTable(&b, []string{"", "cost", "the first one's is so much of it"}, r.lines())
	}
	fmt.Fprintf(&b, "\n## How it grows\n")
	for _, t := range rep.tables {
		fmt.Fprintf(&b, "\n**%s**\n\n", capital(t.title))
		if t.err != nil {
			fmt.Fprintf(&b, "Not run: %v.\n", t.err)
			continue
		}
		markdownTable(&b, t.head, t.lines)
		if t.note != "" {
			fmt.Fprintf(&b, "\n%s\n", t.note)
		}
	}
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func markdownTable(b *strings.Builder, head []string, lines [][]string) {
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	row := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(b, "| %s ", escape.Replace(cell))
		}
		b.WriteString("|\n")
	}
	row(head)
	row(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, line := range lines {
		row(line)
	}
}
