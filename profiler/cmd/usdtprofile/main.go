// SPDX-License-Identifier: BSD-2-Clause

// Command usdtprofile shows the stacks at USDT probes, with the functions of
// Python, Java, Ruby and other runtimes, by the unwinder of the OpenTelemetry
// eBPF profiler.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/ebpf-profiler/log"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/profiler"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

//go:embed usage.txt
var usage string

// options are the command line.
type options struct {
	all             bool
	pids            []int
	output, where   string
	value, otlp     string
	slow, duration  time.Duration
	every           int
	memory          bool
	byProcess, span bool
	names           []string
	patterns        []string

	attached atomic.Int64 // files in which probes were found
	without  atomic.Int64 // stacks whose probe does not have the argument of --value
}

func main() {
	o, err := parse(os.Args[1:])
	var answer commandline.Answer
	if errors.As(err, &answer) {
		fmt.Print(answer)
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "usdtprofile: %v (usdtprofile -h shows how to use it)\n", err)
		os.Exit(2)
	}
	log.SetLevel(slog.LevelWarn)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "usdtprofile: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	var flags commandline.Flags
	flags.Switch(&o.all, "a", "all")
	flags.List(func(s string) error {
		pids, err := commandline.ParsePIDs(s)
		o.pids = append(o.pids, pids...)
		return err
	}, "p", "pid")
	flags.Text(&o.output, "o", "output")
	flags.Time(&o.duration, "duration")
	flags.Instead("no such flag: --duration is meant", "for")
	flags.Instead("no such flag: -p takes several processes, as -p 12,13 or a name; "+
		"-a --where 'comm == \"NAME\"' has those that start later, too", "f", "follow")
	flags.Once(&o.where, "where")
	flags.Once(&o.value, "value")
	flags.Func(func(s string) (err error) {
		o.span = true
		o.slow, err = commandline.ParseLeast(s)
		return err
	}, "slow")
	flags.Func(func(s string) (err error) {
		if o.every, err = strconv.Atoi(s); err != nil || o.every < 1 {
			return errors.New("want a number from 1 on")
		}
		return nil
	}, "every")
	flags.Switch(&o.memory, "memory")
	flags.Text(&o.otlp, "otlp")
	flags.List(func(s string) error { o.names = append(o.names, s); return nil }, "names")
	flags.Switch(&o.byProcess, "by-process")
	flags.Answer(func() string { return usage }, "h", "help")
	flags.Answer(func() string { return commandline.Version("usdtprofile") }, "version")
	operands, err := flags.Parse(args)
	o.patterns = operands
	switch {
	case err != nil:
		return nil, err
	case o.all == (len(o.pids) > 0):
		return nil, errors.New("give -a for all processes, or -p with some")
	case o.output == "" && o.otlp == "":
		return nil, errors.New("give -o with a file to write, or --otlp")
	case o.memory && (len(operands) > 0 || o.span || o.value != "" || o.every > 0 || o.otlp != ""):
		return nil, errors.New("--memory has its own probes and values: it goes with --where, -o " +
			"and --duration")
	case !o.memory && len(operands) == 0:
		return nil, errors.New("give a pattern of probes, such as python:gc__start")
	case o.span && (len(operands) > 1 || o.value != ""):
		return nil, errors.New("--slow takes one pair of probes, and adds up their times")
	}
	return o, nil
}

// probe returns the options of the Probe, and the patterns.
func (o *options) probe(messages io.Writer) (*profiler.Options, []elfnote.Pattern, error) {
	definitions, err := commandline.Definitions(o.names, func(format string, args ...any) {
		fmt.Fprintf(messages, "usdtprofile: "+format+"\n", args...)
	})
	if err != nil {
		return nil, nil, err
	}
	opts := &profiler.Options{Session: trace.SessionOptions{
		Filter: o.where, Definitions: (*trace.Definitions)(definitions),
		Events: &trace.EventOptions{SampleEvery: o.every, Delay: 50 * time.Millisecond,
			RingSize: 32 << 20},
	}}
	opts.Changed = func(changes *watch.Changes[*trace.Attachment]) {
		o.attached.Add(int64(len(changes.Attached)))
		for _, err := range changes.Errors {
			fmt.Fprintf(messages, "usdtprofile: %v\n", err)
		}
	}
	if len(o.pids) > 0 {
		opts.Watch.PerProcess = true
		opts.Watch.Filter = func(p proc.Process) bool { return slices.Contains(o.pids, p.PID) }
	}
	if o.span {
		if _, err := opts.Session.Definitions.Patterns(o.patterns[0]); err != nil {
			return nil, nil, err
		}
		opts.Session.Events.Spans = []trace.Latency{{Pair: o.patterns[0]}}
		slow := fmt.Sprintf("duration >= %dns", o.slow.Nanoseconds())
		if opts.Session.Filter != "" {
			slow += " && (" + opts.Session.Filter + ")"
		}
		opts.Session.Filter = slow
		return opts, nil, nil
	}
	if o.value != "" {
		opts.Value = o.argument
		opts.SampleType, opts.SampleUnit = o.value, "units"
	}
	var patterns []elfnote.Pattern
	for _, s := range o.patterns {
		pattern, err := elfnote.ParsePattern(s)
		if err != nil {
			return nil, nil, err
		}
		patterns = append(patterns, pattern)
	}
	return opts, patterns, nil
}

