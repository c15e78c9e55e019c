// SPDX-License-Identifier: BSD-2-Clause

package helptext

import (
	"fmt"
	"strings"
)

// Markdown returns the page of reference of a command.
func (h *Help) Markdown(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# %s\n\n<!-- made of the text of %[1]s -h by make docs: change cmd/%[1]s/help.go -->\n\n",
		command)
	b.WriteString("<!-- not run: a synopsis -->\n```\n" +
		strings.Join(h.Synopsis, "\n") + "\n```\n")
	for _, block := range h.Blocks {
		b.WriteByte('\n')
		if block.Title == Examples {
			fmt.Fprintf(&b, "## %s\n\n<!-- not run: those of the recipes are -->\n```\n",
				block.Title)
			for _, it := range block.Items {
				b.WriteString(strings.Join(it.Lines, "\n") + "\n")
			}
			b.WriteString("```\n")
			continue
		}
		if block.Title != "" {
			fmt.Fprintf(&b, "## %s\n\n", strings.TrimSuffix(block.Title, ":"))
		}
		for i, it := range block.Items {
			if it.Head == "" && i > 0 {
				b.WriteByte('\n')
			}
			it.markdown(&b)
			if it.Head == "" && i < len(block.Items)-1 {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// markdown writes an item: what explains flags and words is an entry of a list.
func (it *Item) markdown(b *strings.Builder) {
	indent := ""
	if it.Head != "" {
		fmt.Fprintf(b, "- `%s`", it.Head)
		indent = "  "
		if len(it.Lines) == 0 || strings.TrimSpace(strings.Join(it.Lines, "")) == "" {
			b.WriteByte('\n')
			return
		}
		b.WriteByte(' ')
	}
	for i, line := range it.Lines {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		// What is in columns is a list in the list.
		name, meaning, isColumn := strings.Cut(text, "  ")
		switch {
		case isColumn && it.Head != "" && (i > 0 || strings.HasPrefix(line, " ")):
			fmt.Fprintf(b, "%s- `%s` %s\n", indent, name, plain(strings.TrimSpace(meaning)))
		case i == 0:
			b.WriteString(plain(text) + "\n")
		case strings.HasPrefix(line, "  "):
			b.WriteString(indent + "  " + plain(text) + "\n")
		default:
			b.WriteString(indent + plain(text) + "\n")
		}
	}
}

// plain returns text that Markdown takes for nothing else.
var plain = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`,
	">", `\>`,
	"`", "\\`", "|", `\|`, "~", `\~`, "#", `\#`).Replace
