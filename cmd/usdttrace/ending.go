// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
)

// signalPatience is how long further signals count as the first one: timeout(1)
// signals its child and then the whole process group.
const signalPatience = time.Second

// hurry is how long a write may take after SIGTERM.
const hurry = 200 * time.Millisecond

// The arguments with which this program starts itself: see [hold] and
// [leaveLinks].
const (
	runHeld   = "--run-held"
	holdLinks = "--hold-links"
)

// closingTime is how long the kernel takes to close a perf event.
const closingTime = 100 * time.Millisecond

// handleSignals makes the first signal end the tracing. A signal after the
// patience ends this process at once, as by default, even if something is still
// attached.
func (t *tracer) handleSignals() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// Writing into a closed pipe must return an error, not end this process.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	var leaving sync.Mutex
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			t.endWithStatus(128+int(s.(syscall.Signal)), "after the signal: "+s.String())
			if s == syscall.SIGTERM {
				// The sender does not wait for a reader of the output.
				t.out.Hurry(hurry)
				t.messages.Hurry(hurry)
			}
			// The patience also holds after the tracing has ended: this process
			// must end with its exit status, not by a second signal.
			time.Sleep(t.patience)
			select {
			case <-signals: // one that came meanwhile
			default:
			}
		case <-done:
			return
		}
		select {
		case s := <-signals:
			leaving.Lock() // for good
			leaveLinks()
			signal.Reset(s)
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
			time.Sleep(hurry)
			os.Exit(128 + int(s.(syscall.Signal))) // the signal was ignored from the start
		case <-done:
		}
	}()
	return func() {
		signal.Stop(pipe)
		close(done)
		leaving.Lock() // or this process is about to end by a signal
	}
}

// watchEnd starts what detaches when the tracing ends.
func (t *tracer) watchEnd() {
	var limit *time.Timer
	if t.options.duration > 0 {
		limit = time.AfterFunc(t.options.duration-time.Since(t.began.time), func() {
			t.endWithStatus(exitEnded, "after --duration "+t.options.duration.String())
		})
	}
	go func() {
		<-t.ctx.Done()
		if limit != nil {
			limit.Stop()
		}
		t.costs.ask(t)
		if !t.options.quiet && !t.hasHits() { // which takes time
			t.cleared = t.clearedSemaphores()
		}
		over := now()
		t.over.Store(&over)
		t.lost = t.askLosses().since(t.before)
		t.going = t.askOpen()
		if takes := time.Duration(t.lost.perfEvents) * closingTime; takes > time.Second {
			t.messages.Note("detaching takes some %.0f s: "+
				"this kernel closes %d perf events one after the other "+
				"(sites share them if tracefs is mounted at /sys/kernel/tracing)", takes.Seconds(),
				t.lost.perfEvents)
		}
		done := t.messages.During("detaching")
		if err := t.session.Detach(); err != nil {
			t.warnFailed(err)
		}
		done()
		close(t.done)
	}()
}

// isOutside reports whether a hit came before the tracing began, or after its
// end. The kernel attaches and detaches one probe after the other, on older
// kernels in 0.1 s each.
func (t *tracer) isOutside(event *trace.Event) bool {
	over := t.over.Load()
	return int64(event.Monotonic) < t.began.monotonic ||
		over != nil && over.monotonic != 0 && int64(event.Monotonic) > over.monotonic
}

// took returns how long the tracing went on, once that is over.
func (t *tracer) took() time.Duration { return t.over.Load().time.Sub(t.began.time) }

// A moment is also one of CLOCK_MONOTONIC, the clock of events.
type moment struct {
	time      time.Time
	monotonic int64 // 0 if it is not known
}

func now() moment { return moment{time.Now(), monotonic()} }

// monotonic returns CLOCK_MONOTONIC in nanoseconds as eBPF programs read it.
func monotonic() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano() - tracing.OwnClockOffsets().Monotonic.Nanoseconds()
}