// argument returns the argument of a hit that --value names, by its name or its
// number, and counts the hits that do not have it as an integer.
func (o *options) argument(e *trace.Event) int64 {
	for i, v := range e.Args {
		is := o.value == e.Site.Argument(i).Name || o.value == fmt.Sprintf("arg%d", i)
		isInt := v.Kind() == trace.Signed || v.Kind() == trace.Unsigned && v.Int() >= 0
		if is && v.IsPresent() && isInt {
			return v.Int()
		}
	}
	o.without.Add(1)
	return 0
}

// run writes a profile.
func run(ctx context.Context, o *options, messages io.Writer) error {
	for _, pid := range o.pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no process %d", pid)
		}
	}
	var output *commandline.Output
	if o.output != "" { // rather now than when all has been collected
		var err error
		if output, err = commandline.CreateOutput(o.output); err != nil {
			return err
		}
		defer output.Abandon()
	}
	opts, patterns, err := o.probe(messages)
	if err != nil {
		return err
	}
	kinds, title := []profile.ValueType{{Type: "hits", Unit: "count"}}, strings.Join(o.patterns, " ")
	switch {
	case o.memory:
		kinds = []profile.ValueType{{Type: "alloc_objects", Unit: "count"},
			{Type: "alloc_space", Unit: "bytes"}, {Type: "inuse_objects", Unit: "count"},
			{Type: "inuse_space", Unit: "bytes"}}
		title = strings.TrimSpace("memory " + o.where)
	case o.span:
		kinds[0] = profile.ValueType{Type: "time", Unit: "nanoseconds"}
	case o.value != "":
		kinds[0] = profile.ValueType{Type: o.value, Unit: "units"}
	}
	p := stack.NewProfile(nil, kinds...)
	p.Start = time.Now()
	var probe *profiler.Probe
	var running *profiler.Profiler
	var memory *profiler.Memory
	if o.memory {
		memory = profiler.NewMemory(opts)
		defer memory.Close()
		probe = memory.Probe()
		running, err = memory.Start(ctx)
	} else {
		probe = profiler.USDT(opts, patterns...)
		running, err = profiler.Start(ctx, probe, &profiler.StartOptions{OTLP: o.otlp,
			Handler: func(s *profiler.Sample) {
				p.AddFrames(s.Event.PID, s.Frames, []int64{s.Value},
					o.labels(fmt.Sprintf("%s (%d)", s.Event.Command, s.Event.PID)))
			}})
	}
	if err != nil {
		return err
	}
	defer running.Close()
	fmt.Fprintln(messages, "usdtprofile: collecting stacks; end with Ctrl-C")
	err = o.collect(ctx, running, messages)
	p.Duration = time.Since(p.Start)
	if o.attached.Load() == 0 {
		return errors.Join(err, o.nothing())
	}
	if o.memory {
		p.PeriodType = profile.ValueType{Type: "space", Unit: "bytes"}
		lost, failed := memory.Profile(func(site *profiler.MemorySite) {
			p.AddFrames(site.PID, site.Frames, []int64{site.Allocs, site.AllocBytes,
				site.Allocs - site.Frees, site.AllocBytes - site.FreeBytes}, o.labels(site.Process))
		})
		err = errors.Join(err, failed)
		for _, missing := range missingIn(lost) {
			fmt.Fprintln(messages, "usdtprofile:", missing)
		}
	}
	return errors.Join(err, o.tell(messages, probe), write(p, output, o.output, title))
}

