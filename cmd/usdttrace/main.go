// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/gdamore/tcell/v2"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/debuginfod"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Exit statuses.
const (
	exitWatched = 0 // or what the command ended with
	exitNothing = 1 // no probe matched
	exitError   = 2 // something could not be watched or written, or the command line was wrong

	// exitEnded is the status that a shell gives a program ended by SIGTERM:
	// the tracing ended before the command did.
	exitEnded = 128 + int(syscall.SIGTERM)

	// exitPipe is the status that a shell gives a program ended by SIGPIPE: the
	// reader of the output has closed it.
	exitPipe = 128 + int(syscall.SIGPIPE)
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signalPatience))
}

// run is the command: events and aggregates go to stdout, all else to stderr.
// Signals within the patience count as one. It returns the exit status.
func run(args []string, stdout, stderr *os.File, patience time.Duration) int {
	m := commandline.NewMessages("usdttrace", stderr)
	if len(args) == 1 && args[0] == holdLinks {
		holdUntilAlone()
		return exitWatched
	}
	if len(args) > 2 && args[0] == runHeld {
		return becomeCommand(args[1:])
	}
	if len(args) == 2 && args[0] == commandline.FetchDebugFile {
		return fetchDebugFile(m, args[1], stdout)
	}
	o, err := parseCommandLine(args)
	switch {
	case err != nil:
		return m.Answer(err, stdout)
	case o.cleanup:
		return cleanUp(m, stdout)
	}
	switch isTerminal := terminal.IsTerminal(stdout) && terminal.IsTerminal(os.Stdin); {
	case o.live && !isTerminal:
		m.Warn("--live needs a terminal: --interval prints the tables into files and pipes")
		return exitError
	case o.live, isTerminal && o.interval > 0 && o.canBeLive():
		return runLive(o, stdout, stderr, patience)
	}
	t := &tracer{prepared: prepared{options: o, messages: m, stdout: stdout, patience: patience}}
	return t.exitStatus(t.trace())
}

// fetchDebugFile prints the path of a debug file that is fetched.
func fetchDebugFile(m *commandline.Messages, buildID string, stdout *os.File) int {
	client, err := debuginfod.New("", m.Note)
	path := ""
	if err == nil {
		defer client.Close()
		path, err = client.Fetch(context.Background(), buildID)
	}
	if err == nil {
		_, err = fmt.Fprintln(stdout, path)
	}
	if err != nil {
		m.Warn("--debuginfod: %v", err)
		return exitError
	}
	return exitWatched
}

// exitStatus says why a run has failed, if it has, and returns the status.
func (t *tracer) exitStatus(err error) int {
	m := t.messages
	m.Rest("")
	switch {
	case errors.As(err, new(*nothingError)):
		m.Warn("%v", err)
		return exitNothing
	case errors.Is(err, syscall.EPIPE):
		return exitPipe
	case errors.Is(err, errReported):
		return exitError
	case err != nil:
		m.Warn("%s", explain(err))
		return exitError
	case t.failed.Load():
		return exitError
	}
	return t.status
}

// tracer is one run: it is prepared, opened, attached and collected, and then
// reported. What one phase has set, later ones only read, from any goroutine.
type tracer struct {
	prepared
	opened
	attached
	ended
	shared

	status  int      // of the command
	closers []func() // see atEnd
	flushed error    // of the output
}

// prepared is what a run has that needs no privileges.
type prepared struct {
	options  *options
	messages *commandline.Messages
	stdout   *os.File
	patience time.Duration       // see handleSignals
	live     *live               // nil unless tables are drawn in place
	out      *commandline.Writer // stdout, or the file of --output
	file     *commandline.Output // nil without --output
	profiles []*profileFile      // what stacks are written to
	targets  *targets
	printer  printer
}

// opened is what the kernel and others have to do with a run before something
// is attached.
type opened struct {
	command    *command // nil without one
	alone      bool     // the command's descendants cannot be watched
	session    *trace.Session
	asked      []*aggregation
	containers *proc.Cgroups       // nil unless containers are asked for
	stacks     *stack.Symbolizer   // nil where no stacks are asked for
	debuginfod *debuginfod.Client  // nil without --debuginfod
	known      *unwind.KnownStacks // nil where the kernel counts none
	samples    *samples            // nil where no profile is made from events
}

