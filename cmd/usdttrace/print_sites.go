// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/usdt"
)

// sites prints a line for each probe of a file, with the arguments of the first
// site.
func (p *textPrinter) sites(file string, sel *usdt.Selection) {
	var b strings.Builder
	if p.begun {
		b.WriteByte('\n')
	}
	p.begun = true
	fmt.Fprintf(&b, "%sFile: %s%s\n", p.style.header, terminal.Escape(file), p.style.reset)
	lines := [][]cell{{{"PROBE", false}, {"SITES", true}, {"ARGUMENTS", false}}}
	type name struct{ provider, name string }
	line := make(map[name]int)
	count := make(map[int]int)
	for _, site := range sel.Sites() {
		n := name{site.Provider, site.Name}
		at, ok := line[n]
		if !ok {
			at = len(lines)
			line[n] = at
			text := cutName(site.Provider) + ":" + cutName(site.Name)
			lines = append(lines, []cell{{terminal.Escape(text), false}, {"", true},
				{p.tracer.targets.arguments(&site), false}})
		}
		count[at]++
	}
	for at, n := range count {
		lines[at][1].text = fmt.Sprint(n)
	}
	writeTable(&b, lines)
	p.out.Write([]byte(b.String())) // the output keeps the error
}

// arguments returns "generation: 4 signed", with the names that are known, "-"
// for no arguments.
func (t *targets) arguments(site *usdt.Site) string {
	var names []providers.Argument
	if t.definitions != nil {
		if probe, ok := t.definitions.Probe(site.Provider, site.Name, len(site.Args)); ok {
			names = probe.Arguments
		}
	}
	if names == nil {
		return argumentTypes(site.Args)
	}
	var texts []string
	for i := range site.Args {
		text := argumentType(&site.Args[i])
		if names[i].IsText && site.Args[i].Kind != argspec.Unavailable {
			text = "text"
		}
		if names[i].Name != "" {
			text = names[i].Name + ": " + text
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return "-"
	}
	return strings.Join(texts, ", ")
}

// argumentTypes returns "4 signed, 8 unsigned", "-" for no arguments.
func argumentTypes(args []argspec.Arg) string {
	var types []string
	for i := range args {
		types = append(types, argumentType(&args[i]))
	}
	if types == nil {
		return "-"
	}
	return strings.Join(types, ", ")
}

func argumentType(arg *argspec.Arg) string {
	if arg.Kind == argspec.Unavailable {
		return "unavailable"
	}
	return arg.Type()
}

// sites prints an object for each site.
func (p *jsonPrinter) sites(file string, sel *usdt.Selection) {
	for _, site := range sel.Sites() {
		j := p.begin("site")
		j.Text("provider", cutName(site.Provider))
		j.Text("name", cutName(site.Name))
		j.Text("file", file)
		j.Unsigned("location", site.Location)
		j.Key("args")
		j.Begin('[')
		for n := range site.Args {
			j.String(argumentType(&site.Args[n]))
		}
		j.End(']')
		p.end()
	}
}
