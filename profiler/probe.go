// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/tracer"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// Options select the hits that get a stack, and their values. Nil, or the zero
// value, selects every hit of every process, with the value 1.
type Options struct {
	// Session has the condition (Filter), the names of arguments (Definitions),
	// and in its Events sampling (SampleEvery) and calls between two probes
	// (Spans). The Probe sets Next, ReuseEvents and ArgumentsOnly there.
	Session trace.SessionOptions

	// Watch selects the processes. Attaching per process takes one perf event
	// for each file of a process, which the kernel needs 0.1 s to close.
	Watch watch.Options

	// Interval is the time between scans of all processes, which find those
	// that the kernel did not report. 0 means 5 s.
	Interval time.Duration

	// Value, if set, returns the value of a hit. It is multiplied by the number
	// of hits that the event stands for. Without it the value is the duration
	// in nanoseconds if there are Spans, and otherwise 1.
	Value func(*trace.Event) int64

	// SampleType and SampleUnit are the type and the unit of the values in the
	// tracer's reports. If SampleType is "", they are "duration" and
	// "nanoseconds" if there are Spans and no Value, and otherwise "events" and
	// "count".
	SampleType, SampleUnit string

	// Changed, if set, is called with the probes that were attached and those
	// that could not be.
	Changed func(*watch.Changes[*trace.Attachment])
}

// Stats counts hits and traces.
type Stats struct {
	// Matched is the number of traces with a hit.
	Matched uint64
	// NoStack is the number of hits whose stack the unwinder did not send. They
	// are the first hits of a process that has begun a moment ago, or its ring
	// buffer was full.
	NoStack uint64
	// NoHit is the number of traces without a hit.
	NoHit uint64
	// Lost is the number of hits that were neither sent nor unwound, because
	// the ring buffer of hits was full.
	Lost uint64
}

// A Probe attaches the profiler's unwinder to USDT probes. Make it with [USDT].
type Probe struct {
	opts     Options
	patterns []elfnote.Pattern

	origin  uint16
	program *ebpf.Program
	processes
	session *trace.Session
	watch   *watch.Watch
	stop    context.CancelFunc
	reading context.Context // done when no more hits will come
	running sync.WaitGroup

	texts     procwatch.Texts
	matcher   matcher
	closeOnce sync.Once
	closeErr  error
}

var _ tracer.Probe = (*Probe)(nil)

// USDT returns a Probe for the USDT probes that match any of the patterns. Give
// no patterns with Options.Session.Events.Spans: the pairs have them.
func USDT(opts *Options, patterns ...elfnote.Pattern) *Probe {
	p := &Probe{patterns: patterns}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Session.Events == nil {
		p.opts.Session.Events = &trace.EventOptions{}
	}
	for _, span := range p.opts.Session.Events.Spans {
		patterns, _ := p.opts.Session.Definitions.Patterns(span.Pair) // the session refuses a malformed one
		p.patterns = append(p.patterns, patterns...)
	}
	p.matcher.waiting = make(map[int][]*trace.Event)
	return p
}

func (p *Probe) interval() time.Duration { return cmp.Or(p.opts.Interval, 5*time.Second) }

// unwinder is the name of the profiler's program that unwinds at a hit.
const unwinder = "kprobe__generic"

