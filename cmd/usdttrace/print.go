// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/csv"
	"os"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// printer prints the output, as text or as JSON. The output keeps the errors of
// writing.
type printer interface {
	sites(file string, sel *usdt.Selection)
	pairs(file string, pairs []elfnote.Pair)
	event(*trace.Event)
	rows(*aggregation, *trace.Snapshot)
	summary(*summary)
}

func newPrinter(t *tracer) printer {
	if t.options.chromeTrace != "" {
		return &tracePrinter{tracer: t, out: t.out}
	}
	onTerminal := t.file == nil && terminal.IsTerminal(t.stdout)
	if t.options.csv {
		return &csvPrinter{tracer: t, out: csv.NewWriter(t.out), escapes: onTerminal}
	}
	if t.options.json {
		return &jsonPrinter{tracer: t, out: t.out}
	}
	return &textPrinter{tracer: t, out: t.out, style: newStyle(onTerminal &&
		os.Getenv("NO_COLOR") == "")}
}
