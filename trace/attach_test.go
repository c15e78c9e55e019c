// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The kernel attaches and detaches one site after the other. An end is never
// taken for that of another call. Calls that go on meanwhile are no losses:
// there may be one in each thread.
func TestLatencyWhileCallsGoOn(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"), "always")
		for range testprog.Soak(5, 15) {
			// Those that are measured wrongly are as long as the session. Few
			// others are.
			s := newSession(t,
				&trace.SessionOptions{Mode: mode, Filter: "duration > 20ms",
					Events: &trace.EventOptions{Spans: everyCall}})
			attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:left__*", nil)
			time.Sleep(25 * time.Millisecond) // what is wrong is over the filter's limit
			qt.Assert(t, qt.IsNil(s.Detach()))
			for e, err := range s.Events(t.Context()) {
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(e.Start.Args[0].Int(), e.Args[1].Int()),
					qt.Commentf("%v after %v", e, e.Start))
			}
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsTrue(losses.Unmatched <= 4), qt.Commentf("%+v", losses))
			qt.Assert(t, qt.Equals(losses.Replaced, 0))
			qt.Assert(t, qt.IsNil(s.Close()))
		}
	})
}

// The kernel detaches one probe after the other. A process whose threads pass
// two probes in turn has as many hits of the one as of the other, but for the
// hits that are under way at either end.
func TestRowsEndTogether(t *testing.T) {
	const threads = 4
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"), "always")
		a := &trace.Aggregation{By: []string{"probe"}}
		opts := aggregating(a)
		opts.Mode = mode
		s := newSession(t, opts)
		attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:left__*", nil)
		_, err := s.Take()
		qt.Assert(t, qt.IsNil(err))
		testneeds.Await(t, patience, "hits of both",
			func() bool { return len(snapshot(t, a).Rows) == 2 })
		qt.Assert(t, qt.IsNil(s.Detach()))
		counted := snapshot(t, a)
		qt.Assert(t, qt.HasLen(counted.Rows, 2))
		more := counted.Rows[0].Count - counted.Rows[1].Count
		qt.Check(t, qt.IsTrue(more <= 2*threads), qt.Commentf("%v", rows(counted)))
		qt.Check(t, qt.DeepEquals(rows(snapshot(t, a)), rows(counted)))
	})
}

// Losses of one file are counted while others are attached and detached, and
// after their own attachment has gone. They never become less: readers take a
// number that goes back for one that has begun anew.
func TestLossesOfOneFileWhileOthersAreAttached(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		opts := aggregating(&trace.Aggregation{Latency: &trace.Latency{
			Pair: "gousdt_test:three..gousdt_test:twelve"}})
		opts.Mode = mode
		s := newSession(t, opts)
		p := start(t, "target-pie")
		a := attach(t, s, usdt.Target{Path: p.path}, "gousdt_test:t*", nil)
		other := copyOf(t, "target-pie")
		var before trace.Losses
		check := func() {
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsTrue(losses.Unmatched >= before.Unmatched &&
				losses.Replaced >= before.Replaced), qt.Commentf("%+v after %+v", losses, before))
			before = losses
		}
		const rounds, hits = 4, 500
		for range rounds {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.Fire("twelve", hits) // without a start
			}()
			for done := false; !done; {
				qt.Assert(t, qt.IsNil(attach(t, s, usdt.Target{Path: other}, "gousdt_test:t*", nil).Close()))
				check()
				select {
				case <-ended:
					done = true
				default:
				}
			}
		}
		p.Fire("three", hits) // more than there can be inside each other
		check()
		qt.Check(t, qt.Equals(before.Unmatched, rounds*hits))
		qt.Check(t, qt.Equals(before.Replaced, hits-64))
		qt.Assert(t, qt.IsNil(a.Close()))
		b := attach(t, s, usdt.Target{Path: p.path}, "gousdt_test:t*", nil)
		check()
		p.Fire("twelve", 1)
		check()
		qt.Assert(t, qt.IsNil(b.Close()))
		check()
		qt.Check(t, qt.Equals(before.Unmatched, rounds*hits+1))
		qt.Check(t, qt.Equals(before.Replaced, hits-64))
	})
}

func TestAttachmentEndsBeforeItsFileIsWrittenTo(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		path := copyOf(t, "calls")
		s := newSession(t, &trace.SessionOptions{Mode: mode,
			Events: &trace.EventOptions{Spans: everyCall}})
		attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
		a := s.Attachments()[0]
		qt.Assert(t, qt.IsNil(a.Err()))
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		qt.Assert(t, qt.IsNil(err))
		file.Close()
		<-a.Done()
		qt.Check(t, qt.ErrorIs(a.Err(), usdt.ErrWritten))
		qt.Check(t, qt.HasLen(s.Attachments(), 0))

		attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
		again := s.Attachments()[0]
		qt.Assert(t, qt.IsNil(s.Detach()))
		<-again.Done()
		qt.Check(t, qt.ErrorIs(again.Err(), os.ErrClosed))
	})
}

