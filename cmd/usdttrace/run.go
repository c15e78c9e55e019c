// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/internal/messages"
	"github.com/gousdt/gousdt/internal/tracee"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// tracer is one run of the command.
type tracer struct {
	options  *options
	messages *messages.Messages
	stdout   *os.File
	out      *messages.Writer // stdout, or the file of --output

	session    *trace.Session
	containers *container.Cgroups // nil where nobody asks for containers
	printer    printer
	targets    *targets
	follower   *follower         // nil for files without a process
	command    *command          // nil without -c
	stacks     *stack.Symbolizer // nil where no stacks are asked for
	samples    *samples          // nil where no profile is made from events
	profiles   []*profileFile    // what stacks are written to
	file       *outputFile       // nil without --output
	costs      costs
	asked      []*aggregation

	ctx    context.Context // ends when the tracing is to end
	end    context.CancelFunc
	from   int64         // CLOCK_MONOTONIC at the start, 0 with -c
	until  atomic.Int64  // that of the end, 0 before it
	ended  chan struct{} // closed when everything is detached
	watch  sync.WaitGroup
	events atomic.Uint64
	weight atomic.Uint64 // how many hits the events stand for
	start  time.Time     // when everything was attached: with -c, before the command went on
	took   time.Duration // from start to the end
	before losses        // at the start
	lost   losses        // from start to the end
	status int           // of the command, if it ended by itself
	failed atomic.Bool   // something that was asked for could not be watched
}

// errReported means that nothing can be watched, and that messages have said
// why.
var errReported = errors.New("nothing could be watched")

// errEnded means that the user ended the tracing before it had begun.
var errEnded = errors.New("interrupted")

// trace is the run, from the beginning to the end.
func (t *tracer) trace() (err error) {
	o := t.options
	t.targets = newTargets(o)
	defer t.targets.close()
	// Errors in processes and files come before missing privileges.
	if o.pid != 0 {
		if err := tracee.Check(o.pid); err != nil {
			return err
		}
	}
	if o.command == nil {
		if err := t.targets.find(o.files, o.pid); err != nil {
			return err
		}
	}
	defer t.abandonProfiles()
	if err := t.openProfiles(); err != nil {
		return err
	}
	t.out = messages.NewWriter(t.stdout)
	if path := cmp.Or(o.outputFile, o.chromeTrace); path != "" {
		if t.file, err = createFile(path); err != nil {
			flag := "output"
			if o.chromeTrace != "" {
				flag = "chrome-trace"
			}
			return fmt.Errorf("--%s: %w", flag, err)
		}
		defer t.file.abandon()
		t.out = messages.NewWriter(t.file)
	}
	t.printer = newPrinter(t)
	if o.list || o.listPairs {
		return t.list()
	}
	if err := t.open(); err != nil {
		return err
	}
	defer func() {
		// After an error it is not detached yet, which takes its time.
		defer t.messages.During("detaching")()
		t.session.Close()
		if t.containers != nil {
			t.containers.Close()
		}
	}()
	if o.eventStacks() || o.profiles() || o.byStack() {
		t.stacks = stack.NewSymbolizer(nil)
		defer t.stacks.Close()
		if o.fromEvents() {
			t.samples = t.newSamples()
			for _, a := range t.asked {
				if a.aggregator == nil {
					a.rows = t.samples.rows
				}
			}
		}
	}

	t.ctx, t.end = context.WithCancel(context.Background())
	t.ended = make(chan struct{})
	t.out.OnError(t.end)
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
		e := t.out.Flush()
		if t.file != nil {
			e = errors.Join(e, t.file.Close())
		}
		if e != nil && err == nil {
			err = fmt.Errorf("writing the output: %w", e)
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	t.warnArguments()
	if t.file != nil {
		t.file.replace()
	}
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
		}
		if t.stacks != nil && (o.pid == 0 || o.follow) {
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
	if err := t.startMeasuring(); err != nil {
		return err
	}
	t.noteBegun()
	return nil
}

// noteBegun says that from now on nothing is missed.
func (t *tracer) noteBegun() {
	sites, files := t.targets.watched()
	if !t.options.quiet {
		t.noteRelatives()
	}
	switch {
	case sites == 0:
		t.messages.Note("no process has a matching probe yet; those that come are watched (Ctrl-C ends)")
	case files == 1:
		t.messages.Note("watching %s (Ctrl-C ends)", plural(sites, "site"))
	default:
		t.messages.Note("watching %s in %s (Ctrl-C ends)", plural(sites, "site"),
			plural(files, "file"))
	}
}

// warnFailed reports an error while the rest goes on.
func (t *tracer) warnFailed(err error) {
	t.failed.Store(true)
	t.messages.WarnOf("failures: "+messages.Cause(err), "%s", explain(err))
}

// plural returns "1 site", "2 sites".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