// endWithStatus ends the tracing, and reports whether it is the first such
// call. The first call decides: if a command still runs, it is ended, why is
// printed, and status is the exit status.
func (t *tracer) endWithStatus(status int, why string) (first bool) {
	first = t.ending.CompareAndSwap(nil, &ending{status, why})
	t.end()
	return first
}

// endCommand ends the command if it still runs.
func (t *tracer) endCommand() {
	end := t.ending.Load()
	switch {
	case end == nil: // it has not begun
	case isClosed(t.command.done):
		t.status = t.command.exitStatus()
	default:
		t.status = end.status
		t.messages.Note("%s, the command is ended by SIGTERM", end.why)
	}
	t.command.end()
}

type ending struct {
	status int
	why    string
}

func (t *tracer) endWith(pid int) error {
	exit, err := watchExit(pid)
	if err != nil {
		return err
	}
	t.watch.Go(func() {
		exit(t.ctx)
		t.end()
	})
	return nil
}

// nothingError says that no probe matched.
type nothingError struct{ err error }

func (e *nothingError) Error() string { return explain(e.err) }

// verdict returns the error for a run that has watched nothing, or only one end
// of a pair.
func (t *tracer) verdict() error {
	if t.failed.Load() {
		return nil
	}
	where := t.where()
	if sites, _ := t.targets.watched(); sites > 0 {
		err := t.targets.missingPair(where)
		if err != nil && t.hit.Load() { // there are calls of another pair
			t.messages.Warn("%v", err)
			return nil
		}
		return err
	}
	switch late, filtered := t.targets.notAttached(); {
	case filtered != nil:
		return filtered
	case !t.follower.isAnswered():
		return errReported
	case late != "":
		return &nothingError{fmt.Errorf("the process ended before %s was attached: "+
			"name that file on the command line to have it attached from the start", late)}
	}
	err := t.targets.nothing(t.options.patterns, where)
	nearest, absent := t.targets.absent(t.options.patterns)
	if t.command != nil {
		err = fmt.Errorf("%w%s", err, t.commandElsewhere())
	}
	if relatives := t.relatives(); relatives != "" {
		err = fmt.Errorf("%w; %s", err, relatives)
	} else if t.command == nil && len(nearest) == 0 && absent == "" {
		err = fmt.Errorf("%w%s", err, listsAll)
	}
	return &nothingError{err}
}

// commandElsewhere says which program the command has run, if that is not the
// one that it names, and which other file has matching probes.
func (t *tracer) commandElsewhere() (text string) {
	name := t.options.command[0]
	program, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	if t.latecomers != nil {
		t.latecomers.mu.Lock()
		ran := t.latecomers.code.program
		t.latecomers.mu.Unlock()
		if ran != "" && ran != canonical(program) {
			text = "; " + name + " has run " + ran
		}
	}
	return text + t.options.otherFile(program, name)
}

// where names what was searched, for errors about probes that are not there.
func (t *tracer) where() string {
	switch {
	case t.command != nil:
		return "what the command and its descendants have run"
	case t.options.command != nil:
		return "the command and what it is linked with"
	case t.options.pid != 0:
		return fmt.Sprintf("process %d", t.options.pid)
	}
	return "any process"
}

// cleanUp removes the events that killed tracers have left in tracefs, and
// returns the exit status. The next program that attaches does the same.
func cleanUp(m *commandline.Messages, stdout *os.File) int {
	removed, err := attaching.RemoveEnded()
	for _, name := range removed {
		if _, err := fmt.Fprintf(stdout, "removed %s/%s\n", attaching.EventGroup, name); err != nil {
			m.Warn("writing the output: %v", err)
			return exitError
		}
	}
	switch {
	case err != nil:
		m.Warn("--cleanup: %v", err)
		return exitError
	case len(removed) == 0:
		m.Warn("--cleanup: no tracer has left anything")
		return exitNothing
	}
	return exitWatched
}
