// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// buckets shows the buckets of a row that are not empty.
func buckets(row trace.Row) []string {
	var texts []string
	for _, b := range row.Histogram(0) {
		if b.Count > 0 {
			texts = append(texts, fmt.Sprintf("%v..%v %d", b.Low, b.High, b.Count))
		}
	}
	return texts
}

func TestHistogram(t *testing.T) {
	for _, test := range []struct {
		name, group, value string
		histogram          trace.Histogram
		by                 []string
		want               []string
		sum                string
	}{
		{"powers of two", "specs", "arg0", *trace.Exponential(1, 0), nil, []string{
			"0..0 1", "1..1 1", "2..2 1", "3..4 2", "5..8 4", "9..16 8", "17..32 16", "33..64 32",
			"65..128 64", "129..256 128", "257..512 43"}, "44850"},
		{"exponential", "specs", "arg0", trace.Histogram{}, nil, []string{
			"0..0 1", "1..1 1", "2..2 1", "3..3 1", "4..4 1", "5..5 1", "6..6 1", "7..7 1",
			"8..8 1", "9..9 1", "10..10 1", "11..11 1",
			"12..12 1", "13..13 1", "14..14 1", "15..16 2", "17..17 1", "18..19 2", "20..20 1",
			"21..22 2", "23..24 2", "25..26 2",
			"27..29 3", "30..32 3", "33..34 2", "35..38 4", "39..41 3", "42..45 4", "46..49 4",
			"50..53 4", "54..58 5", "59..64 6",
			"65..69 5", "70..76 7", "77..82 6", "83..90 8", "91..98 8", "99..107 9", "108..117 10",
			"118..128 11",
			"129..139 11", "140..152 13", "153..165 13", "166..181 16", "182..197 16",
			"198..215 18", "216..234 19", "235..256 22",
			"257..279 23", "280..304 20"}, "44850"},
		{"of a unit", "specs", "arg0", *trace.Exponential(1, 100), nil, []string{
			"0..0 1", "1..1 1", "2..3 2", "4..6 3", "7..12 6", "13..25 13", "26..50 25",
			"51..100 50", "101..200 100", "201..400 99"}, "44850"},
		{"limits", "specs", "arg0", *trace.Limits(0, 9, 250), nil,
			[]string{"0..0 1", "1..9 9", "10..250 241", "251..18446744073709551615 49"}, "44850"},
		{"negative limits", "inlined", "arg1", *trace.Limits(-104, 10), nil,
			[]string{"-9223372036854775808..-104 2", "-103..-1 3"}, "-515"},
		{"negative powers of two", "inlined", "arg1", *trace.Exponential(1, 0), nil,
			[]string{"-128..-65 5"}, "-515"},
		{"negative exponential", "inlined", "arg1", *trace.Exponential(16, 0), nil,
			[]string{"-107..-104 2", "-103..-99 3"}, "-515"},
		{"greatest powers of two", "stack", "arg7", *trace.Exponential(1, 0), nil,
			[]string{"9223372036854775809..18446744073709551615 1"}, "18000000000000000001"},
		{"least powers of two", "stack", "arg6", *trace.Exponential(1, 0), []string{"comm"},
			[]string{"-9223372036854775808..-4611686018427387905 1"}, "-9000000000000000001"},
		{"linear", "specs", "arg0", *trace.Linear(0, 300, 100), nil,
			[]string{"0..99 100", "100..199 100", "200..299 100"}, "44850"},
		{"linear with values outside", "specs", "arg0",
			*trace.Linear(100, 200, 50), []string{"probe"}, []string{
				"-9223372036854775808..99 100", "100..149 50", "150..199 50",
				"200..18446744073709551615 100"}, "44850"},
		{"negative linear", "inlined", "arg1", *trace.Linear(-105, -99, 2), nil,
			[]string{"-105..-104 2", "-103..-102 2", "-101..-100 1"}, "-515"},
		{"linear below all", "stack", "arg6", *trace.Linear(-10, 10, 5), nil,
			[]string{"-9223372036854775808..-11 1"}, "-9000000000000000001"},
		{"linear above all", "stack", "arg7", *trace.Linear(-10, 10, 5), nil,
			[]string{"10..18446744073709551615 1"}, "18000000000000000001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := aggregate(t, usdt.ModeAuto, trace.Aggregation{Value: test.value,
				Histogram: &test.histogram, By: test.by}, test.group, 1)
			qt.Assert(t, qt.HasLen(got.Rows, 1))
			qt.Assert(t, qt.DeepEquals(buckets(got.Rows[0]), test.want))
			qt.Assert(t, qt.Equals(got.Rows[0].Sum.String(), test.sum))
		})
	}
}
