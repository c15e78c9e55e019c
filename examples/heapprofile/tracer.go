// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// interval is how often all processes are looked at. What the kernel tells of is seen at once.
const interval = 5 * time.Second

// tracer is the BPF side, attached to whatever processes have the probes.
type tracer struct {
	heapObjects
	manager *usdt.Manager
	watches []*usdt.Watch
}

func newTracer(o *options, mappings *mappings, messages io.Writer) (t *tracer, err error) {
	spec, err := loadHeap()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[heapVarPeriod].Set(o.period); err != nil {
		return nil, err
	}
	t = new(tracer)
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.manager, err = usdt.NewManager(spec, nil); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&t.heapObjects, t.manager.CollectionOptions()); err != nil {
		return nil, err
	}

	watchOptions := &usdt.WatchOptions{
		Proc: proc.Options{
			Cache:   proc.NewCache(nil), // files are read once for both watches
			Handler: mappings.follow,
		},
		Changed: report(messages),
	}
	if len(o.pids) > 0 {
		watchOptions.PerProcess = true // others that map the same files are left alone
		watchOptions.Proc.Filter = func(p proc.Process) bool { return slices.Contains(o.pids, p.PID) }
	}
	// Those that free come first: what is seen to be allocated must be seen to be freed.
	if err := t.watch(t.OnFree, "otel_memory:free", watchOptions); err != nil {
		return nil, err
	}
	if err := t.watch(t.OnAlloc, "otel_memory:alloc", watchOptions); err != nil {
		return nil, err
	}
	if len(t.watches[1].Attachments()) == 0 {
		fmt.Fprintln(messages, "no process has the probes yet: waiting for one")
	}
	return t, nil
}

// watch attaches a program wherever the probe is now.
func (t *tracer) watch(program *ebpf.Program, probe string, o *usdt.WatchOptions) error {
	pattern, err := elfnote.ParsePattern(probe)
	if err != nil {
		return err
	}
	w, err := t.manager.Watch(program, []elfnote.Pattern{pattern}, o)
	if err != nil {
		return err
	}
	t.watches = append(t.watches, w)
	return w.SyncAll()
}

// run keeps the programs attached as processes come and go, until the context ends. Then it detaches them.
func (t *tracer) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(t.watches))
	var running sync.WaitGroup
	for i, w := range t.watches {
		running.Go(func() {
			errs[i] = w.Run(ctx, interval)
			stop() // one alone makes no profile
		})
	}
	running.Wait()
	for _, w := range t.watches {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}

func (t *tracer) close() {
	for _, w := range t.watches {
		w.Close()
	}
	if t.manager != nil {
		t.manager.Close()
	}
	t.heapObjects.Close()
}

// report tells what has been attached, and what went wrong.
func report(messages io.Writer) func(*usdt.WatchChanges) {
	var mu sync.Mutex // each watch reports for itself
	return func(changes *usdt.WatchChanges) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range changes.Attached {
			whose := "every process"
			if a.Process.PID != 0 {
				whose = "process " + a.Process.String()
			}
			site := a.Link.Site(0)
			fmt.Fprintf(messages, "attached to %s:%s in %s of %s\n", site.Provider, site.Name, a.Path, whose)
		}
		for _, err := range changes.Errors {
			fmt.Fprintln(messages, err)
		}
	}
}
