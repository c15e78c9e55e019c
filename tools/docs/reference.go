// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
)

// Commands are those that have a page of reference, docs/NAME.md.
var commands = []string{"usdtlist", "usdttrace"}

func referencePath(root, command string) string {
	return filepath.Join(root, "docs", command+".md")
}

// reference returns the page about a command. It is made of the text of --help,
// as the man page is.
func reference(root, command string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "cmd", command, "help.txt"))
	if err != nil {
		return "", err
	}
	return markdown(commandline.ParseHelp(string(text)), command), nil
}

// markdown returns the page of reference of a command.
func markdown(h *commandline.Help, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# %s\n\n<!-- made of the text of %[1]s --help by make docs: change cmd/%[1]s/help.txt -->\n\n",
		command)
	b.WriteString("<!-- not run: a synopsis -->\n```\n" +
		strings.Join(h.Synopsis, "\n") + "\n```\n")
	for _, block := range h.Blocks {
		b.WriteByte('\n')
		if block.Title == commandline.Examples {
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
			writeItem(&b, &it)
			if it.Head == "" && i < len(block.Items)-1 {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// writeItem writes an item: flags and words with their explanation are an entry
// of a list.
func writeItem(b *strings.Builder, it *commandline.Item) {
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