// attached is what follows processes, and what was at the beginning. The
// follower attaches from then on.
type attached struct {
	follower   *follower   // nil for files without a process
	latecomers *latecomers // of the command, or of -p
	began      moment      // when everything was attached, before a command begins
	before     losses      // then
}

// collected is what the goroutine that takes events has counted.
type collected struct {
	events     uint64
	weight     uint64 // how many hits the events stand for
	unreadable uint64 // events with an argument that could not be read
}

// ended is set by the goroutine that detaches. Others wait for done.
type ended struct {
	done    chan struct{}    // closed when everything is detached
	lost    losses           // from the beginning until the tracing was over
	going   []*trace.Event   // calls that go on at the end
	cleared map[silence]bool // semaphores of 0, at the end of a run without hits
}

// shared is what all goroutines of a run write to, too.
type shared struct {
	ctx    context.Context // ends when the tracing is to end
	end    context.CancelFunc
	ending atomic.Pointer[ending]
	over   atomic.Pointer[moment] // when the tracing was over; nil before
	watch  sync.WaitGroup
	quit   <-chan os.Signal // SIGQUIT asks for the calls that go on
	hit    atomic.Bool      // an event has come
	failed atomic.Bool      // something that was asked for could not be watched
	denied atomic.Int64     // processes that could not be read, see warnDenied
	texts  procwatch.Texts  // of the processes that are watched
	costs  costs
}

// errReported means that nothing can be watched, and that messages have said
// why.
var errReported = errors.New("nothing could be watched")

// errEnded means that the user ended the tracing before it had begun.
var errEnded = errors.New("interrupted")

// trace is the run, from the beginning to the end.
func (t *tracer) trace() (err error) {
	defer func() {
		for _, closeIt := range slices.Backward(t.closers) {
			closeIt()
		}
		err = cmp.Or(err, t.flushed)
	}()
	if err := t.prepare(); err != nil {
		return err
	}
	if t.options.list || t.options.listPairs {
		return t.list()
	}
	if err := t.open(); err != nil {
		return err
	}
	if err := t.begin(); err != nil {
		return err
	}
	counted, err := t.collect()
	if err != nil {
		return err
	}
	<-t.done
	if t.live != nil {
		if t.live.leaves() {
			return nil
		}
		t.live.close()
	}
	if err := t.report(counted); err != nil {
		return err
	}
	return t.verdict()
}

// atEnd has something done when the run ends, the last first.
func (t *tracer) atEnd(do func()) { t.closers = append(t.closers, do) }

// prepare finds what is to be watched, and opens what is written. Errors in
// processes and files come before missing privileges.
func (t *tracer) prepare() error {
	o := t.options
	if o.quiet {
		t.messages.SetQuiet()
	}
	definitions, err := commandline.Definitions(o.names, t.messages.Warn)
	if err != nil {
		return err
	}
	if err := o.takeCalls(definitions, t.messages.Note); err != nil {
		return err
	}
	o.useCalls(definitions)
	t.targets = newTargets(o)
	t.targets.definitions = definitions
	t.atEnd(func() {
		for _, sel := range t.targets.selections {
			sel.Close()
		}
	})
	if o.pid != 0 {
		if err := sys.CheckTracee(o.pid); err != nil {
			return err
		}
	}
	if err := t.targets.find(o.files, o.pid); err != nil {
		return err
	}
	create := func(flag, path string) (*commandline.Output, error) {
		file, err := commandline.CreateOutput(path)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		t.atEnd(file.Abandon)
		return file, nil
	}
	for _, p := range o.profileFiles() {
		if p.file, err = create(p.flag, p.path); err != nil {
			return err
		}
		t.profiles = append(t.profiles, p)
	}
	t.out = commandline.NewWriter(t.stdout)
	if flag, path := o.output(); path != "" {
		if t.file, err = create(flag, path); err != nil {
			return err
		}
		t.out = commandline.NewWriter(t.file)
	}
	t.printer = newPrinter(t)
	return nil
}

