// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// What an event has in common with those before it is not built again.
func TestJSONIsOfItsOwnEvent(t *testing.T) {
	site := func(name string) *trace.Site {
		return &trace.Site{File: "/bin/" + name,
			Site: usdt.Site{Site: elfnote.Site{Provider: "p", Name: name}}}
	}
	one, two := site("one"), site("two")
	o := &options{}
	var out strings.Builder
	p := &jsonPrinter{tracer: &tracer{prepared: prepared{options: o, targets: newTargets(o)}}, out: &out}
	for _, test := range []struct {
		behaviour string
		event     trace.Event
		want      string
	}{
		{"the first one", trace.Event{Site: one},
			`"pid":0,"tid":0,"command":"","cpu":0,"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"another thread", trace.Event{PID: 1, TID: 2, Command: "a", Site: one},
			`"pid":1,"tid":2,"command":"a","cpu":0,"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"another process", trace.Event{PID: 3, TID: 2, Command: "a", Site: one},
			`"pid":3,"tid":2,"command":"a","cpu":0,"provider":"p","name":"one",`},
		{"another name of the thread", trace.Event{PID: 3, TID: 2, Command: "b\xff", Site: one},
			`"pid":3,"tid":2,"command":"b�","command_hex":"62ff","cpu":0,`},
		{"another site",
			trace.Event{Site: two,
				Args: []trace.Value{trace.ValueOf(int64(1)), trace.ValueOf(uint64(2))}},
			`"name":"two","file":"/bin/two","location":0,"args":[{"value":1},{"value":2}]}`},
		{"the same site with other values",
			trace.Event{Site: two, Args: []trace.Value{trace.ValueOf(int64(3)), {}}},
			`"name":"two","file":"/bin/two","location":0,"args":[{"value":3},{"value":null,"unavailable":true}]}`},
		{"the first site again", trace.Event{Site: one},
			`"name":"one","file":"/bin/one","location":0,"args":[]}`},
		{"a call of both", trace.Event{Site: two, Args: []trace.Value{trace.ValueOf(int64(4)), {}},
			Start: &trace.Event{Site: one}},
			`"start":{"provider":"p","name":"one","file":"/bin/one","location":0,"args":[]},"done":{"provider":"p","name":"two","file":"/bin/two","location":0,"args":[{"value":4},`},
	} {
		out.Reset()
		p.event(&test.event)
		qt.Check(t, qt.StringContains(out.String(), test.want), qt.Commentf(test.behaviour))
	}
}

// Two keys that differ in bytes that are not UTF-8 are two objects.
func TestJSONRowsKeepTheBytesOfKeys(t *testing.T) {
	o := &options{}
	var out strings.Builder
	p := &jsonPrinter{tracer: &tracer{prepared: prepared{options: o, targets: newTargets(o)}}, out: &out}
	snapshot := &trace.Snapshot{By: []string{"query"}, Rows: []trace.Row{
		{Keys: []trace.Value{trace.ValueOf("a\xff")}, Count: 1},
		{Keys: []trace.Value{trace.ValueOf("a\xfe")}, Count: 2},
		{Keys: []trace.Value{trace.ValueOf("plain")}, Count: 3},
	}}
	p.rows(&aggregation{kind: "count"}, snapshot)
	for _, want := range []string{
		`"keys":{"query":"a\uFFFD","query_hex":"61ff"},"count":1`,
		`"keys":{"query":"a\uFFFD","query_hex":"61fe"},"count":2`,
		`"keys":{"query":"plain"},"count":3`,
	} {
		qt.Check(t, qt.StringContains(out.String(), strings.ReplaceAll(want, `\uFFFD`, "\uFFFD")))
	}
}
