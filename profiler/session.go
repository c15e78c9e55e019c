// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/metrics"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/times"
	"go.opentelemetry.io/ebpf-profiler/tracer"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/gousdt/gousdt/internal/symbolname"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// A Sample is a stack at a hit.
type Sample struct {
	Frames []stack.Frame // the innermost first; of each the Function, or else the File
	Event  *trace.Event
	Value  int64
}

// A Profiler runs the OpenTelemetry eBPF profiler for a [Probe] alone: nothing
// is sampled by time. A program with a tracer of its own gives that the Probe.
type Profiler struct {
	probe  *Probe
	tracer *tracer.Tracer
	traces chan *libpf.EbpfTrace
	stop   context.CancelFunc

	opts    StartOptions
	otlp    *sender      // nil if there is none
	current *trace.Event // of the trace that is handled

	mu    sync.Mutex
	files map[libpf.FrameMappingFile]*symbols
}

// often reads stacks more often than the tracer does for what it samples by
// time: it takes some 4,000 of them at a time.
type often struct{ *times.Times }

func (often) TracePollInterval() time.Duration { return 10 * time.Millisecond }

// drained is how long after the probes were detached traces can still come.
const drained = time.Second

// StartOptions say what is done with stacks.
type StartOptions struct {
	// Handler, if set, is called by Run for each stack.
	Handler func(*Sample)
	// OTLP, if set, is the address of a Collector, HOST:PORT, that gets the
	// stacks as OTLP profiles by gRPC without TLS, every few seconds. Native
	// functions are addresses there, with the build ID of their file.
	OTLP string
}

// Start makes a tracer and attaches the Probe. Stacks are handled while Run
// runs. Close frees all that.
func Start(ctx context.Context, probe *Probe, opts *StartOptions) (_ *Profiler, err error) {
	p := &Profiler{probe: probe, opts: *opts, traces: make(chan *libpf.EbpfTrace),
		files: make(map[libpf.FrameMappingFile]*symbols)}
	ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	metrics.Start(noop.Meter{}) // of the tracer itself, which otherwise logs each
	if opts.OTLP != "" {
		if p.otlp, err = sendTo(ctx, opts.OTLP); err != nil {
			return nil, err
		}
	}
	intervals := often{times.New(time.Second, 5*time.Second, time.Minute)}
	p.tracer, err = tracer.NewTracer(ctx, &tracer.Config{
		TraceReporter: p, ExecutableReporter: executables{p}, Intervals: intervals,
		SamplesPerSecond: 1000, ProbabilisticThreshold: tracer.ProbabilisticThresholdMax,
		FilterErrorFrames: true, LoadProbe: true, FrameCacheSize: 1 << 16,
		KernelVersionCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the unwinder: %w", err)
	}
	p.tracer.StartPIDEventProcessor(ctx)
	if err := p.tracer.AttachSchedMonitor(); err != nil {
		return nil, fmt.Errorf("following the ends of processes: %w", err)
	}
	if err := p.tracer.StartMapMonitors(ctx, p.traces); err != nil {
		return nil, fmt.Errorf("reading stacks: %w", err)
	}
	if err := p.tracer.Enable(ctx, probe); err != nil {
		return nil, err
	}
	return p, nil
}

// Run handles stacks until the context ends. Then it detaches the Probe and
// handles what has been sent before. The error says, too, what a Collector did
// not get.
func (p *Profiler) Run(ctx context.Context) error {
	done, detached := ctx.Done(), make(chan error, 1)
	var rest <-chan time.Time
	var err error
	for {
		select {
		case t := <-p.traces:
			p.handle(t)
		case <-p.tracer.Done():
			return errors.New("the unwinder has ended: it could not read its stacks")
		case <-done:
			done = nil
			go func() { detached <- p.probe.Detach() }()
		case err = <-detached:
			rest = time.After(drained)
		case <-rest:
			if p.otlp != nil {
				err = errors.Join(err, p.otlp.finish())
			}
			return err
		}
	}
}

func (p *Profiler) handle(t *libpf.EbpfTrace) {
	if t == nil {
		return
	}
	p.current = p.probe.Match(t)
	p.tracer.HandleTrace(t)
	p.current = nil
}

// Close detaches the Probe and ends the tracer.
func (p *Profiler) Close() error {
	err := p.probe.Close()
	if p.otlp != nil {
		err = errors.Join(err, p.otlp.close())
	}
	p.stop()
	if p.tracer != nil {
		p.tracer.Close()
	}
	for { // the reader of stacks may be waiting to hand one over, and ends then
		select {
		case <-p.traces:
		case <-time.After(2 * often{}.TracePollInterval()):
			return err
		}
	}
}

// ReportTraceEvent is called by the tracer for what is handled.
func (p *Profiler) ReportTraceEvent(t *libpf.Trace, meta *samples.TraceEventMeta) error {
	if p.current == nil {
		return nil
	}
	if p.otlp != nil {
		if err := p.otlp.report(t, meta); err != nil {
			return err
		}
	}
	if p.opts.Handler == nil {
		return nil
	}
	s := &Sample{Event: p.current, Value: meta.Value, Frames: make([]stack.Frame, 0, len(t.Frames))}
	for _, handle := range t.Frames {
		s.Frames = append(s.Frames, p.frame(handle.Value()))
	}
	p.opts.Handler(s)
	return nil
}

// frame names a frame. The tracer leaves the names of native functions to
// others.
func (p *Profiler) frame(f libpf.Frame) stack.Frame {
	out := stack.Frame{Function: f.FunctionName.String(), File: f.SourceFile.String(),
		Address: uint64(f.AddressOrLineno)}
	if !f.Mapping.Valid() {
		return out
	}
	file := f.Mapping.Value().File
	if out.File == "" {
		out.File = file.Value().FileName.String()
	}
	if out.Function == "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		out.Function = p.files[file].name(uint64(f.AddressOrLineno))
	}
	return out
}