// Load loads the unwinder and attaches it. Tracer.Enable calls it. A Probe can
// be loaded once. Closing the returned Link closes the Probe.
func (p *Probe) Load(
	ctx context.Context, reg tracer.ProbeRegistrar, probeContext *tracer.ProbeContext,
) (_ link.Link, err error) {
	if p.session != nil {
		return nil, errors.New("the probe was loaded before")
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := p.loadUnwinder(reg, probeContext); err != nil {
		return nil, err
	}
	opts, events := p.opts.Session, *p.opts.Session.Events
	events.Next, events.ReuseEvents, events.ArgumentsOnly = p.program, false, false
	opts.Events = &events
	if p.session, err = trace.New(&opts); err != nil {
		return nil, err
	}
	p.readAll(ctx)
	ctx, p.stop = context.WithCancel(context.Background())
	followed := p.opts.Watch
	followed.Mapped = func(appeared, disappeared []*proc.ProcessFile) {
		for _, pair := range appeared {
			p.note(pair.Process.PID)
			p.texts.Touch(ctx, "", pair.Process.PID, pair.Path)
		}
		if p.opts.Watch.Mapped != nil {
			p.opts.Watch.Mapped(appeared, disappeared)
		}
	}
	p.watch, err = watch.New(&followed, p.opts.Changed, p.session.Part(p.patterns...))
	if err != nil {
		return nil, err
	}
	reading, ended := context.WithCancel(ctx)
	p.reading = reading
	p.running.Go(func() {
		defer ended()
		defer p.matcher.end()
		for event, err := range p.session.Events(ctx) {
			if err == nil {
				p.matcher.add(event)
			}
		}
	})
	if err := p.watch.Sync(ctx, 0); err != nil {
		return nil, err
	}
	p.running.Go(func() { _ = p.watch.Run(ctx, p.interval()) })
	return attached{probe: p}, nil
}

func (p *Probe) loadUnwinder(reg tracer.ProbeRegistrar, c *tracer.ProbeContext) (err error) {
	meta := &samples.TypeMetadata{SampleType: p.opts.SampleType, SampleUnit: p.opts.SampleUnit}
	if meta.SampleType == "" {
		meta.SampleType, meta.SampleUnit = "events", "count"
		if len(p.opts.Session.Events.Spans) > 0 && p.opts.Value == nil {
			meta.SampleType, meta.SampleUnit = "duration", "nanoseconds"
		}
	}
	if p.origin, err = reg.Register(meta); err != nil {
		return fmt.Errorf("registering the origin of samples: %w", err)
	}
	spec, err := c.CollectionSpecWith(nil, []string{unwinder}, []string{"origin_id_probe"})
	if err != nil {
		return err
	}
	if err := spec.Variables["origin_id_probe"].Set(p.origin); err != nil {
		return err
	}
	if err := p.find(spec.Programs[unwinder].Instructions,
		func() error { return c.RewriteMaps(spec, nil) }); err != nil {
		return err
	}
	loaded := make(map[string]*ebpf.Program)
	if err := c.LoadProbeUnwinders(spec, loaded, []tracer.ProgLoaderHelper{
		{Name: unwinder, NoTailCallTarget: true, Enable: true}}, 0); err != nil {
		return err
	}
	if p.program = loaded[unwinder]; p.program == nil {
		return fmt.Errorf("the profiler has no program %s", unwinder)
	}
	return nil
}

// Match sets the value of a trace, and returns its hit. It returns nil if the
// trace is not of this Probe, or has no hit, see [Stats].NoHit. It must be
// called for each trace before Tracer.HandleTrace.
func (p *Probe) Match(t *libpf.EbpfTrace) *trace.Event {
	if p.origin == 0 || t.Origin != p.origin {
		return nil
	}
	event := p.matcher.match(p.reading, int(t.TID), time.Duration(t.KTime), p.session)
	if event == nil {
		return nil
	}
	t.Value = int64(max(event.Weight, 1))
	switch {
	case p.opts.Value != nil:
		t.Value *= p.opts.Value(event)
	case event.Start != nil:
		t.Value *= int64(event.Duration)
	}
	return event
}

// Watch returns the watch of the processes. Its Sync attaches to a new process
// at once. It is nil before Load.
func (p *Probe) Watch() *watch.Watch { return p.watch }

// Stats returns the counts so far. After Close they include all hits without a
// stack.
func (p *Probe) Stats() (s Stats, err error) {
	s = p.matcher.counted()
	if p.session != nil {
		var losses trace.Losses
		losses, err = p.session.Losses()
		s.Lost = losses.Events
	}
	return s, err
}

// Detach ends the hits. Traces of earlier hits can still be matched.
func (p *Probe) Detach() error {
	if p.watch == nil {
		return nil
	}
	return errors.Join(p.watch.Close(), p.session.Detach())
}

// Close detaches the unwinder and frees the Probe.
func (p *Probe) Close() error {
	p.closeOnce.Do(func() {
		p.closeErr = p.Detach()
		if p.stop != nil {
			p.stop()
		}
		p.running.Wait()
		if p.session != nil {
			p.closeErr = errors.Join(p.closeErr, p.session.Close())
		}
		if p.program != nil {
			p.closeErr = errors.Join(p.closeErr, p.program.Close())
		}
	})
	return p.closeErr
}

// attached makes a Probe the link.Link that a tracer requires. The embedded
// Link is nil: it only has the unexported method of that interface. No single
// kernel link stands for processes that come and go.
type attached struct {
	link.Link
	probe *Probe
}

func (a attached) Update(*ebpf.Program) error { return notOfOne("updated") }
func (a attached) Pin(string) error           { return notOfOne("pinned") }
func (a attached) Unpin() error               { return notOfOne("unpinned") }
func (a attached) Info() (*link.Info, error)  { return nil, notOfOne("described") }
func (a attached) Detach() error              { return a.probe.Detach() }
func (a attached) Close() error               { return a.probe.Close() }

func notOfOne(done string) error {
	return fmt.Errorf("probes of processes that come and go cannot be %s as one link: %w",
		done, link.ErrNotSupported)
}
