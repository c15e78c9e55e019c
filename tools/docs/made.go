// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/providers"
)

// made returns the generated pages by their paths: the reference of the
// commands, made of the text of --help as the man page is, and the page about
// probes.
func made(root string) (map[string]string, error) {
	pages := make(map[string]string)
	for _, command := range []string{"usdtlist", "usdttrace"} {
		text, err := os.ReadFile(filepath.Join(root, "cmd", command, "help.txt"))
		if err != nil {
			return nil, err
		}
		pages[filepath.Join(root, "docs", command+".md")] =
			markdown(commandline.ParseHelp(string(text)), command)
	}
	var err error
	pages[filepath.Join(root, "docs", "probes.md")], err = probes(root)
	return pages, err
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

// plain escapes text for Markdown.
var plain = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`,
	">", `\>`,
	"`", "\\`", "|", `\|`, "~", `\~`, "#", `\#`).Replace

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
