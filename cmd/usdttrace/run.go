// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/internal/profile"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// tracer is one run of the command.
type tracer struct {
	options  *options
	messages *messages
	out      *output

	session  *trace.Session
	printer  printer
	targets  *targets
	follower *follower          // nil for files without a process
	command  *command           // nil without -c
	stacks   *profile.Processes // nil where no stacks are asked for
	samples  *samples           // nil where no profile is made from events
	profile  *profileFile       // nil without --pprof
	costs    costs
	asked    []*aggregation

	ctx    context.Context // ends when the tracing is to end
	end    context.CancelFunc
	ended  chan struct{} // closed when everything is detached
	watch  sync.WaitGroup
	events atomic.Uint64
	start  time.Time     // when everything was attached
	took   time.Duration // from then on until the end
	failed atomic.Bool   // something that was asked for could not be watched
}

// nothingError says that no probe matched.
type nothingError struct{ err error }

func (e *nothingError) Error() string { return e.err.Error() }

// errTold means that nothing can be watched, and that the user has been told
// why.
var errTold = errors.New("nothing could be watched")

// errEnded means that the user ended the tracing before it had begun.
var errEnded = errors.New("interrupted")

// trace does it all.
func (t *tracer) trace() (err error) {
	o := t.options
	t.targets = newTargets(o)
	defer t.targets.close()
	// What is wrong with a process or a file can be told without privileges.
	if o.pid != 0 {
		if err := usdt.CheckProcess(o.pid); err != nil {
			return err
		}
	}
	if o.command == nil {
		if err := t.targets.find(o.files, o.pid); err != nil {
			return err
		}
	}
	if o.pprofFile != "" {
		if t.profile, err = createProfile(o.pprofFile); err != nil {
			return fmt.Errorf("--pprof: %w", err)
		}
		defer t.profile.abandon()
	}
	if err := t.open(); err != nil {
		return err
	}
	defer func() {
		// Where it is not detached yet, as after an error, that takes its time.
		defer t.messages.during("detaching")()
		t.session.Close()
	}()
	if o.stack || o.pprofFile != "" || o.byStack() {
		t.stacks = profile.NewProcesses(proc.NewFS(""))
		defer t.stacks.Close()
	}

	t.ctx, t.end = context.WithCancel(context.Background())
	t.ended = make(chan struct{})
	defer t.handleSignals()()
	defer func() {
		t.end()
		t.watch.Wait()
		if t.follower != nil {
			t.follower.close()
		}
		if t.command != nil {
			t.command.finish()
		}
		// Writing has failed for good, so that one error tells it.
		if e := t.out.close(); e != nil && err == nil {
			err = fmt.Errorf("writing: %w", e)
		}
	}()
	t.printer = newPrinter(t)
	if err := t.begin(); err != nil {
		return err
	}
	t.warnCaptures()
	t.start = time.Now()
	t.watchEnd()
	if err := t.collect(); err != nil {
		return err
	}
	<-t.ended
	if err := t.report(); err != nil {
		return err
	}
	return t.verdict()
}

// open makes the session.
func (t *tracer) open() error {
	// Needed before 5.11. Who may not do that may not trace either, and the
	// session says so better.
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	o := t.options
	t.asked = o.aggregations()
	opts := &trace.SessionOptions{
		Mode: o.mode, Filter: o.where, Captures: o.captures, RingSize: o.buffer, Statistics: o.stats,
	}
	if o.stack || o.unwind > 0 {
		opts.StackDepth = maxStack
	} else {
		opts.Delay = delay
	}
	for _, a := range t.asked {
		opts.Aggregations = append(opts.Aggregations, a.Aggregation)
	}
	if o.unwind > 0 {
		opts.StackCopy, opts.WithEvents = o.unwind, true
		if opts.RingSize == 0 {
			opts.RingSize = unwindBuffer
		}
		if o.pprofFile != "" {
			t.samples = newSamples(o)
		}
	}
	var err error
	if t.session, err = trace.New(opts); err != nil {
		return t.named(err)
	}
	return nil
}

