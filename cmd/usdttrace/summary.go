// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/watch"
)

// maxOwnerLosses is how many owners of lost events are named.
const maxOwnerLosses = 5

// summary is what a run came to.
type summary struct {
	events uint64 // or hits that were aggregated
	collected

	losses losses

	late []*lateFile

	others   uint64 // hits of keys that have no row
	overflow uint64 // those of them that came too fast
	maxKeys  int

	sites  int
	files  int
	mode   string
	took   time.Duration
	frames *stack.Counts // nil where no stacks are asked for

	debuginfod string // what has been fetched, with its newline
	costs      *costs // nil unless asked for
	failures   bool   // the ends of all failed calls are known
	prepares   bool   // the calls are transactions of PostgreSQL
	savepoints bool   // statements of PostgreSQL that fail are asked for
	self       bool   // own times of calls are asked for
	unread     string // what could not be read, where hits are missing for that
	where      bool   // --where leaves hits and calls out
	watched    bool   // a command was watched, all of it from its start
	fromEvents bool   // stacks are counted from events
	slowed     string // which times contain the cost of a probe that is attached for them
	behind     string // which keys are behind pointers of the program
}

// keysBehindPointers returns the names in --by and --where that definitions
// have behind a pointer of the program.
func (t *tracer) keysBehindPointers() string {
	o := t.options
	patterns := slices.Clip(o.patterns)
	for _, pair := range o.pairs() {
		patterns = append(patterns, t.targets.definitions.Patterns(pair)...)
	}
	names := slices.Clone(o.by)
	for _, word := range strings.FieldsFunc(o.where, func(c rune) bool {
		return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		if !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	return strings.Join(slices.DeleteFunc(names, func(name string) bool {
		return !strings.Contains(t.targets.definitions.Key(name, patterns), "->")
	}), ", ")
}

// knowsFailures reports whether the ends of all failed calls are known.
func (t *tracer) knowsFailures() bool {
	return !slices.ContainsFunc(t.options.pairs(), func(pair defs.PairPattern) bool {
		return !t.targets.definitions.KnowsFailures(pair)
	})
}

// howEnded returns how the thread of a call ended inside it, if it did.
func (t *tracer) howEnded(e *trace.Event) string {
	if e.Ended == "" || t.knowsFailures() {
		return e.Ended
	}
	return e.Ended + ", unless it had ended before"
}

// mayHaveEnded reports whether a call seems to go on until its thread exits
// because it failed, or ended in another thread. One that was killed may have
// been why, and is printed with that doubt.
func (t *tracer) mayHaveEnded(e *trace.Event) bool {
	return e.Ended != "" && !strings.HasPrefix(e.Ended, "killed") && !t.knowsFailures()
}

// tooDeep says that calls were around more others than are kept, or may have
// been: of a command that was watched from its start, every end without a start
// is of a start that was forgotten.
func (s *summary) tooDeep() string {
	deep := min(s.losses.Replaced, s.losses.Unmatched)
	if deep == 0 || s.losses.Mismatch != "" {
		return ""
	}
	calls := fmt.Sprintf("up to %d of these calls may have been", deep)
	if s.watched && s.losses.Starts == 0 {
		calls = fmt.Sprintf("%d of these calls were", s.losses.Unmatched)
	}
	kept, more := 64, " (--self keeps 128 starts, python:function 512)"
	if s.self {
		kept, more = 128, " (python:function keeps 512 starts)"
	}
	return fmt.Sprintf("%s around more than %d others in their thread: the starts of the outer ones are not "+
		"kept then, and these calls are in no row%s", calls, kept, more)
}

// inCoroutines says that calls that were left may have been of coroutines.
func (s *summary) inCoroutines() string {
	left, ends := s.losses.Left, s.losses.Unmatched
	less, more := min(left, ends), max(left, ends)
	if less < 8 || more-less > more/8 || s.losses.Mismatch != "" {
		return ""
	}
	return "about as many calls were left as ends have no start: they may be calls of coroutines, in " +
		"threads where more than 30 go on: not all starts are kept then"
}

// report prints what has not been printed, and the summary.
func (t *tracer) report(c collected) error {
	mode, _ := t.options.mode.Resolve() // the session has resolved it
	s := &summary{mode: mode.String(), took: t.took(), events: c.events, collected: c,
		self: t.options.self, behind: t.keysBehindPointers()}
	s.fromEvents, s.unread, s.where = t.samples != nil, t.options.unread(), t.options.where != ""
	s.failures, s.slowed = t.knowsFailures(), t.targets.slowed()
	s.prepares = !slices.ContainsFunc(t.options.pairs(), func(pair defs.PairPattern) bool {
		return pair.String() != "postgresql:transaction"
	})
	s.savepoints = strings.Contains(t.options.where, "failed") &&
		slices.ContainsFunc(t.options.pairs(), func(pair defs.PairPattern) bool {
			return pair.String() == "postgresql:statement"
		})
	s.sites, s.files = t.targets.watched()
	if t.latecomers != nil {
		var complete bool
		if s.late, complete = t.latecomers.finish(); !complete {
			t.messages.Warn("other files may have been attached late: " +
				"the kernel has lost records of mappings")
		}
		s.watched = t.command != nil && complete && len(s.late) == 0
	}
	if s.sites == 0 {
		if !t.options.quiet {
			t.messages.Print(lateText(s.late))
		}
		return nil
	}
	if t.options.aggregates() {
		if err := t.reportRows(s); err != nil {
			return err
		}
	}
	if t.lost.err != nil {
		return t.lost.err
	}
	s.losses = t.lost
	if t.samples != nil {
		s.losses.Unreadable += t.samples.unreadable
	}
	if t.stacks != nil {
		counts := t.stacks.Counts()
		s.frames = &counts
		if t.debuginfod != nil {
			s.debuginfod = debuginfodText(t.debuginfod.Counts())
		}
	}
	if t.options.stats {
		s.costs = &t.costs
	}
	t.reportSummary(s)
	return nil // trace returns the error of the output
}

// reportRows prints the tables, and writes the profiles.
func (t *tracer) reportRows(s *summary) error {
	if err := t.printRows(); err != nil {
		return err
	}
	if t.samples != nil && t.samples.profile != nil {
		if err := t.writeProfiles(t.samples.profile, s.collected); err != nil {
			return err
		}
	}
	for _, a := range t.asked {
		if !a.printed() {
			snapshots, err := t.read(a)
			if err == nil {
				err = t.writeProfiles(t.profileOf(a, snapshots[0]), s.collected)
			}
			if err != nil {
				return err
			}
		}
		if a.rows == nil {
			s.events = max(s.events, a.hits)
		}
		s.others += a.others
		s.overflow += a.overflow
		s.maxKeys = a.MaxKeys
	}
	return nil
}

// notAggregated is how the summary begins with hits that no row of a table has.
const notAggregated = "not aggregated: "

// unread says what could not be read where hits are missing for that.
func (o *options) unread() string {
	switch {
	case o.where != "" && o.aggregates():
		return notAggregated + "a value or key, or what --where compares, could not be read: "
	case o.where != "":
		return "left out: what --where compares could not be read: "
	case o.sumIsFloat:
		return notAggregated + "a float was infinite or no number, or a value or key could not be read: "
	}
	return notAggregated + "a value or key could not be read: "
}

// reportSummary prints the calls that go on, the summary, and why nothing came.
func (t *tracer) reportSummary(s *summary) {
	if s.events == 0 {
		if relatives := t.relatives(); relatives != "" {
			t.messages.Warn("process %d hit nothing; %s", t.options.pid, relatives)
		}
	}
	if n := t.options.maxEvents; n == 0 || s.events < uint64(n) {
		t.printOpen(t.going)
	}
	t.printer.summary(s)
	switch {
	case t.out.Flush() != nil:
	case t.options.quiet:
		t.messages.Print(s.quietText())
	default:
		t.messages.Print(s.text())
		var lines []string
		if s.events == 0 {
			t.warnDenied(true)
			lines = t.whyNothing(&s.losses)
		} else {
			lines = t.otherFiles(true)
		}
		for _, line := range lines {
			t.messages.Print(line + "\n")
		}
	}
}

// quietText is text with no more than what tables lack, which look whole
// without it, and the costs if they were asked for.
func (s *summary) quietText() (text string) {
	for line := range strings.Lines(s.text()) {
		if strings.Contains(line, notAggregated) {
			text += line
		}
	}
	if s.costs != nil {
		text += s.costs.text()
	}
	return text
}

// mismatch says that starts and ends seem to belong together in another way
// than they are matched, and the flag to try.
func (l *losses) mismatch() string {
	switch {
	case l.Mismatch == "":
		return ""
	case l.isMixed():
		return l.Mismatch
	case l.Match == "":
		return l.Mismatch + ": --match?"
	}
	return fmt.Sprintf("%s: --match %s?", l.Mismatch, l.Match)
}

// isMixed reports whether nothing matches starts and ends.
func (l *losses) isMixed() bool { return strings.HasSuffix(l.Mismatch, "not measured") }

// guessed says where it is not known which end belongs to which start.
func (l *losses) guessed() string {
	if l.NoTables == "" {
		return ""
	}
	return l.NoTables + ": no unwinding tables (.eh_frame) for the probes of the call: the last start " +
		"ends first, and a call left by an exception can get the end of the one around it"
}

func (s *summary) text() string {
	text := fmt.Sprintf("%s, %d lost; %s; %s\n", plural(int(s.events), "event"), s.losses.Events,
		sitesIn(s.files, s.sites), formatDuration(float64(s.took)))
	for _, loss := range s.losses.owners[:min(len(s.losses.owners), maxOwnerLosses)] {
		text += fmt.Sprintf("of the lost events %s\n", ownerOfLoss(&loss))
	}
	if s.fromEvents && s.losses.Events > 0 {
		text += "counts and shares are of the hits that were not lost (--unwind fp loses none)\n"
	}
	const unended = " (PAIR|PROBE names another end)"
	left := "calls left before their end, as by an exception"
	if s.prepares {
		left = "transactions left before their end, as by PREPARE TRANSACTION"
	}
	without := "starts without an end"
	killed, exited := "calls whose process was killed by a signal", "calls whose thread or process exited"
	unfinished := "calls that were still running"
	unstarted := "ends without a start"
	if s.losses.Mismatch == "" {
		without += ", as of processes that ran exec"
		if !s.watched {
			unstarted += ", as of calls that had begun before"
		}
	}
	if !s.failures && s.losses.Mismatch == "" {
		left += unended
		without += ", or of calls that failed" + unended
		killed += ", or that had failed before" + unended
		exited += ", or that had failed before" + unended
		unfinished += ", or had failed and ended at another probe (PAIR|PROBE names it)"
	}
	match := " (--match names what both have)"
	if s.losses.isMixed() {
		match = ""
	}
	null := "a pointer was null or near it"
	if s.behind != "" {
		null += " (" + s.behind + ": of a process that works for no client of its own, as a parallel worker, " +
			"or is starting)"
	}
	for _, loss := range []struct {
		n    uint64
		what string
	}{
		{s.losses.NotSampled, fmt.Sprintf("hits not sampled: each event stands for "+
			"those of its process and site before it, on average for %.3g hits",
			float64(s.weight)/float64(max(s.collected.events, 1)))},
		{s.losses.Unrepresented, "hits came after the last one that was taken in their process and at " +
			"their site: no event stands for them"},
		{s.losses.Processes, "descendants not watched: there were too many at a time"},
		{s.others - min(s.others, s.overflow), fmt.Sprintf("hits are of the less frequent keys in (other): "+
			"there are more than %d (--max-keys)", s.maxKeys)},
		{s.overflow, "hits are in (other) because their keys came too fast for the room " +
			"in the kernel: they may have a row (--max-keys)"},
		{s.losses.Unreadable, s.unread + null + ", or " + notInMemory},
		{s.losses.SelfUnknown, notAggregated + "the own time is not known where a call inside was left without " +
			"its end, or where a thread has several stacks, as for coroutines, fibers or greenlets"},
		{s.unreadable, "with an <unreadable> argument: " + notInMemory},
		{s.losses.Starts, "not measured: there was no room for more starts"},
		{s.losses.Left, "not measured: " + left},
		{s.losses.Overlapped, "not measured: calls that overlap others, " +
			"so that it is not known which end belongs to which start" + match},
		{s.losses.Killed, "without an end: " + killed},
		{s.losses.Exited, "without an end: " + exited},
		{s.losses.Replaced, "not measured: " + without},
		{s.losses.Unfinished, "not measured: " + unfinished},
		{s.losses.Unmatched, "not measured: " + unstarted},
		{s.losses.Unsearched, "not listed: calls that had begun before and may go on, for which --where is not known"},
	} {
		if loss.n > 0 {
			text += fmt.Sprintf("%d %s\n", loss.n, loss.what)
		}
	}
	l := &s.losses
	if s.where && l.Starts+l.Left+l.Overlapped+l.Killed+l.Exited+l.Replaced+l.Unfinished+l.Unmatched > 0 {
		text += "calls that are not measured are counted whether --where would hold for them or not\n"
	}
	for _, doubt := range []string{s.losses.mismatch(), s.losses.guessed(), s.tooDeep(), s.inCoroutines(),
		s.slowed} {
		if doubt != "" {
			text += doubt + "\n"
		}
	}
	if s.savepoints {
		text += "not seen: statements that fail while the extended protocol parses or binds them, " +
			"in a transaction with savepoints or one that has failed already, and those of it " +
			"that fail when they commit (--latency postgresql:transaction --where failed --by activity)\n"
	}
	text += lateText(s.late)
	f := s.frames
	if f != nil && f.NoFile+f.NoFunction > 0 {
		text += fmt.Sprintf("%d of %d functions on stacks have no name: %d in no file, "+
			"%d in files without symbols for them\n",
			f.NoFile+f.NoFunction, f.Frames, f.NoFile, f.NoFunction)
	}
	text += s.debuginfod
	if f != nil && f.CutStacks > 0 {
		text += fmt.Sprintf("%s cut: deeper, or costlier to unwind, than a limit allows\n",
			plural(int(f.CutStacks), "stack"))
	}
	if s.costs != nil {
		text += fmt.Sprintf("attached by %s\n", s.mode) + s.costs.text()
	}
	return text
}

// losses has the losses up to a moment.
type losses struct {
	trace.Losses
	owners []ownerLoss // whose events were lost, the most first
	err    error       // why it is not known

	filtered   bool // there was a hit for which the condition was false
	perfEvents int  // that the kernel has to close
}

// askLosses asks for the losses so far.
func (t *tracer) askLosses() losses {
	l, err := t.session.Losses()
	if err != nil {
		return losses{err: err}
	}
	stats, err := t.session.Stats()
	if err != nil {
		return losses{err: err}
	}
	lost := losses{Losses: l, filtered: stats.Filtered, perfEvents: stats.PerfEvents}
	for _, row := range stats.LostBy {
		lost.owners = append(lost.owners, ownerLoss{row.Keys[0].Uint(), row.Keys[1].Uint(), row.Count})
	}
	return lost
}

// ownerLoss counts the events of an owner that found no room.
type ownerLoss struct {
	cgroup uint64 // 0 for the root: then the owner is the user
	user   uint64
	events uint64
}

// counts are the losses that only become more.
func (l *losses) counts() []*uint64 {
	return []*uint64{&l.Events, &l.Unreadable, &l.SelfUnknown, &l.Starts, &l.NotSampled, &l.Unrepresented,
		&l.Left, &l.Overlapped, &l.Replaced, &l.Killed, &l.Exited, &l.Unmatched}
}

// since returns the losses after an earlier moment. Hits that come while sites
// are attached or detached are not measured, and so are not lost.
func (l losses) since(before losses) losses {
	less := func(n *uint64, by uint64) { *n -= min(*n, by) }
	earlierCounts := before.counts()
	for i, n := range l.counts() {
		less(n, *earlierCounts[i])
	}
	earlier := make(map[ownerLoss]uint64, len(before.owners)) // by the owner alone
	for _, loss := range before.owners {
		earlier[ownerLoss{cgroup: loss.cgroup, user: loss.user}] = loss.events
	}
	l.owners = slices.Clone(l.owners)
	for i := range l.owners {
		loss := &l.owners[i]
		less(&loss.events, earlier[ownerLoss{cgroup: loss.cgroup, user: loss.user}])
	}
	l.owners = slices.DeleteFunc(l.owners,
		func(loss ownerLoss) bool { return loss.events == 0 })
	slices.SortStableFunc(l.owners,
		func(a, b ownerLoss) int { return cmp.Compare(b.events, a.events) })
	return l
}

// costs is what the tracing itself has cost. The kernel knows it of programs
// that are attached, so it has to be asked before any is detached.
type costs struct {
	mu       sync.Mutex
	programs map[ebpf.ProgramID]programStats
	maps     uint64       // memory of all maps, in bytes
	watch    *watch.Stats // nil if no processes are followed
}

type programStats struct {
	Info *ebpf.ProgramInfo
	*ebpf.ProgramStats
}

// ask asks the kernel for the costs, with --stats.
func (c *costs) ask(t *tracer) {
	if !t.options.stats {
		return
	}
	stats, err := t.session.Stats()
	if err != nil {
		t.warnFailed(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.programs == nil {
		c.programs = make(map[ebpf.ProgramID]programStats)
	}
	for info, p := range stats.Programs {
		id, _ := info.ID()
		c.programs[id] = programStats{info, p}
	}
	c.maps = stats.MapMemory
	if t.follower != nil && t.follower.watch != nil {
		watch := t.follower.watch.Stats()
		c.watch = &watch
	}
}

func (c *costs) all() []programStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []programStats
	for _, id := range slices.Sorted(maps.Keys(c.programs)) {
		all = append(all, c.programs[id])
	}
	return all
}

// memory returns what programs and maps take in the kernel, in bytes.
func (c *costs) memory() (programs, maps uint64) {
	for _, p := range c.all() {
		memory, _ := p.Info.Memlock()
		programs += memory
	}
	return programs, c.maps
}

// perRun returns how long a program runs, on average, in nanoseconds.
func perRun(p *programStats) float64 {
	if p.RunCount == 0 {
		return 0
	}
	return float64(p.Runtime/time.Nanosecond) / float64(p.RunCount)
}

// instructions returns the number of instructions, of 8 bytes, that the
// verifier has left of a program; 0 if the kernel does not say.
func instructions(p *programStats) int {
	size, err := p.Info.TranslatedSize()
	if err != nil {
		return 0
	}
	return size / 8
}

// ownerOfLoss returns "12 of cgroup 4711" or "12 of user 1000".
func ownerOfLoss(l *ownerLoss) string {
	if l.cgroup != 0 {
		return fmt.Sprintf("%d of cgroup %d", l.events, l.cgroup)
	}
	return fmt.Sprintf("%d of user %d", l.events, l.user)
}

func (c *costs) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s  %10s  %8s  %8s  %12s\n", "PROGRAM", "RUNS", "NS/RUN", "MISSED",
		"INSTRUCTIONS")
	for _, p := range c.all() {
		fmt.Fprintf(&b, "%-15s  %10d  %8.0f  %8d  %12d\n", p.Info.Name, p.RunCount, perRun(&p),
			p.RecursionMisses, instructions(&p))
	}
	programs, maps := c.memory()
	fmt.Fprintf(&b, "memory in the kernel: programs %d kB, maps %d kB\n", (programs+1023)/1024,
		(maps+1023)/1024)
	if w := c.watch; w != nil {
		fmt.Fprintf(&b, "of --limits: %d sites and %d descriptors in use; "+
			"not attached: %d over a limit, %d that wait for their turn\n",
			w.Sites, w.Descriptors, w.OverLimit, w.Waiting)
	}
	return b.String()
}
