// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/trace"
)

// open makes the session.
func (t *tracer) open() error {
	// Needed before 5.11. Later kernels do without it, and so a sandbox that
	// denies it does not matter there.
	memlock := rlimit.RemoveMemlock()
	o := t.options
	var err error
	t.asked = o.aggregations()
	opts := &trace.SessionOptions{
		Mode: o.mode, Filter: o.filter(), Spans: o.spans, RingSize: o.buffer, Statistics: o.stats,
		StartStacks: o.starts,
		ReuseEvents: true, // each is printed, or added to a sample, before the next comes
	}
	if opts.Definitions, err = commandline.Definitions(o.names, t.messages.Warn); err != nil {
		return err
	}
	t.targets.definitions = opts.Definitions
	if opts.Definitions != nil && !o.aggregates() {
		opts.Texts = maxKnownText
	}
	for _, c := range o.captures {
		opts.Captures = append(opts.Captures, c.Capture)
	}
	if o.eventStacks() || o.fromEvents() {
		opts.StackDepth = maxStack
	} else {
		opts.Delay = delay
	}
	for _, a := range t.asked {
		if a.aggregator != nil {
			opts.Aggregators = append(opts.Aggregators, a.aggregator)
		}
	}
	opts.NoEvents = o.aggregates() && !o.fromEvents()
	if o.chromeTrace != "" && o.latency != nil {
		opts.Spans = append(opts.Spans, *o.latency)
	}
	if o.follow {
		opts.Family = o.pid
	}
	opts.ShareRing = o.all
	opts.SampleEvery, opts.SampleRate = o.every, o.rate
	if o.unwind > 0 {
		opts.StackCopy = o.unwind
		if opts.RingSize == 0 {
			opts.RingSize = unwindBuffer
		}
	}
	byContainer, ofContainer := slices.Contains(o.by, "container"), o.comparesContainers(opts)
	if byContainer || ofContainer || o.json && !o.aggregates() {
		switch t.containers, err = container.Watch(""); {
		case err != nil && byContainer:
			return fmt.Errorf("--by container: %w", err)
		case err != nil && ofContainer:
			return fmt.Errorf("--where: %w", err)
		case err == nil && t.containers.Err() != nil && (byContainer || ofContainer):
			t.messages.Warn("containers that end soon may have no name: %v", t.containers.Err())
		}
		opts.Containers, opts.CgroupIDs = t.containers, o.json && t.containers != nil &&
			!o.aggregates()
	}
	if t.session, err = trace.New(opts); err != nil {
		// Who merely lacks the privilege is told so by the session.
		if memlock != nil && !errors.Is(memlock, os.ErrPermission) {
			t.messages.Warn("cannot lift the limit on locked memory, which Linux before 5.11 needs "+
				"(raise it by ulimit -l, or let prlimit64 through): %v", memlock)
		}
		return t.named(err)
	}
	return nil
}

// comparesContainers reports whether --where is about containers: without them
// it cannot be made. A text with that word, such as the name of a thread, can.
func (o *options) comparesContainers(opts *trace.SessionOptions) bool {
	return strings.Contains(o.where, "container") && opts.Validate() != nil
}

// delay is what nobody sees, and spares the traced program waking this one up
// at each hit. With stacks, there is none: the process has to be there while
// its addresses are named.
const delay = 20 * time.Millisecond
