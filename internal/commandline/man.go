// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"fmt"
	"strings"
)

// Man returns the man page of a command, in section 1, for the macros of
// man(7).
func (h *Help) Man(command, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q \"User Commands\"\n.SH NAME\n", strings.ToUpper(command),
		strings.TrimSpace(version))
	intro, blocks := "", h.Blocks
	if len(blocks) > 0 && blocks[0].Title == "" {
		intro, blocks = strings.Join(blocks[0].Items[0].Lines, "\n"), blocks[1:]
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(intro, "\n", " "), ". ")
	first = strings.TrimSuffix(strings.ToLower(first[:min(1, len(first))])+first[min(1,
		len(first)):], ".")
	fmt.Fprintf(&b, "%s \\- %s\n.SH SYNOPSIS\n.nf\n", escape(command), escape(first))
	for _, line := range h.Synopsis {
		fmt.Fprintf(&b, "%s\n", escape(line))
	}
	fmt.Fprintf(&b, ".fi\n.SH DESCRIPTION\n%s\n", paragraph(intro))
	inNotes := false
	for _, block := range blocks {
		switch {
		case block.Title != "":
			fmt.Fprintf(&b, ".SH %q\n", escape(strings.ToUpper(block.Title)))
			inNotes = false
		case !inNotes:
			b.WriteString(".SH NOTES\n")
			inNotes = true
		default:
			b.WriteString(".PP\n")
		}
		for _, it := range block.Items {
			it.man(&b, block.Title == Examples)
		}
	}
	return b.String()
}

func (it *Item) man(b *strings.Builder, verbatim bool) {
	switch {
	case verbatim:
		b.WriteString(".PP\n.nf\n")
		for _, line := range it.Lines {
			b.WriteString(paragraph(line) + "\n")
		}
		b.WriteString(".fi\n")
		return
	case it.Head != "":
		fmt.Fprintf(b, ".TP\n.B %s\n", escape(it.Head))
	default:
		b.WriteString(".PP\n")
	}
	for i, line := range it.Lines {
		// What is in columns stays in lines.
		if i > 0 &&
			(strings.HasPrefix(line, " ") || strings.Contains(strings.TrimSpace(line), "  ")) {
			b.WriteString(".br\n")
		}
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(paragraph(line) + "\n")
		}
	}
}

// escape returns a text as roff prints it as it is.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
}

// paragraph returns lines, none of which roff takes for a request.
func paragraph(text string) string {
	lines := strings.Split(escape(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