// open holds the command, loads the programs, and makes what names stacks.
func (t *tracer) open() (err error) {
	o := t.options
	if o.debuginfod {
		if t.debuginfod, err = debuginfod.New("", t.messages.Note); err != nil {
			return fmt.Errorf("--debuginfod: %w", err)
		}
		t.atEnd(func() { t.debuginfod.Close() })
	}
	if o.command != nil {
		stdout := os.Stdout
		if o.printsOnStdout() {
			stdout = os.Stderr // the two must not be mixed
		}
		if t.command, err = hold(o.command, stdout); err != nil {
			return err
		}
		t.atEnd(t.endCommand)
	}
	if err := t.openSession(); err != nil {
		return err
	}
	t.atEnd(func() {
		// After an error sites are still attached, and detaching takes time.
		defer t.messages.During("detaching")()
		t.session.Close()
	})
	if o.stats {
		statistics, err := ebpf.EnableStats(statsRunTime)
		if err != nil {
			return fmt.Errorf("--stats needs CAP_SYS_ADMIN: run it as root, for example with sudo: %w", err)
		}
		t.atEnd(func() { statistics.Close() })
	}
	if o.eventStacks() || o.profiles() && !o.byCalls() || o.byStack() {
		t.stacks = stack.NewSymbolizer("")
		t.atEnd(func() { t.stacks.Close() })
		if t.debuginfod != nil {
			t.stacks.DebugFile = t.debuginfod.Find
		}
		t.stacks.Lines = o.lines
		t.recordMappings()
		if o.fromEvents() {
			t.samples = t.newSamples()
		}
	}
	return nil
}

// begin attaches, and has a signal, or what else ends the tracing, detach.
func (t *tracer) begin() error {
	t.ctx, t.end = context.WithCancel(context.Background())
	t.done = make(chan struct{})
	t.out.OnError(t.end)
	t.atEnd(t.handleSignals())
	if t.options.measuresCalls() { // else the signal ends this process, as usual
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT)
		t.atEnd(func() { signal.Stop(quit) })
		t.quit = quit
	}
	t.atEnd(func() {
		t.end()
		t.watch.Wait()
		if t.follower != nil {
			t.follower.close()
		}
		t.flushed = t.flush()
	})
	if err := t.attach(); err != nil {
		return err
	}
	t.warnArguments()
	if t.file != nil {
		t.file.Replace()
	}
	t.watchEnd()
	return nil
}

// output returns what names the file that t.out writes to.
func (o *options) output() (flag, path string) {
	if o.chromeTrace != "" {
		return "chrome-trace", o.chromeTrace
	}
	return "output", o.outputFile
}

// flush returns the error of any write so far, and closes the file of --output.
func (t *tracer) flush() error {
	err := t.out.Flush()
	if t.file == nil {
		if err != nil {
			err = fmt.Errorf("writing the output: %w", err)
		}
		return err
	}
	if err = cmp.Or(err, t.file.Close()); err != nil {
		flag, _ := t.options.output()
		return fmt.Errorf("--%s: %w", flag, t.file.Incomplete(err))
	}
	return nil
}

// attach attaches, and starts the command if there is one.
func (t *tracer) attach() (err error) {
	o := t.options
	switch {
	case o.command != nil:
		err = t.beginCommand()
	case len(o.files) > 0:
		t.warnTraps()
		if err = t.attachFiles(); err == nil && o.pid != 0 {
			err = t.endWith(o.pid)
		}
		if err == nil && t.stacks != nil && (o.pid == 0 || o.follow) {
			err = t.follow() // for what the processes have mapped
		}
	case o.pid != 0:
		err = t.followProcess()
	default:
		t.warnTraps()
		err = t.follow()
	}
	if err == nil {
		t.touchFiles()
		err = t.startMeasuring()
	}
	switch {
	case err != nil:
		return err
	case o.command != nil:
		return t.runCommand()
	case t.latecomers != nil:
		t.latecomers.begin()
	}
	t.noteBegun()
	return nil
}

