// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// BenchmarkRows has every contestant of every row do its work, one after the
// other, for profiles and for -benchtime=1x. With that, CI sees that all of
// this still works. To compare them, run the command.
func BenchmarkRows(b *testing.B) {
	whole := benchmarkEnv(b)
	for _, r := range rows() {
		b.Run(r.name, func(b *testing.B) {
			e := whole.nested()
			b.Cleanup(e.close)
			contestants, err := r.prepare(e)
			if isUnable(err) {
				b.Skip(err)
			}
			if err != nil {
				b.Fatal(err)
			}
			checkGoals(b, r, contestants)
			for _, c := range contestants {
				b.Run(c.Name, func(b *testing.B) { benchmark(b, c, r.unit) })
			}
		})
	}
}

// checkGoals fails if a goal is about a contestant that is not there.
func checkGoals(b *testing.B, r row, contestants []contestant) {
	b.Helper()
	for _, g := range r.goals {
		for _, name := range []string{g.Of, g.Than} {
			if name != "" && !slices.ContainsFunc(contestants,
				func(c contestant) bool { return c.Name == name }) {
				b.Errorf("a goal of %s is about %q, who does not take part", r.name, name)
			}
		}
	}
}

func benchmark(b *testing.B, c contestant, unit unit) {
	if isUnable(c.Missing) {
		b.Skip(c.Missing)
	}
	if c.Missing != nil {
		testneeds.Missing(b, "%v", c.Missing)
	}
	// The contestants take the time themselves: some only of a part of what
	// they do, and some in another process.
	var total float64
	for range b.N {
		cost, err := c.Measure(1)
		if err != nil {
			b.Fatal(err)
		}
		total += cost
	}
	b.ReportMetric(total/float64(b.N), unit.String()+"/op")
}

// benchmarkEnv does as little as possible, so that -benchtime=1x is quick.
func benchmarkEnv(b *testing.B) *env {
	b.Helper()
	testneeds.Root(b)
	e, err := newEnv(smoke)
	if isUnable(err) {
		b.Skip(err)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.close)
	return e
}

func isUnable(err error) bool {
	var unable *unableError
	return errors.As(err, &unable)
}
