// SPDX-License-Identifier: BSD-2-Clause

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func TestProgramsAreNamedForTheirProbes(t *testing.T) {
	for _, test := range []struct {
		probes []trace.Probe
		want   string
	}{
		{[]trace.Probe{{"postgresql", "query__start"}}, "postg_query__st"},
		{[]trace.Probe{{"postgresql", "sort"}}, "postgresql_sort"},
		{[]trace.Probe{{"python", "gc__start"}}, "pytho_gc__start"},
		{[]trace.Probe{{"libstdcxx", "throw"}}, "libstdcxx_throw"},
		{[]trace.Probe{{"a", "b"}}, "a_b"},
		{[]trace.Probe{{"postgresql", "query__start"}, {"postgresql", "query__done"}}, "postgresq_query"},
		{[]trace.Probe{{"hotspot", "gc__begin"}, {"hotspot", "thread__start"}}, "hotspot"},
		{[]trace.Probe{{"one", "x"}, {"two", "y"}}, "usdt"},
		{[]trace.Probe{{"gousdt::names", "a \"quoted\" name"}}, "gousd_a__quoted"},
		{[]trace.Probe{{"日本", "語"}}, "usdt"},
		{[]trace.Probe{{"", "averyveryverylongname"}}, "averyveryverylo"},
	} {
		qt.Check(t, qt.Equals(trace.ProgramName(test.probes...), test.want))
	}
}