// noteBegun says that from now on nothing is missed.
func (t *tracer) noteBegun() {
	sites, files := t.targets.watched()
	t.warnDenied(sites == 0)
	if !t.options.quiet {
		if relatives := t.relatives(); relatives != "" {
			t.messages.Note("process %d is watched alone: %s", t.options.pid, relatives)
		}
	}
	if sites > 0 {
		t.messages.Note("watching %s (Ctrl-C ends)", sitesIn(files, sites))
		t.watch.Go(t.hintAtSilence)
		return
	}
	text, next := "no process has a matching probe yet", "those that come are watched"
	if pid := t.options.pid; pid != 0 {
		text = fmt.Sprintf("process %d has no matching probe yet", pid)
		next = "what it maps later is watched"
		if !t.follower.isAnswered() {
			text = fmt.Sprintf("process %d does not answer yet", pid)
		}
	}
	if _, unfit := t.targets.notAttached(); unfit != nil {
		text = unfit.Error()
	} else {
		t.addNearest(t.targets, t.options.pid, t.options.patterns...)
		nearest, absent := t.targets.absent(t.options.patterns)
		if absent != "" && t.options.pid != 0 { // waiting will hardly help
			text = strings.TrimSuffix(text, " yet")
			next = "only what it maps or executes later can have one"
		}
		text += defs.Nearest(nearest) + absent
	}
	t.messages.Note("%s; %s (Ctrl-C ends)", text, next)
}

// silenceBefore is how long nothing has to come until a hint says why.
const silenceBefore = 5 * time.Second

// hintAtSilence says when the probes fire if nothing comes, and what fires in
// place of them. Without such a hint, all is said at the end.
func (t *tracer) hintAtSilence() {
	select {
	case <-t.ctx.Done():
		return
	case <-time.After(silenceBefore):
	}
	if t.live != nil || t.hasHits() {
		return
	}
	hints := t.fires()
	if slices.ContainsFunc(hints, variable.MatchString) {
		hints = withEnvironment(hints, t.reaches())
	}
	for _, hint := range hints {
		t.messages.Note("nothing yet: %s", hint)
	}
}

// warnFailed reports an error while the rest goes on.
func (t *tracer) warnFailed(err error) {
	t.failed.Store(true)
	t.messages.WarnOf("failures: "+commandline.Cause(err), "%s", explain(err))
}

// plural returns "1 site", "2 sites".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sitesIn returns "3 sites", or "3 sites in 2 files" unless it is one file.
func sitesIn(files, sites int) string {
	if files == 1 {
		return plural(sites, "site")
	}
	return plural(sites, "site") + " in " + plural(files, "file")
}

// statsRunTime is BPF_STATS_RUN_TIME of linux/bpf.h, which package unix has on
// Linux alone.
const statsRunTime = 0

// openSession loads the programs for what the flags ask for.
func (t *tracer) openSession() error {
	// Linux before 5.11 needs this. With later kernels it does not matter if a
	// sandbox denies it.
	memlock := rlimit.RemoveMemlock()
	o := t.options
	var err error
	if err := t.checkSum(); err != nil {
		return err
	}
	if o.sum != "" && t.isFloat(o.sum) {
		// Samples have only integers.
		o.sumIsFloat, o.unwind = true, 0
		if err := o.checkSampling(); err != nil {
			return err
		}
	}
	t.asked = o.aggregations()
	opts := &trace.SessionOptions{Mode: o.mode, Filter: o.filter(),
		Definitions: (*trace.Definitions)(t.targets.definitions)}
	for _, a := range t.asked {
		if a.inKernel != nil {
			opts.Aggregations = append(opts.Aggregations, a.inKernel)
		}
	}
	if !o.aggregates() || o.fromEvents() {
		opts.Events = o.events(t.targets.definitions != nil)
		if o.knowsStacks() {
			if known := t.knowStacks(); known != nil {
				tracing.CountKnownStacks(opts.Events, known.FD())
			}
		}
	}
	switch {
	case o.command != nil:
		opts.Family = t.command.pid
	case o.follow:
		opts.Family = o.pid
	}
	needs := o.needsContainers(opts)
	if needs != "" || o.json && !o.aggregates() {
		switch t.containers, err = proc.WatchCgroups(""); {
		case needs == "":
		case err != nil:
			return fmt.Errorf("%s: %w", needs, err)
		case t.containers.Err() != nil:
			t.messages.Warn("containers that end soon may have no name: %v", t.containers.Err())
		}
		if t.containers != nil {
			t.atEnd(func() { t.containers.Close() })
		}
		opts.Containers = t.containers
	}
	t.session, err = trace.New(opts)
	var option *tracing.OptionError
	if o.command != nil && errors.As(err, &option) && option.Field == "Family" {
		t.messages.Warn("descendants of the command are not watched: %v", option.Err)
		t.alone, opts.Family = true, 0
		opts.Filter = and(opts.Filter, fmt.Sprintf("pid == %d", t.command.pid))
		t.session, err = trace.New(opts)
	}
	if err != nil {
		// If merely the privilege is missing, the session's error says so.
		if memlock != nil && !errors.Is(memlock, os.ErrPermission) {
			t.messages.Warn("cannot lift the limit on locked memory, "+
				"which Linux before 5.11 needs "+
				"(raise it by ulimit -l, or let prlimit64 through): %v", memlock)
		}
		return t.named(err)
	}
	return nil
}

