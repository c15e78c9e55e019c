// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/gousdt/gousdt/profiler"
	"github.com/gousdt/gousdt/stack"
)

// runMemory writes a profile of allocations and of what is live of them.
func runMemory(ctx context.Context, o *options, messages io.Writer) error {
	opts, _, err := o.probe(messages)
	if err != nil {
		return err
	}
	memory := profiler.NewMemory(opts)
	defer memory.Close()
	start := time.Now()
	running, err := memory.Start(ctx)
	if err != nil {
		return err
	}
	defer running.Close()
	err = o.collect(ctx, running)
	if o.attached.Load() == 0 {
		return errors.Join(err, o.nothing())
	}
	p := stack.NewProfile(nil,
		stack.ValueType{Type: "alloc_objects", Unit: "count"},
		stack.ValueType{Type: "alloc_space", Unit: "bytes"},
		stack.ValueType{Type: "inuse_objects", Unit: "count"},
		stack.ValueType{Type: "inuse_space", Unit: "bytes"})
	p.Start, p.Duration = start, time.Since(start)
	p.PeriodType = stack.ValueType{Type: "space", Unit: "bytes"}
	lost, err2 := memory.Profile(func(site *profiler.MemorySite) {
		labels := map[string]string(nil)
		if o.byProcess {
			labels = map[string]string{"process": site.Process}
		}
		p.AddFrames(site.PID, site.Frames, []int64{site.Allocs, site.AllocBytes,
			site.Allocs - site.Frees, site.AllocBytes - site.FreeBytes}, labels)
	})
	if lost > 0 {
		io.WriteString(messages, "usdtprofile: hits were lost: what is live is too much\n")
	}
	return errors.Join(err, err2, o.tell(messages, memory.Probe()),
		write(p, o.output, strings.TrimSpace("memory "+o.where)))
}