// A call is in all tables or in none, also while new keys are taken because the
// kernel's room for them is half full.
func TestTakenTogether(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		left := &trace.Latency{Pair: "gousdt_calls:left"}
		opts := aggregating(
			&trace.Aggregation{
				Probes: []elfnote.Pattern{elfnote.MustParsePattern("gousdt_calls:left__done")}},
			&trace.Aggregation{Latency: left, Sum: true},
			&trace.Aggregation{Latency: left, Histogram: &trace.Histogram{},
				Max: true, By: []string{"tid"}},
			&trace.Aggregation{Latency: left, By: []string{"arg1"}, MaxKeys: 2})
		opts.Mode = mode
		s := newSession(t, opts)
		path := copyOf(t, "calls")
		attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
		startCaller(t, path, "always") // no call begins before
		hits := 0
		check := func(snapshots []*trace.Snapshot) {
			var first uint64
			for i, snapshot := range snapshots {
				inRows, other := counted(snapshot)
				if i == 0 {
					first = inRows
				}
				qt.Assert(t, qt.Equals(inRows+other, first), qt.Commentf("aggregator %d", i))
				qt.Assert(t, qt.Equals(snapshot.Time, snapshots[0].Time))
				qt.Assert(t, qt.Equals(snapshot.Start, snapshots[0].Start))
			}
			hits += int(first)
		}
		take := func() {
			snapshots, err := s.Take()
			qt.Assert(t, qt.IsNil(err))
			check(snapshots)
		}
		testneeds.Await(t, patience, "hits", func() bool {
			take()
			return hits > 0
		})
		for range testprog.Soak(20, 1000) {
			take()
		}
		qt.Assert(t, qt.IsNil(s.Detach()))
		snapshots, err := s.Take(opts.Aggregations...)
		qt.Assert(t, qt.IsNil(err))
		check(snapshots)
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		losses.Unfinished = 0
		qt.Check(t, qt.Equals(losses, trace.Losses{}))
	})
}

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

// Probes of a hostile file may share a long string of arguments, for each of
// which code is generated.
func TestAttachRefusesTooManyArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.so")
	var notes []testprog.Note
	for i := range 10_000 {
		notes = append(notes, testprog.Note{Provider: "p", Name: fmt.Sprint(i),
			Arguments: strings.Repeat("1 ", 256)})
	}
	testprog.WriteNotes(t, path, notes)
	s := newSession(t, nil)
	_, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.MustParsePattern("p:*"))
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrTooLarge))
	qt.Check(t,
		qt.ErrorMatches(err,
			`/.*/hostile.so: more than .* arguments and sites of different probes: .*`))
	qt.Check(t, qt.HasLen(s.Attachments(), 0))
}

// merge lets two probes of a file have their first sites at one instruction. It
// returns their names.
func merge(t *testing.T, path string, patterns ...string) (first, second string) {
	t.Helper()
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	listing, err := defs.List(file,
		elfnote.MustParsePattern(patterns[0]), elfnote.MustParsePattern(patterns[1]))
	qt.Assert(t, qt.IsNil(err))
	a, b := listing.Probes[0], listing.Probes[1]
	word := func(address uint64) []byte { return binary.NativeEndian.AppendUint64(nil, address) }
	at := bytes.Index(content, append(word(b.Sites[0].Location), word(b.Sites[0].Base)...))
	qt.Assert(t, qt.IsTrue(at > 0))
	copy(content[at:], word(a.Sites[0].Location))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o755)))
	return a.Name, b.Name
}

// A hit counts for each of the probes at its instruction, whichever is watched.
func TestSitesKnowThoseAtTheSameInstruction(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{}})
	path := copyOf(t, "target-pie")
	first, second := merge(t, path, "*:guarded", "*:counted")
	merge(t, path, "*:sizes", "*:twelve")

	for _, pattern := range []string{"*:guarded", "*:counted", "*:three"} {
		a, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.MustParsePattern(pattern))
		qt.Assert(t, qt.IsNil(err))
		want := []string{"gousdt_test:" + first, "gousdt_test:" + second}
		if pattern == "*:three" {
			want = nil
		}
		for _, site := range a.Sites() {
			qt.Check(t, qt.DeepEquals(site.SameInstruction, want))
		}
		qt.Check(t, qt.IsNil(a.Close()))
	}
	calls := &trace.Aggregation{
		Latency: &trace.Latency{Pair: "sizes..twelve"}}
	_, err := newSession(t, aggregating(calls)).Attach(usdt.Target{Path: path}, nil,
		elfnote.MustParsePattern("gousdt_test:*"))
	qt.Check(t, qt.ErrorMatches(err,
		".*sizes..gousdt_test:twelve cannot be measured: its start and its end are at one instruction.*"))
}

// Where a pair has both ends at one instruction no call of it is measured, and
// elsewhere each.
func TestPairsWithBothEndsAtSomeInstruction(t *testing.T) {
	calls := &trace.Aggregation{By: []string{"arg0"},
		Latency: &trace.Latency{Pair: "inlined..specs", By: "arg0"}}
	s := newSession(t, aggregating(calls))
	path := copyOf(t, "target-pie")
	merge(t, path, "*:inlined", "*:specs")
	a, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.MustParsePattern("gousdt_test:*[np]e[dc]*"))
	qt.Assert(t, qt.IsNil(err))
	skipped, count := a.Skipped()
	qt.Assert(t, qt.HasLen(skipped, 2))
	qt.Check(t, qt.Equals(count, 2))
	for _, site := range skipped {
		qt.Check(t, qt.ErrorMatches(site, "probe gousdt_test:(inlined|specs) at 0x[0-9a-f]+: no call of "+
			"gousdt_test:inlined..gousdt_test:specs is measured there: the linker has made .*"))
	}
	process := startFile(t, path)
	process.Fire("inlined", 1) // 1 to 5
	process.Fire("specs", 1)
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, calls)), []string{"[1] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"}))
}
