// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/usdt"
)

// interval is how often all processes are scanned. What the kernel tells of
// is seen at once.
const interval = 5 * time.Second

// tracer is the BPF side, attached to whatever processes have the probes.
type tracer struct {
	heapObjects
	manager *usdt.Manager
	watch   *usdt.Watch
}

func newTracer(
	o *options, symbolizer *stack.Symbolizer, messages io.Writer,
) (_ *tracer, err error) {
	spec, err := loadHeap()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[heapVarPeriod].Set(o.period); err != nil {
		return nil, err
	}
	t := new(tracer)
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.manager, err = usdt.NewManager(spec, nil); err != nil {
		return nil, err
	}
	if err := t.manager.LoadAndAssign(&t.heapObjects, nil); err != nil {
		return nil, err
	}

	watchOptions := &usdt.WatchOptions{
		Mapped: remember(symbolizer),
	}
	if len(o.pids) > 0 {
		watchOptions.PerProcess = true // others that map the same files are left alone
		watchOptions.Filter = func(p proc.Process) bool {
			return slices.Contains(o.pids, p.PID)
		}
	}
	if t.watch, err = t.manager.Watch(watchOptions, report(messages),
		// First, so that what is seen to be allocated is seen to be freed.
		usdt.WatchProgram{Program: t.OnFree,
			Patterns: []elfnote.Pattern{elfnote.Exact("otel_memory", "free")}},
		usdt.WatchProgram{Program: t.OnAlloc,
			Patterns: []elfnote.Pattern{elfnote.Exact("otel_memory", "alloc")}},
	); err != nil {
		return nil, err
	}
	if err := t.watch.SyncAll(); err != nil {
		return nil, err
	}
	if len(t.watch.Links()) == 0 {
		fmt.Fprintln(messages, "no process has the probes yet: waiting for one")
	}
	return t, nil
}

// remember returns what is told of processes: a process that has ended can
// still be asked for the functions on its stacks.
func remember(symbolizer *stack.Symbolizer) func(_, _ []*proc.ProcessFile) {
	return func(appeared, _ []*proc.ProcessFile) {
		for _, pair := range appeared {
			symbolizer.Remember(pair.Process.PID)
		}
	}
}

// run keeps the programs attached as processes come and go, until the context
// ends. Then it detaches them.
func (t *tracer) run(ctx context.Context) error {
	return errors.Join(t.watch.Run(ctx, interval), t.watch.Close())
}

func (t *tracer) close() {
	if t.watch != nil {
		t.watch.Close()
	}
	if t.manager != nil {
		t.manager.Close()
	}
	t.heapObjects.Close()
}

// report tells what has been attached, and what went wrong.
func report(messages io.Writer) func(*usdt.WatchChanges) {
	return func(changes *usdt.WatchChanges) {
		for _, lnk := range changes.Attached {
			whose := "every process"
			if process := lnk.Process(); process.PID != 0 {
				whose = "process " + process.String()
			}
			selection := lnk.Selection()
			for _, site := range selection.Sites() {
				fmt.Fprintf(messages, "attached to %s:%s in %s of %s\n", site.Provider, site.Name,
					selection.Name(), whose)
				break // its other sites are of the same probe
			}
		}
		for _, err := range changes.Errors {
			fmt.Fprintln(messages, err)
		}
	}
}
