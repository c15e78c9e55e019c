// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// writeProfile writes the user stacks of rows for pprof.
func (t *tracer) writeProfile(a *aggregation, s *trace.Snapshot) error {
	types := []stack.ValueType{{Type: "hits", Unit: "count"}}
	switch {
	case a.duration:
		types = append(types, stack.ValueType{Type: "latency", Unit: "nanoseconds"})
	case a.Sum:
		types = append(types, stack.ValueType{Type: a.Value, Unit: "count"})
	}
	t.stacks.Refresh()
	p := stack.NewProfile(t.stacks, types...)
	for i := range s.Rows {
		row := &s.Rows[i]
		pid, _ := stackOf(s, row)
		values := []int64{int64(row.Count)}
		if len(types) > 1 {
			values = append(values, row.Sum.Int())
		}
		labels := make(map[string]string)
		for n, key := range row.Keys {
			if s.By[n] != "stack" {
				labels[s.By[n]] = terminal.Cut(key.String(), maxText)
			}
		}
		p.Add(context.Background(), pid, row.Stack, values, labels)
	}
	return t.writeProfileFile(p, len(s.Rows))
}

// writeSamples writes the stacks of events for pprof.
func (t *tracer) writeSamples() error {
	types := []stack.ValueType{{Type: "hits", Unit: "count"}}
	if t.samples.sum >= 0 {
		types = append(types, stack.ValueType{Type: t.options.sum, Unit: "count"})
	}
	t.stacks.Refresh()
	p := stack.NewProfile(t.stacks, types...)
	for _, s := range t.samples.all {
		p.Add(context.Background(), s.pid, s.stack, []int64{s.count, s.sum}[:len(types)], s.labels)
	}
	if t.samples.leftOut > 0 {
		t.messages.Warn("%s left out of the profile: there are more than %d stacks", plural(int(t.samples.leftOut), "event"), maxSamples)
	}
	return t.writeProfileFile(p, len(t.samples.all))
}

func (t *tracer) writeProfileFile(p *stack.Profile, stacks int) error {
	p.Start, p.Duration = time.Now().Add(-t.took), t.took
	if err := t.profile.write(func(file *os.File) error { return p.Write(file) }); err != nil {
		return fmt.Errorf("%s: %w", t.options.pprofFile, err)
	}
	t.messages.Note("wrote %s to %s (go tool pprof %s)", plural(stacks, "stack"), t.options.pprofFile, t.options.pprofFile)
	return nil
}