// missingIn says what is missing in the numbers of --memory.
func missingIn(lost profiler.MemoryLosses) (all []string) {
	if lost.Frees > 0 {
		all = append(all, fmt.Sprintf("%d frees were lost: inuse_space and inuse_objects are too "+
			"much; sample less often in the allocator", lost.Frees))
	}
	if lost.NoRoom > 0 {
		all = append(all, fmt.Sprintf("%d allocations of containers or users that have very many count "+
			"as freed: inuse_space and inuse_objects are too little for these; "+
			"sample less often in the allocator", lost.NoRoom))
	}
	if n := lost.Allocs - lost.NoRoom; n > 0 {
		all = append(all, fmt.Sprintf("%d allocations have no stack or were lost: all numbers are "+
			"too little", n))
	}
	return all
}

// collect runs for the time that was asked for, or until the processes that
// were have ended.
func (o *options) collect(ctx context.Context, running *profiler.Profiler, messages io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.duration > 0 {
		ctx, stop = context.WithTimeout(ctx, o.duration)
		defer stop()
	}
	if len(o.pids) > 0 {
		if o.attached.Load() == 0 {
			fmt.Fprintln(messages, "usdtprofile: there is no matching probe yet; what is mapped later is profiled")
		}
		go func() {
			for o.ended() < len(o.pids) && ctx.Err() == nil {
				time.Sleep(endInterval)
			}
			stop()
		}()
	}
	return running.Run(ctx)
}

// endInterval is how often it is looked whether the processes have ended.
const endInterval = 100 * time.Millisecond

// ended returns how many of the processes have ended.
func (o *options) ended() (ended int) {
	for _, pid := range o.pids {
		if _, err := proc.Find("", pid); errors.Is(err, proc.ErrGone) {
			ended++
		}
	}
	return ended
}

// nothing says that there is no such probe.
func (o *options) nothing() error {
	patterns, where := strings.Join(o.patterns, " or "), "any process; usdtlist -a lists the probes"
	if o.memory {
		patterns = "otel_memory:alloc"
	}
	switch ended := o.ended(); {
	case ended == 1 && len(o.pids) == 1:
		return fmt.Errorf("process %d ended before a probe was found in it", o.pids[0])
	case ended > 0 && ended == len(o.pids):
		return errors.New("these processes ended before a probe was found in them")
	}
	if len(o.pids) > 0 {
		where = fmt.Sprintf("process %d; usdtlist -p %[1]d lists its probes", o.pids[0])
		if len(o.pids) > 1 {
			where = "these processes; usdtlist -p PID lists the probes of one"
		}
	}
	return errors.New(defs.NoMatch(patterns, where, nil))
}

// labels keep the stacks of processes apart where that was asked for.
func (o *options) labels(process string) map[string]string {
	if !o.byProcess {
		return nil
	}
	return map[string]string{"process": process}
}

// tell says what is in the profile, and what is not.
func (o *options) tell(messages io.Writer, probe *profiler.Probe) error {
	stats, err := probe.Stats()
	if err != nil {
		return err
	}
	fmt.Fprintf(messages, "usdtprofile: %d stacks", stats.Matched)
	if without := o.without.Load(); without > 0 {
		fmt.Fprintf(messages, "; %d of them count 0: their probe has no argument %s "+
			"that can be read as an integer; usdtlist -v shows what it has", without, o.value)
	}
	if stats == (profiler.Stats{}) {
		fmt.Fprint(messages, ": no probe fired")
	}
	if stats.NoStack > 0 {
		fmt.Fprintf(messages, "; %d hits without a stack: "+
			"the unwinder did not know the process yet", stats.NoStack)
	}
	if stats.NoHit > 0 {
		fmt.Fprintf(messages, "; %d stacks without a hit", stats.NoHit)
	}
	if stats.Lost > 0 {
		fmt.Fprintf(messages, "; %d hits lost: take fewer with --every", stats.Lost)
	}
	fmt.Fprintln(messages)
	return nil
}

// write writes a profile as the name of the file says.
func write(p *stack.Profile, output *commandline.Output, name, title string) error {
	if output == nil {
		return nil
	}
	ctx := context.Background() // the profiling has ended, and all names are known
	return output.WriteWhole(func(w io.Writer) error {
		switch filepath.Ext(name) {
		case ".html":
			return p.WriteFlameGraph(ctx, w, title)
		case ".folded", ".txt":
			return p.WriteFolded(ctx, w)
		}
		return p.Write(ctx, w)
	})
}