// events are the options of the session's events. defined says whether there
// are definitions of arguments.
func (o *options) events(defined bool) *trace.EventOptions {
	e := &trace.EventOptions{
		Exits: !o.fromEvents(), StartStacks: o.starts, StackCopy: o.unwind, ShareRing: o.all,
		RingSize:    o.buffer,
		ReuseEvents: true, // each is printed, or added to a sample, before the next comes
		Captures:    slices.Clone(o.captures),
		SampleEvery: o.every, SamplePerSecond: o.rate,
	}
	for i := range e.Captures {
		if c := &e.Captures[i]; len(c.Probes) == 0 && !o.measuresCalls() {
			c.Probes = o.patterns // their names count, not those of others
		}
	}
	if defined && !o.aggregates() {
		texts := trace.Capture{Max: maxKnownText}
		if o.latency == nil {
			texts.Probes = o.patterns // else those of the calls
		}
		e.Captures = append(e.Captures, texts)
	}
	if o.eventStacks() || o.fromEvents() {
		e.StackDepth = maxStack
	} else {
		e.Delay = delay
	}
	if o.slow != nil {
		for _, pair := range o.listed {
			e.Spans = append(e.Spans, o.call(pair))
		}
	}
	if o.chromeTrace != "" && o.latency != nil {
		e.Spans = append(e.Spans, *o.latency)
	}
	if o.unwind > 0 && o.buffer == 0 {
		e.RingSize = unwindBuffer
	}
	return e
}

// needsContainers returns the flag that needs containers, "" if none does. The
// condition of --where may have the word in a text: then it is valid without
// containers.
func (o *options) needsContainers(opts *trace.SessionOptions) string {
	switch {
	case slices.Contains(o.by, "container"):
		return "--by container"
	case strings.Contains(o.where, "container") && opts.Validate() != nil:
		return "--where"
	}
	return ""
}

// delay is how long events may be held back, too short to be seen. It spares
// the traced program waking this one up at each hit. With stacks there is no
// delay: the process must still run when its addresses are named.
const delay = 20 * time.Millisecond

// collect prints events, rows and open calls until everything is detached, and
// the events that were sent by then.
func (t *tracer) collect() (c collected, err error) {
	defer t.end()
	var printing sync.Mutex // lines do not mix
	events := make(chan error, 1)
	if t.options.aggregates() && t.samples == nil {
		events <- nil
	} else {
		go func() {
			defer t.end()
			events <- t.collectEvents(&c, &printing)
		}()
	}
	err = t.collectRows(&printing)
	t.end()
	err = errors.Join(err, <-events) // after which c is complete
	known := t.known.Take()
	c.events, c.weight = c.events+known, c.weight+known
	return c, err
}

// collectEvents takes events until everything is detached and read, or until no
// more are wanted.
func (t *tracer) collectEvents(c *collected, printing *sync.Mutex) error {
	if t.known != nil {
		go t.samples.renew(t.ctx)
	}
	missing, isWarned := uint64(0), false // events that were reported as lost
	for event, err := range t.session.Events(tracing.WithRest(context.Background(), t.out.Now)) {
		if err != nil {
			// Declared only here: the variable is an allocation.
			var lost trace.LostError
			if !errors.As(err, &lost) {
				return err
			}
			missing += uint64(lost)
			// The others were lost while sites were attached.
			if !isWarned && missing > t.before.Events {
				isWarned = true
				advice := "--buffer, --where and --count"
				if t.options.unwind > 0 {
					advice = "--every, --unwind fp and --buffer"
				}
				t.messages.Warn("events are being lost, because the ring buffer is full (see %s)",
					advice)
			}
			continue
		}
		if t.isOutside(event) || t.mayHaveEnded(event) {
			continue
		}
		c.events++
		t.hit.Store(true)
		if slices.ContainsFunc(event.Args, isUnreadable) {
			c.unreadable++
		}
		c.weight += event.Weight
		if t.samples != nil {
			t.samples.collect(event)
		} else {
			printing.Lock()
			t.printer.event(event)
			printing.Unlock()
		}
		if c.events == uint64(t.options.maxEvents) {
			t.endWithStatus(exitEnded, fmt.Sprintf("after --max-events %d", c.events))
			return nil
		}
	}
	return nil
}

