// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/metrics"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/times"
	"go.opentelemetry.io/ebpf-profiler/tracer"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/language/symbolname"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// A Sample is a stack at a hit.
type Sample struct {
	Frames []stack.Frame // the innermost first; of each the Function, or else the File
	Event  *trace.Event
	Value  int64
}

// A Profiler runs the OpenTelemetry eBPF profiler for a [Probe] alone, without
// sampling by time. A program with its own tracer needs no Profiler: it enables
// the Probe there.
type Profiler struct {
	probe  *Probe
	tracer *tracer.Tracer
	traces chan *libpf.EbpfTrace
	stop   context.CancelFunc

	opts    StartOptions
	otlp    *sender      // nil if there is none
	current *trace.Event // of the trace that is handled

	mu    sync.Mutex
	files functionsOf
}

// often makes the tracer read stacks more often than for sampling by time: it
// takes some 4,000 of them at a time. It also looks for processes more often.
type often struct{ *times.Times }

func (often) TracePollInterval() time.Duration { return 10 * time.Millisecond }

func (often) MonitorInterval() time.Duration { return monitorInterval }

// drained is a time without traces, after the probes were detached, that means
// that all traces have come.
const drained = 500 * time.Millisecond

// StartOptions are the receivers of stacks. Nil is not allowed.
type StartOptions struct {
	// Handler, if set, is called by Run for each stack.
	Handler func(*Sample)
	// OTLP, if set, is the address of a Collector, HOST:PORT, that gets the
	// stacks as OTLP profiles by gRPC without TLS, every few seconds. Native
	// functions are addresses there, with the build ID of their file.
	OTLP string
}

// startMetrics has the tracers not log each metric of their own. It may be
// called only before there are any.
var startMetrics = sync.OnceFunc(func() { metrics.Start(noop.Meter{}) })

// Start makes a tracer and attaches the Probe. Call Run to handle the stacks,
// and then Close.
func Start(ctx context.Context, probe *Probe, opts *StartOptions) (_ *Profiler, err error) {
	p := &Profiler{probe: probe, opts: *opts, traces: make(chan *libpf.EbpfTrace)}
	ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	startMetrics()
	if opts.OTLP != "" {
		if p.otlp, err = sendTo(ctx, opts.OTLP); err != nil {
			return nil, err
		}
	}
	intervals := often{times.New(time.Second, 5*time.Second, time.Minute)}
	err = analysed(func() (err error) {
		p.tracer, err = tracer.NewTracer(ctx, &tracer.Config{
			TraceReporter: p, ExecutableReporter: executables{p}, Intervals: intervals,
			SamplesPerSecond: 1000, ProbabilisticThreshold: tracer.ProbabilisticThresholdMax,
			FilterErrorFrames: true, LoadProbe: true, FrameCacheSize: 1 << 16,
			KernelVersionCheck: true,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("starting the unwinder (needs root with CAP_SYS_RESOURCE): %w", err)
	}
	p.tracer.StartPIDEventProcessor(ctx)
	if err := p.tracer.AttachSchedMonitor(); err != nil {
		return nil, fmt.Errorf("following the ends of processes (needs tracefs: "+
			"mount -t tracefs nodev /sys/kernel/tracing): %w", err)
	}
	if err := p.tracer.StartMapMonitors(ctx, p.traces); err != nil {
		return nil, fmt.Errorf("reading stacks: %w", err)
	}
	if err := p.tracer.Enable(ctx, probe); err != nil {
		return nil, err
	}
	return p, nil
}

// analysed tries again what fails where the unwinder analyses the kernel. Its
// program reads memory when this process enters a system call, and two threads
// that enter one at the same moment overwrite each other's request: "bad
// address". Its errors are texts.
func analysed(start func() error) (err error) {
	const tries = 5
	for range tries {
		err = start()
		if err == nil || !strings.Contains(err.Error(), "system analysis") {
			break
		}
	}
	return err
}

// Run handles stacks until the context ends. Then it detaches the Probe and
// handles the stacks of earlier hits. The error also says how many stacks the
// Collector did not get.
func (p *Profiler) Run(ctx context.Context) error {
	done, detached := ctx.Done(), make(chan error, 1)
	var rest <-chan time.Time
	var err error
	for {
		select {
		case t := <-p.traces:
			if t == nil {
				continue
			}
			p.current = p.probe.Match(t)
			p.tracer.HandleTrace(t)
			p.current = nil
			if rest != nil {
				rest = time.After(drained)
			}
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
	for { // the reader of stacks may be blocked sending one
		select {
		case <-p.traces:
		case <-time.After(2 * often{}.TracePollInterval()):
			return err
		}
	}
}

// ReportTraceEvent is called by the tracer for each trace that it handles.
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

// frame returns a frame with its name. The tracer does not name native
// functions.
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
		out.Function = symbolname.Readable(p.files.at(file, uint64(f.AddressOrLineno)))
	}
	return out
}

// executables reads the symbols of files when the tracer first sees them.
type executables struct{ *Profiler }

func (e executables) ReportExecutable(m *reporter.ExecutableMetadata) {
	read, err := m.Process.OpenMappingFile(m.Mapping)
	if err != nil {
		return // its frames have the name of the file
	}
	// What comes later is for later stacks.
	deadline.One(context.Background(), deadline.Tables, func() {
		defer read.Close()
		e.read(m.MappingFile, read)
	}, nil)
}

func (e executables) read(of libpf.FrameMappingFile, read io.ReaderAt) {
	file, err := debuginfo.New(read)
	if err != nil {
		return
	}
	defer file.Close()
	functions, _ := file.Functions() // a malformed table has none
	if debug, err := file.FindDebugFile(""); err == nil {
		more, _ := debug.Functions()
		functions.Append(more)
		_ = debug.Close() // it was only read
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files.add(of, functions)
}

// functionsOf has the functions of files. Those that no frame had for longest
// are dropped first.
type functionsOf struct {
	known map[libpf.FrameMappingFile]*usedFunctions
	size  int    // in memory, in bytes
	uses  uint64 // of all
}

type usedFunctions struct {
	*debuginfo.Functions
	used uint64 // the number of the last use
}

const (
	// maxSize bounds the memory for the functions of all files, in bytes.
	maxSize = 1 << 30
	// fileSize is what a file without functions takes of it.
	fileSize = 1 << 10
)

// add adds the functions of a file, unless it has some.
func (f *functionsOf) add(file libpf.FrameMappingFile, functions *debuginfo.Functions) {
	if f.known == nil {
		f.known = make(map[libpf.FrameMappingFile]*usedFunctions)
	}
	if f.known[file] != nil {
		return
	}
	f.uses++
	f.known[file] = &usedFunctions{functions, f.uses}
	f.size += functions.Size() + fileSize
	for f.size > maxSize {
		longest := file
		for other, of := range f.known {
			if known := f.known[longest]; known == nil || of.used < known.used {
				longest = other
			}
		}
		f.size -= f.known[longest].Size() + fileSize
		delete(f.known, longest)
	}
}

// at returns the name of the function at an address of a file, "" if there is
// none.
func (f *functionsOf) at(file libpf.FrameMappingFile, address uint64) string {
	known := f.known[file]
	if known == nil {
		return ""
	}
	f.uses++
	known.used = f.uses
	function, _ := known.At(address)
	return function.Name
}
