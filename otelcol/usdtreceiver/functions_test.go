// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func TestOperations(t *testing.T) {
	for statement, want := range map[string]string{
		"select 1":                         "SELECT",
		"  (SELECT 1) UNION (SELECT 2)":    "SELECT",
		"/* a */ -- b\nUpdate t set a = 1": "UPDATE",
		"BEGIN;":                           "BEGIN",
		"END":                              "END",
		"selected":                         "_OTHER",
		"?!":                               "_OTHER",
		"":                                 "",
		"/* a comment that was cut":        "",
		"insert into pgbench_history values (1, 2)": "INSERT",
	} {
		qt.Check(t, qt.Equals(operationOf(statement), want), qt.Commentf("%q", statement))
	}
}

func TestStatementsAndTheirSummaries(t *testing.T) {
	for statement, want := range map[string][2]string{
		"SELECT a FROM users WHERE id = 42 AND n = 'x'": {
			"SELECT a FROM users WHERE id = ? AND n = ?", "SELECT users"},
		"select * from a join b on a.x = b.x": {"select * from a join b on a.x = b.x", "SELECT a b"},
		"COMMIT":                              {"COMMIT", "COMMIT"},
		// As they are when they were cut.
		"SELECT a FROM b /*route='/x',traceparent='00-4bf9": {"SELECT a FROM b", "SELECT b"},
		"SELECT a FROM b /*":                         {"SELECT a FROM b", "SELECT b"},
		"SELECT $$a secret":                          {"SELECT ?", "SELECT"},
		"SELECT 'é', $x$a from secret$":              {"SELECT ?, ?", "SELECT"},
		"SELECT 'a secret":                           {"SELECT ?", "SELECT"},
		"SELECT $1, '/*', \"/*\" FROM b -- a secret": {`SELECT $1, ?, "/*" FROM b`, "SELECT b"},
	} {
		qt.Check(t, qt.Equals(statementOf(statement), want[0]), qt.Commentf("%q", statement))
		qt.Check(t, qt.Equals(summaryOf(statement), want[1]))
	}
}

// A bound is what is written, not the float that is nearest to it.
func TestLimitsAreExact(t *testing.T) {
	got, err := limits([]float64{-0.5, 0.0001, 0.005, 0.1, 2.5}, 1e9)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(got, []int64{-5e8, 1e5, 5e6, 1e8, 25e8}))
	got, err = limits([]float64{-0.5, 0.5, 10}, 1)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(got, []int64{-1, 0, 10}))
	for _, bounds := range [][]float64{{1, 1}, {math.NaN()}, {math.Inf(1)}, {1e30}} {
		_, err := limits(bounds, 1)
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%v", bounds))
	}
}

// The kernel's buckets are parts of those that were asked for.
func TestCountsOfExplicitBounds(t *testing.T) {
	value := func(v int64) trace.Value { return trace.ValueOf(v) }
	s := new(series)
	for range 2 {
		for _, b := range []trace.Bucket{
			{Low: value(math.MinInt64), High: value(-1), Count: 1},
			{Low: value(0), High: value(5), Count: 2},
			{Low: value(6), High: value(10), Count: 3},
			{Low: value(11), High: trace.ValueOf(uint64(math.MaxUint64)), Count: 4},
		} {
			s.addBucket([]int64{5, 10}, b)
		}
	}
	qt.Check(t, qt.DeepEquals(s.explicit, []uint64{6, 6, 8}))
}

// Statements that differ in what no attribute has are one key.
func TestStatementsAreNormalizedBeforeTheLimit(t *testing.T) {
	for attributes, want := range map[[2]string]bool{
		{"operation(query)", "error(probe)"}:    true,
		{"summary(query)", "pid"}:               true,
		{"operation(query)", "str(arg1)"}:       false,
		{"operation(query)", "query"}:           false,
		{"'x'", "comm"}:                         false,
		{"operation(query)", "operation(arg1)"}: true,
	} {
		c := MetricConfig{Name: "m", Pair: "postgresql:statement",
			Attributes: map[string]string{"a": attributes[0], "b": attributes[1]}}
		m, err := c.parse(ByProcess, 10)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(m.aggregation.Normalize != nil, want), qt.Commentf("%v", attributes))
	}
}
