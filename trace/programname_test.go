// SPDX-License-Identifier: BSD-2-Clause

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func TestProgramName(t *testing.T) {
	for _, test := range []struct {
		probes [][2]string
		want   string
	}{
		{[][2]string{{"postgresql", "query__start"}}, "postg_query__st"},
		{[][2]string{{"postgresql", "sort"}}, "postgresql_sort"},
		{[][2]string{{"python", "gc__start"}}, "pytho_gc__start"},
		{[][2]string{{"libstdcxx", "throw"}}, "libstdcxx_throw"},
		{[][2]string{{"a", "b"}}, "a_b"},
		{[][2]string{{"postgresql", "query__start"}, {"postgresql", "query__done"}},
			"postgresq_query"},
		{[][2]string{{"hotspot", "gc__begin"}, {"hotspot", "thread__start"}}, "hotspot"},
		{[][2]string{{"one", "x"}, {"two", "y"}}, "usdt"},
		{[][2]string{{"gousdt::names", "a \"quoted\" name"}}, "gousd_a__quoted"},
		{[][2]string{{"日本", "語"}}, "usdt"},
		{[][2]string{{"", "averyveryverylongname"}}, "averyveryverylo"},
	} {
		qt.Check(t, qt.Equals(trace.ProgramName(test.probes...), test.want))
	}
}
