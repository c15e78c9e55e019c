// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Each event names its site, although hundreds of sites share a few perf
// events.
func TestSitesOfAFileShareFewPerfEvents(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		if mode == usdt.ModeMulti {
			return
		}
		process := start(t, "target-pie")
		other := process.again(t)
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		a := attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:*", nil)
		qt.Assert(t, qt.IsTrue(len(a.Sites()) > 700))
		events := len(testprog.SharedEvents(t))
		t.Logf("%d sites, %d events", len(a.Sites()), events)
		qt.Check(t, qt.IsTrue(events > 0 && events < 10))

		sites := make(map[string][]*trace.Site)
		for _, site := range a.Sites() {
			sites[site.Name] = append(sites[site.Name], site)
		}
		for _, process := range []*traced{process, other} {
			process.Fire("specs", 1)
			for i, event := range next(t, s, len(sites["specs"])) {
				qt.Assert(t, qt.Equals(event.Site, sites["specs"][i]))
				qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(i)))
			}
			process.Fire("many", 1)
			for i, event := range next(t, s, len(sites["many"])) {
				qt.Assert(t, qt.Equals(event.Site, sites["many"][i]))
			}
		}

		// A closed attachment leaves its slots to others.
		used, held := trace.Slots(s)
		qt.Check(t, qt.Equals(used, len(a.Sites())))
		qt.Check(t, qt.Equals(held, used))
		qt.Check(t, qt.IsNil(a.Close()))
		qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
		used, held = trace.Slots(s)
		qt.Check(t, qt.Equals(used, 0))
		qt.Check(t, qt.Equals(held, 0))
		silent(t, s)
	})
}

// A session with more sites than there are slots attaches the rest as it can.
func TestAttachWithoutRoomForSlots(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-static")
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		trace.FillSlots(s)
		a := attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:split", nil)
		process.Fire("split", 1)
		for i, event := range next(t, s, len(a.Sites())) {
			qt.Assert(t, qt.Equals(event.Site, a.Sites()[i]))
		}
		qt.Check(t, qt.IsNil(a.Close()))
	})
}

func TestGroupsOfSites(t *testing.T) {
	for _, test := range []struct {
		addresses []uint64
		want      [][]int
	}{
		{nil, nil},
		{[]uint64{0x1234}, [][]int{{0}}},
		{[]uint64{0x1234, 0x1235, 0xfff, 0}, [][]int{{0, 1, 2, 3}}},
		{[]uint64{0x1234, 0x2234, 0x1235, 0x3234, 0x2235}, [][]int{{0, 2}, {1, 4}, {3}}},
		{[]uint64{0x1234, 0x1234}, [][]int{{0}, {1}}}, // two probes at one instruction
	} {
		qt.Check(t, qt.DeepEquals(trace.Groups(test.addresses...), test.want),
			qt.Commentf("%#x", test.addresses))
	}
}