// delay is what nobody sees, and spares the traced program waking this one up
// at each hit. With stacks, there is none: the process has to be there while
// its addresses are named.
const delay = 20 * time.Millisecond

// begin attaches, and starts the command if there is one.
func (t *tracer) begin() error {
	o := t.options
	switch {
	case o.command != nil:
		return t.beginCommand()
	case len(o.files) > 0:
		if err := t.attachFiles(); err != nil {
			return err
		}
		if o.pid != 0 {
			if err := t.endWith(o.pid); err != nil {
				return err
			}
		} else if t.stacks != nil {
			if err := t.follow(); err != nil { // for what the processes have mapped
				return err
			}
		}
	case o.pid != 0:
		if err := t.followProcess(); err != nil {
			return err
		}
	default:
		if err := t.follow(); err != nil {
			return err
		}
	}
	t.sayBegun()
	return nil
}

// sayBegun tells that from now on nothing is missed.
func (t *tracer) sayBegun() {
	sites, files := t.targets.watched()
	switch {
	case sites == 0:
		t.messages.warn("no process has a matching probe yet; those that come are watched (Ctrl-C ends)")
	case files == 1:
		t.messages.warn("watching %s (Ctrl-C ends)", plural(sites, "site"))
	default:
		t.messages.warn("watching %s in %s (Ctrl-C ends)", plural(sites, "site"), plural(files, "file"))
	}
}

// plural returns "1 site", "2 sites".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// signalPatience is how long after the first signal others are taken to be the
// same one: timeout(1) signals its child and then the whole process group.
const signalPatience = time.Second

// handleSignals has the first signal end the tracing. One that comes after
// signalPatience ends this process, as it always does.
func (t *tracer) handleSignals() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// Without this, writing into a pipe that nobody reads would end this
	// process. Now it is an error.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer signal.Stop(signals)
		select {
		case <-signals:
			t.end()
			// Not only until done: what has been printed counts for nothing if
			// this process then ends by a signal.
			time.Sleep(signalPatience)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(pipe)
		close(done)
	}
}

// watchEnd detaches when the tracing is to end.
func (t *tracer) watchEnd() {
	var limit *time.Timer
	if t.options.duration > 0 {
		limit = time.AfterFunc(t.options.duration, t.end)
	}
	go func() {
		<-t.ctx.Done()
		if limit != nil {
			limit.Stop()
		}
		t.took = time.Since(t.start)
		done := t.messages.during("detaching")
		t.costs.ask(t)
		if err := t.session.Detach(); err != nil {
			t.warnFailed(err)
		}
		done()
		close(t.ended)
	}()
}

// warnFailed tells of something that went wrong while the rest goes on.
func (t *tracer) warnFailed(err error) {
	t.failed.Store(true)
	t.messages.warn("%s", explain(err))
}

// verdict returns the error for a run that has watched nothing, or but one end
// of a latency.
func (t *tracer) verdict() error {
	if t.failed.Load() {
		return nil
	}
	where := "any process"
	if t.command != nil {
		where = "what the command has run (but for descendants that lived under 20 ms, which are missed: watch their file " +
			"without -c, and run the command beside)"
	} else if t.options.pid != 0 {
		where = fmt.Sprintf("process %d", t.options.pid)
	}
	if sites, _ := t.targets.watched(); sites > 0 {
		if missing := t.targets.unmatchedEnds(); len(missing) > 0 {
			return &nothingError{t.targets.nothing(missing, where)}
		}
		return nil
	}
	if err := t.targets.never; err != nil {
		return err
	}
	if late := t.targets.late; late != "" {
		return &nothingError{fmt.Errorf("the process ended before %s was attached to: name that file on the command line "+
			"to have it attached to from the start", late)}
	}
	return &nothingError{t.targets.nothing(t.options.patterns, where)}
}
