// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"net/url"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
)

const (
	someTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	someSpan   = "00f067aa0ba902b7"
	someParent = "00-" + someTrace + "-" + someSpan + "-01"
)

func TestParseTraceparent(t *testing.T) {
	for _, test := range []struct {
		name, header string
		ok           bool
	}{
		{"version 0", someParent, true},
		{"a later version", "01-" + someTrace + "-" + someSpan + "-01-more", true},
		{"more than version 0 has", someParent + "-more", false},
		{"a later version without a dash", "01-" + someTrace + "-" + someSpan + "-01more", false},
		{"no version", "ff-" + someTrace + "-" + someSpan + "-01", false},
		{"capital digits", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + someSpan + "-01", false},
		{"no trace", "00-00000000000000000000000000000000-" + someSpan + "-01", false},
		{"no span", "00-" + someTrace + "-0000000000000000-01", false},
		{"cut", someParent[:54], false},
		{"not hexadecimal", "00-" + someTrace + "-00f067aa0ba902bx-01", false},
		{"nothing", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, ok := parseTraceparent(test.header)
			qt.Assert(t, qt.Equals(ok, test.ok))
			if ok {
				qt.Check(t, qt.Equals(c.trace.String(), someTrace))
				qt.Check(t, qt.Equals(c.span.String(), someSpan))
				qt.Check(t, qt.Equals(c.flags, 1))
			}
		})
	}
}

func TestCommentParent(t *testing.T) {
	const comment = "/*action='x%20y',traceparent='" + someParent + "'*/"
	for _, test := range []struct {
		name, statement string
		cut, ok         bool
	}{
		{name: "at the end", statement: "SELECT 1 " + comment, ok: true},
		{name: "before a semicolon", statement: "SELECT 1 " + comment + " ;\n", ok: true},
		{name: "at the beginning", statement: comment + " SELECT 1", ok: true},
		{name: "at the beginning of what was cut", statement: comment + " SELECT 1",
			cut: true, ok: true},
		{name: "encoded", statement: "SELECT 1 /*traceparent='00%2D" + someParent[3:] +
			"'*/", ok: true},
		{name: "behind another comment", statement: "/* x */ SELECT 1 " + comment, ok: true},
		{name: "within a text", statement: "SELECT '" + comment + "'"},
		{name: "between", statement: "SELECT 1 " + comment + " + 2"},
		{name: "cut", statement: "SELECT 1 " + comment, cut: true},
		{name: "of another key", statement: "SELECT 1 /*xtraceparent='" + someParent + "'*/"},
		{name: "without an end", statement: "SELECT 1 /*traceparent='" + someParent + "'"},
		{name: "without a beginning", statement: "traceparent='" + someParent + "'*/"},
		{name: "of one star", statement: "SELECT 1 --/*/"},
		{name: "of one star alone", statement: "/*/"},
		{name: "empty", statement: "SELECT 1 /**/"},
		{name: "nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, ok := commentParent([]byte(test.statement), !test.cut)
			qt.Assert(t, qt.Equals(ok, test.ok))
			if ok {
				qt.Check(t, qt.Equals(c.trace.String(), someTrace))
			}
		})
	}
}

// Any client of a database chooses what these read.
func FuzzCommentParent(f *testing.F) {
	f.Add([]byte("SELECT 1 /*traceparent='"+someParent+"'*/"), true)
	f.Add([]byte("/*traceparent='"+someParent+"'*/ SELECT 1"), false)
	f.Add([]byte("SELECT 1 --/*/"), true)
	f.Fuzz(func(t *testing.T, statement []byte, complete bool) {
		checkParent(t, string(statement), func() (spanContext, bool) {
			return commentParent(statement, complete)
		})
	})
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(someParent)
	f.Add("01" + someParent[2:] + "-more")
	f.Fuzz(func(t *testing.T, header string) {
		checkParent(t, header, func() (spanContext, bool) { return parseTraceparent(header) })
	})
}

// checkParent checks that what is read stands in the text.
func checkParent(t *testing.T, text string, read func() (spanContext, bool)) {
	c, ok := read()
	if !ok {
		return
	}
	qt.Check(t, qt.IsFalse(c.trace.IsEmpty() || c.span.IsEmpty()))
	if plain, err := url.PathUnescape(text); err == nil {
		qt.Check(t, qt.StringContains(plain, c.trace.String()+"-"+c.span.String()))
	}
}

// A span without a caller is linked to the last one of its thread, unless that
// is long ago or not recorded: a connection of a pool has many callers.
func TestLinksAreToTheCallerOfTheThread(t *testing.T) {
	s, err := (&SpanConfig{Pair: "p:query",
		Parent: &ParentConfig{From: "str(start.arg0)", Format: traceparent}}).parse()
	qt.Assert(t, qt.IsNil(err))
	r := newReceiver(receivertest.NewNopSettings(metadata.Type), defaultConfig())
	r.processes = newProcesses(ByContainer, procfs.FS(t.TempDir()), nil)
	b := &spanBatch{source: &source{receiver: r}, spans: s, before: make(map[[2]int]callerSpan)}
	const sampled, other, not = "00-000000000000000000000000000000aa-00000000000000bb-01",
		"00-000000000000000000000000000000cc-00000000000000bb-01",
		"00-000000000000000000000000000000dd-00000000000000bb-00"
	for _, test := range []struct {
		tid      int
		at, took time.Duration
		text     string
		links    int
	}{
		{1, 1 * time.Second, 0, "", 0},
		{1, 2 * time.Second, 0, sampled, 0},
		{2, 2 * time.Second, 0, "", 0},
		{1, 11 * time.Second, 0, "", 1},
		{1, 50 * time.Second, 45 * time.Second, "", 1}, // it began soon enough
		{1, 51 * time.Second, 0, "", 0},
		{1, 52 * time.Second, 0, other, 0},
		{1, 53 * time.Second, 0, "", 1},
		{1, 54 * time.Second, 0, not, -1},
		{1, 55 * time.Second, 0, "", 0},
	} {
		b.clear()
		site := &trace.Site{}
		b.add(&trace.Event{PID: 1, TID: test.tid, Monotonic: test.at, Duration: test.took, Site: site,
			Start: &trace.Event{Site: site, Args: []trace.Value{trace.ValueOf(test.text)}}})
		links := -1
		for _, resource := range b.all.ResourceSpans().All() {
			links = resource.ScopeSpans().At(0).Spans().At(0).Links().Len()
		}
		qt.Check(t, qt.Equals(links, test.links), qt.Commentf("%+v", test))
	}
}
