// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/providers"
)

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
