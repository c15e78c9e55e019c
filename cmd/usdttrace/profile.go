// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// profileFile is a file that stacks are written to.
type profileFile struct {
	flag, path string
	write      func(*stack.Profile, io.Writer) error
	use        string // what to do with it
	file       *outputFile
}

// profileFiles returns the files that are asked for.
func (o *options) profileFiles() []*profileFile {
	var files []*profileFile
	add := func(flag, path, use string, write func(*stack.Profile, io.Writer) error) {
		if path != "" {
			files = append(files, &profileFile{flag: flag, path: path, use: use, write: write})
		}
	}
	add("pprof", o.pprofFile, "go tool pprof "+o.pprofFile, (*stack.Profile).Write)
	add("folded", o.foldedFile, "for tools that draw flame graphs", (*stack.Profile).WriteFolded)
	add("flamegraph", o.flamegraphFile, "open it in a browser", func(p *stack.Profile, w io.Writer) error {
		return p.WriteFlameGraph(w, o.profileTitle())
	})
	return files
}

// profiles reports whether stacks are written to files.
func (o *options) profiles() bool { return len(o.profileFiles()) > 0 }

// profileTitle says what the stacks are of.
func (o *options) profileTitle() string {
	var words []string
	switch {
	case o.latency != nil:
		words = append(words, o.latencyTitle())
	default:
		for _, p := range o.patterns {
			words = append(words, p.String())
		}
	}
	if o.sum != "" {
		words = append([]string{"sum of " + o.sum + " of"}, words...)
	}
	for _, file := range o.files {
		words = append(words, filepath.Base(file))
	}
	if o.pid != 0 {
		words = append(words, fmt.Sprintf("process %d", o.pid))
	}
	title := strings.Join(words, " ")
	switch {
	case o.every > 1:
		title += fmt.Sprintf(", from one hit in %d", o.every)
	case o.rate > 0:
		title += fmt.Sprintf(", from %d hits a second on each processor", o.rate)
	}
	return title
}

// openProfiles opens the files: a wrong path is an error before anything is
// watched.
func (t *tracer) openProfiles() (err error) {
	t.profiles = t.options.profileFiles()
	for _, p := range t.profiles {
		if p.file, err = createFile(p.path); err != nil {
			return fmt.Errorf("--%s: %w", p.flag, err)
		}
	}
	return nil
}

// abandonProfiles closes the files, and removes those that are not written.
func (t *tracer) abandonProfiles() {
	for _, p := range t.profiles {
		if p.file != nil {
			p.file.abandon()
		}
	}
}

// newProfile returns a profile of hits, and of what is added up beside them
// unless that is nil.
func (t *tracer) newProfile(sum *stack.ValueType) *stack.Profile {
	types := []stack.ValueType{{Type: "hits", Unit: "count"}}
	if sum != nil {
		types = append(types, *sum)
	}
	p := stack.NewProfile(t.stacks, types...)
	p.ByProcess = slices.Contains(t.options.by, "pid")
	return p
}

// profileOf returns the profile of rows that the kernel has counted.
func (t *tracer) profileOf(a *aggregation, s *trace.Snapshot) *stack.Profile {
	var sum *stack.ValueType
	switch {
	case a.duration:
		sum = &stack.ValueType{Type: "latency", Unit: "nanoseconds"}
	case a.Sum:
		sum = &stack.ValueType{Type: a.Value, Unit: "count"}
	}
	t.stacks.Refresh()
	p := t.newProfile(sum)
	for i := range s.Rows {
		row := &s.Rows[i]
		pid, _ := stackOf(s, row)
		labels := make(map[string]string)
		for n, key := range row.Keys {
			if s.By[n] != "stack" {
				labels[s.By[n]] = cut.Text(key.String(), maxText)
			}
		}
		p.Add(context.Background(), pid, row.Stack,
			[]int64{int64(row.Count), profileSum(row.Sum)}, labels)
	}
	if other := &s.Other; other.Count > 0 { // of more stacks than --max-keys
		p.Add(context.Background(), 0, nil, []int64{int64(other.Count), profileSum(other.Sum)},
			map[string]string{"stack": otherRow})
	}
	return p
}

// profileSum returns a sum as profiles have numbers: the greatest one instead
// of what is greater.
func profileSum(sum trace.Value) int64 {
	switch f := sum.Float(); {
	case sum.Kind() != trace.Signed && f >= math.MaxInt64:
		return math.MaxInt64
	case sum.Kind() == trace.Float && f <= math.MinInt64:
		return math.MinInt64
	case sum.Kind() == trace.Float:
		return int64(f)
	}
	return sum.Int()
}

// writeProfiles writes a profile to the files.
func (t *tracer) writeProfiles(p *stack.Profile) error {
	if t.options.samples() {
		p.Period, p.PeriodType = t.samples.period(), stack.ValueType{Type: "hits", Unit: "count"}
	}
	p.Start, p.Duration = t.start, t.took
	for _, f := range t.profiles {
		if err := f.file.write(func(file *os.File) error { return f.write(p, file) }); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		t.messages.Note("wrote %s to %s (%s)", plural(p.Len(), "stack"), f.path, f.use)
	}
	return nil
}
