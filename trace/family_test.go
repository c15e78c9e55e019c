// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A child fires at once, and ends: it is hit from its fork on.
func TestFamilyFollowsForks(t *testing.T) {
	testneeds.BTF(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		p := start(t, "target-pie")
		other := p.again(t)
		counted := trace.NewAggregator(trace.Aggregation{By: []string{"pid"}})
		s := open(t, p, "gousdt_test:three", &trace.SessionOptions{
			Mode: mode, Family: p.PID, Aggregators: []*trace.Aggregator{counted},
			Events: &trace.EventOptions{},
		})
		p.Fire("three", 1)
		child := p.Fork("three", 3)
		other.Fire("three", 5)
		other.Fork("three", 5)
		events, lost := rest(t, s)
		qt.Check(t, qt.Equals(lost, 0))
		hits := make(map[int]int)
		for _, e := range events {
			hits[e.PID]++
		}
		qt.Check(t, qt.DeepEquals(hits, map[int]int{p.PID: 1, child: 3}))
		qt.Check(t, qt.HasLen(snapshot(t, counted).Rows, 2))
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses.Processes, 0))
	})
}

// The number may become that of any process.
func TestFamilyOfNoProcess(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.BTF(t)
	testprog.LeakCheck(t)
	// Linux has no greater number than 1<<22.
	_, err := trace.New(&trace.SessionOptions{Family: 1<<22 + 1})
	qt.Assert(t, qt.ErrorMatches(err, ".*Family: there is no process 4194305"))
}

func TestFamilyHasDescendantsThatAreThere(t *testing.T) {
	testneeds.BTF(t)
	p := start(t, "target-pie")
	s := newSession(t, &trace.SessionOptions{Family: 1}) // of which all are descendants
	attach(t, s, usdt.Target{Path: p.path}, "gousdt_test:three", nil)
	p.Fire("three", 2)
	events, _ := rest(t, s)
	qt.Check(t, qt.HasLen(events, 2))
}
