// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/gousdt/gousdt/internal/profile"
	"github.com/gousdt/gousdt/trace"
)

// writeProfile writes user stacks for pprof.
func (t *tracer) writeProfile(a *aggregation, s *trace.Snapshot) error {
	types := []profile.ValueType{{Type: "hits", Unit: "count"}}
	switch {
	case a.duration:
		types = append(types, profile.ValueType{Type: "latency", Unit: "nanoseconds"})
	case a.Sum:
		types = append(types, profile.ValueType{Type: a.Value, Unit: "count"})
	}
	t.stacks.Refresh()
	b := profile.NewBuilder(t.stacks, types...)
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
				labels[s.By[n]] = key.String()
			}
		}
		b.Add(pid, row.Stack, values, labels)
	}
	return t.writeFile(b, len(s.Rows))
}

// writeSamples writes the stacks of events for pprof.
func (t *tracer) writeSamples() error {
	types := []profile.ValueType{{Type: "hits", Unit: "count"}}
	if t.samples.sum >= 0 {
		types = append(types, profile.ValueType{Type: t.options.sum, Unit: "count"})
	}
	t.stacks.Refresh()
	b := profile.NewBuilder(t.stacks, types...)
	for _, s := range t.samples.all {
		b.Add(s.pid, s.stack, []int64{s.count, s.sum}[:len(types)], s.labels)
	}
	if t.samples.leftOut > 0 {
		t.messages.Warn("%s left out of the profile: there are more than %d stacks", plural(int(t.samples.leftOut), "event"), maxSamples)
	}
	return t.writeFile(b, len(t.samples.all))
}

func (t *tracer) writeFile(b *profile.Builder, stacks int) error {
	if err := t.profile.write(func(file *os.File) error { return b.Write(file, time.Now().Add(-t.took), t.took) }); err != nil {
		return fmt.Errorf("%s: %w", t.options.pprofFile, err)
	}
	t.messages.Note("wrote %s to %s (go tool pprof %s)", plural(stacks, "stack"), t.options.pprofFile, t.options.pprofFile)
	return nil
}
