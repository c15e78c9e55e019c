// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/trace"
)

// column is a column of values in a table.
type column struct {
	name string
	text func(*trace.Row) string
}

// quantiles are the parts of all hits of which tables tell what they do not
// exceed.
var quantiles = []struct {
	name, json string
	part       float64
}{{"P50", "p50", 0.5}, {"P90", "p90", 0.9}, {"P99", "p99", 0.99}}

// columnsOf returns the columns of values that an aggregation has.
func columnsOf(a *aggregation, s *trace.Snapshot) []column {
	took := s.Time.Sub(s.Start)
	columns := []column{
		{"COUNT", func(row *trace.Row) string {
			if row.Partial && row != &s.Other {
				return fmt.Sprintf("%d+", row.Count) // some may be in the row of all others
			}
			return fmt.Sprint(row.Count)
		}},
		{"RATE", func(row *trace.Row) string { return formatRate(row.Count, took) }},
	}
	if !a.Sum {
		return columns
	}
	estimate := formatAverage
	exact := trace.Value.String
	if a.duration {
		estimate = formatDuration
		exact = func(v trace.Value) string { return formatDuration(v.Float()) }
	}
	columns = append(columns,
		column{"AVERAGE", func(row *trace.Row) string { return estimate(row.Average()) }})
	if a.Max && a.rows == nil {
		for _, q := range quantiles {
			columns = append(columns,
				column{q.name,
					func(row *trace.Row) string { return estimate(row.Quantile(q.part)) }})
		}
	}
	if a.Max {
		columns = append(columns,
			column{"MAX", func(row *trace.Row) string { return exact(row.Max) }})
	}
	return append(columns, column{"TOTAL", func(row *trace.Row) string {
		if row.Sum.Kind() == trace.Float && !a.duration {
			return fmt.Sprintf("~%.3g", row.Sum.Float()) // a sum of more than 64 bits
		}
		return exact(row.Sum)
	}})
}

// sortable are what rows can be sorted by, the greatest first.
var sortable = map[string]func(*trace.Row) float64{
	"count":   func(row *trace.Row) float64 { return float64(row.Count) },
	"average": (*trace.Row).Average,
	"p50":     func(row *trace.Row) float64 { return row.Quantile(0.5) },
	"p90":     func(row *trace.Row) float64 { return row.Quantile(0.9) },
	"p99":     func(row *trace.Row) float64 { return row.Quantile(0.99) },
	"max":     func(row *trace.Row) float64 { return row.Max.Float() },
	"total":   func(row *trace.Row) float64 { return row.Sum.Float() },
}

// sortRows sorts rows by what is asked for; otherwise by the total, or by the
// count where there is none. Rows that are equal in that stay sorted by their
// count and keys.
func (t *tracer) sortRows(a *aggregation, s *trace.Snapshot) {
	by := cmp.Or(t.options.sort, "total")
	if !a.Sum && by != "count" {
		return // they are sorted by their count
	}
	values := make(map[*trace.Row]float64)
	rows := make([]*trace.Row, len(s.Rows))
	for i := range s.Rows {
		rows[i] = &s.Rows[i]
		values[rows[i]] = sortable[by](rows[i])
	}
	slices.SortStableFunc(rows,
		func(a, b *trace.Row) int { return cmp.Compare(values[b], values[a]) })
	sorted := make([]trace.Row, len(rows))
	for i, row := range rows {
		sorted[i] = *row
	}
	s.Rows = sorted
}