// executables reads the symbols of files as the tracer first sees them.
type executables struct{ *Profiler }

func (e executables) ReportExecutable(m *reporter.ExecutableMetadata) {
	read, err := m.Process.OpenMappingFile(m.Mapping)
	if err != nil {
		return // its frames have the name of the file
	}
	defer read.Close()
	file, err := pfelf.NewFile(read, 0, false)
	if err != nil {
		return
	}
	s := &symbols{}
	add := func(symbol libpf.Symbol) bool {
		if symbol.Address != 0 && symbol.Name != "" {
			s.all = append(s.all, symbol)
		}
		return len(s.all) < maxSymbols
	}
	_ = file.VisitSymbols(add)
	_ = file.VisitDynamicSymbols(add)
	slices.SortStableFunc(s.all, func(a, b libpf.Symbol) int {
		return cmp.Compare(a.Address, b.Address)
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.files) < maxFiles {
		e.files[m.MappingFile] = s
	}
}

const (
	// maxSymbols is more than the largest programs have.
	maxSymbols = 1 << 20
	// maxFiles bounds the memory that all of them take together.
	maxFiles = 4096
)

// symbols are the functions of a file by address.
type symbols struct{ all []libpf.Symbol }

// name returns the function at an address of the file, "" if it is not known.
func (s *symbols) name(address uint64) string {
	if s == nil {
		return ""
	}
	n, found := slices.BinarySearchFunc(s.all, address, func(s libpf.Symbol, address uint64) int {
		return cmp.Compare(uint64(s.Address), address)
	})
	if !found {
		n--
	}
	for ; n >= 0; n-- {
		s := &s.all[n]
		if s.Size > 0 && address-uint64(s.Address) >= uint64(s.Size) {
			break
		}
		if s.Size > 0 {
			return symbolname.Readable(string(s.Name))
		}
	}
	return ""
}
