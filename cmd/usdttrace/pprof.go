// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
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
	case a.Functions != 0:
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
	file, err := os.Create(t.options.pprofFile)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Write(file, time.Now().Add(-t.took), t.took), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", t.options.pprofFile, err)
	}
	t.messages.warn("wrote %s to %s (go tool pprof %s)", plural(len(s.Rows), "stack"), t.options.pprofFile, t.options.pprofFile)
	return nil
}
