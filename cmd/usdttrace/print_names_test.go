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

func TestFunctionsAreNamedAsInTheSource(t *testing.T) {
	for _, test := range []struct{ symbol, want string }{
		{"exec_simple_query", "exec_simple_query"},
		{"", ""},
		{"_Z7throweri", "thrower"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
		{"_Z", "_Z"},
		{"_ZN\xff", "_ZN\xff"},
		{"_Z" + strings.Repeat("P", 5000), "_Z" + strings.Repeat("P", maxMangled-5) + "..."},
	} {
		qt.Check(t, qt.Equals(readableName(test.symbol), test.want), qt.Commentf("%.100q", test.symbol))
	}
}

// The names of probes are those of untrusted files, and are printed at each
// hit.
func TestLongProbeNamesAreCut(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	event := &trace.Event{Probe: long + ":" + long, Site: &trace.Site{Site: usdt.Site{Site: elfnote.Site{Provider: long, Name: long}}}}
	o := &options{}
	tracer := &tracer{options: o, targets: newTargets(o)}
	var out strings.Builder
	for _, p := range []printer{&textPrinter{tracer: tracer, out: &out}, &jsonPrinter{tracer: tracer, out: &out}} {
		out.Reset()
		p.event(event)
		qt.Check(t, qt.IsTrue(out.Len() < 1000), qt.Commentf("%d bytes", out.Len()))
		qt.Check(t, qt.StringContains(out.String(), "nnn..."))
	}
}

// Whatever a file's symbols are named, names stay short and nothing panics.
func FuzzReadableName(f *testing.F) {
	for _, seed := range []string{"_Z7throweri", "_ZNSt6vectorIiSaIiEE9push_backERKi", "_RNvCs1234_7mycrate3foo", "_ZN1aS_S_S_E"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, symbol string) {
		if got := readableName(symbol); len(got) > 2<<maxReadable {
			t.Fatalf("%q became %d bytes", symbol, len(got))
		}
	})
}