// collectRows prints at each interval, and calls that go on whenever SIGQUIT
// asks for them.
func (t *tracer) collectRows(printing *sync.Mutex) error {
	var ticks <-chan time.Time
	var keys chan *tcell.EventKey
	if t.live != nil {
		keys = t.live.keys
	}
	if t.options.interval > 0 {
		ticker := time.NewTicker(t.options.interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			if t.options.aggregates() {
				if err := t.printRows(); err != nil {
					return err
				}
			}
			if t.live != nil {
				t.live.draw(t)
				continue
			}
		case <-t.quit:
		case key := <-keys:
			t.live.key(t, key)
			continue
		case <-t.done:
			return nil
		}
		open := t.askOpen()
		printing.Lock()
		t.printOpen(open)
		printing.Unlock()
	}
}

// startMeasuring forgets the hits that came while sites were attached, one
// after the other: rates would be too high, and probes could not be compared.
func (t *tracer) startMeasuring() error {
	t.before = t.askLosses()
	t.began = now()
	_, err := t.session.Take()
	return errors.Join(t.before.err, err)
}

// printRows prints the tables: with --interval, of the hits since the last
// call.
func (t *tracer) printRows() error {
	printed := t.printed()
	snapshots, err := t.read(printed...)
	if err != nil {
		return err
	}
	for i, a := range printed {
		snapshot := snapshots[i]
		if t.stacks != nil {
			t.stacks.Remember()
		}
		if t.live != nil {
			snapshot = t.live.add(a, snapshot)
			a.others = snapshot.Other.Count // also of keys that have lost their row
			if !isClosed(t.done) {
				continue
			}
		}
		// What an interval has left over is no interval, unless no other
		// table was printed: it has no rate, and says nothing without hits.
		a.isRest = t.live == nil && a.shown && isClosed(t.done) &&
			snapshot.Time.Sub(snapshot.Start) < t.options.interval/2
		if a.isRest && len(rowsOf(snapshot)) == 0 {
			continue
		}
		a.shown = true
		snapshot = t.arrange(a, snapshot)
		t.wantNames(snapshot)
		t.printer.rows(a, snapshot)
	}
	return nil
}

// read returns the rows of aggregations: with --interval, those of tables are
// of the hits since the last call, up to the same moment.
func (t *tracer) read(some ...*aggregation) ([]*trace.Snapshot, error) {
	var inKernel []*trace.Aggregation
	for _, a := range some {
		if t.anew(a) && a.inKernel != nil {
			inKernel = append(inKernel, a.inKernel)
		}
	}
	var taken []*trace.Snapshot
	if len(inKernel) > 0 {
		var err error
		if taken, err = t.session.Take(inKernel...); err != nil {
			return nil, err
		}
	}
	all := make([]*trace.Snapshot, len(some))
	for i, a := range some {
		anew := t.anew(a)
		if !anew {
			a.hits, a.others, a.overflow = 0, 0, 0
		}
		var snapshot *trace.Snapshot
		var err error
		switch {
		case a.rows != nil:
			snapshot = a.rows.snapshot(anew, a.MaxKeys)
		case anew:
			snapshot, taken = taken[0], taken[1:]
		default:
			snapshot, err = t.session.Snapshot(a.inKernel)
		}
		if err != nil {
			return nil, err
		}
		for _, row := range rowsOf(snapshot) {
			a.hits += row.Count
		}
		a.others += snapshot.Other.Count
		a.overflow += snapshot.Overflow
		if a.rows != nil && t.began.time.After(snapshot.Start) {
			snapshot.Start = t.began.time
		}
		// Hits that come while sites are detached do not count, nor does that
		// time.
		if over := t.over.Load(); over != nil && snapshot.Time.After(over.time) &&
			over.time.After(snapshot.Start) {
			snapshot.Time = over.time
		}
		all[i] = snapshot
	}
	return all, nil
}

// anew reports whether reading an aggregation begins it again.
func (t *tracer) anew(a *aggregation) bool { return t.options.interval > 0 && a.printed() }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
