// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The names of probes are those of untrusted files, and are printed at each
// hit.
func TestLongProbeNamesAreCut(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	event := &trace.Event{Probe: long + ":" + long,
		Site: &trace.Site{Site: usdt.Site{Site: elfnote.Site{Provider: long, Name: long}}}}
	o := &options{}
	tracer := &tracer{prepared: prepared{options: o, targets: newTargets(o)}}
	var out strings.Builder
	for _, p := range []printer{&textPrinter{tracer: tracer, out: &out},
		&jsonPrinter{tracer: tracer, out: &out}} {
		out.Reset()
		p.event(event)
		qt.Check(t, qt.IsTrue(out.Len() < 1000), qt.Commentf("%d bytes", out.Len()))
		qt.Check(t, qt.StringContains(out.String(), "nnn..."))
	}
}
