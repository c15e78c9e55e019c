// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/debuginfod"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

const (
	// maxStack is how many frames the kernel walks: its own default
	// (kernel.perf_event_max_stack).
	maxStack = 127

	// stackCopy is how many bytes of a stack are copied by default, enough for
	// a hundred functions of usual size. maxStackCopy is the limit of --unwind.
	stackCopy    = 16 << 10
	maxStackCopy = 64 << 10

	// unwindBuffer is the default size of the ring buffer if each event has
	// such a copy: for 1500 events with 16 kB.
	unwindBuffer = 32 << 20
)

// The ways to find the callers of a function.
const (
	unwindDWARF = "dwarf" // here, from a copy of the stack
	unwindFP    = "fp"    // in the kernel, by frame pointers
)

// parseUnwind reads --unwind, and decides how callers are found.
func (o *options) parseUnwind() error {
	way := o.way
	asked := o.eventStacks() || o.profiles() && !o.self || o.byStack()
	const with = " goes with --stack, --start-stack, --by stack, --pprof, --folded and --flamegraph"
	switch {
	case o.lines && !asked:
		return errors.New("--lines" + with)
	case o.debuginfod && !asked:
		return errors.New("--debuginfod" + with)
	}
	possible := slices.Contains([]string{"amd64", "arm64", "riscv64", "s390x"}, runtime.GOARCH)
	reason := o.needsKernel()
	method, size, sized := strings.Cut(way, ":")
	switch {
	case way == unwindFP, way == "" && !(asked && possible && reason == ""):
		return nil
	case way == "":
	case method != unwindDWARF:
		return fmt.Errorf("--unwind %q: want %s, %s:SIZE or %s", way, unwindDWARF, unwindDWARF,
			unwindFP)
	case !asked:
		return errors.New("--unwind " + way + with)
	case !possible:
		return fmt.Errorf("--unwind %s: not on %s", way, runtime.GOARCH)
	case reason != "":
		return fmt.Errorf("--unwind %s: stacks with %s are counted in the kernel, "+
			"which walks them by frame pointers only", way, reason)
	}
	o.unwind = stackCopy
	if sized {
		if err := setSize(&o.unwind, maxStackCopy, "64k")(size); err != nil {
			return fmt.Errorf("--unwind %q: %w", way, err)
		}
	}
	return nil
}

// recordMappings has the kernel record which files are mapped, so that
// functions of processes that end at once have names.
func (t *tracer) recordMappings() {
	tid := 0
	if t.command != nil {
		tid = t.command.tid
	}
	if err := t.stacks.Record(tid); err != nil {
		t.messages.Warn("functions of processes that end at once may have no names: %v", err)
	}
}

// stackOf returns the user stack of an event, the innermost address first.
func (t *tracer) stackOf(e *trace.Event) []uint64 {
	if t.options.unwind == 0 {
		return e.Stack
	}
	addresses := t.stacks.Unwind(context.Background(), e.PID, e.Registers, e.StackCopy)
	if len(addresses) == 1 && len(e.Stack) > 1 {
		return e.Stack // such as if the process ended before it was scanned
	}
	return addresses
}

// renewStacks is how often known stacks are walked anew: the code of a process
// can change.
const renewStacks = time.Second

// knowsStacks reports whether the kernel may count hits whose stacks are known,
// because nothing else of them matters.
func (o *options) knowsStacks() bool {
	return o.fromEvents() && o.unwind > 0 && !o.samples() && o.sum == "" && o.maxEvents == 0 &&
		!slices.ContainsFunc(o.by, func(by string) bool {
			return by != "stack" && by != "pid" && by != "probe"
		})
}

// knowStacks makes the map of known stacks. It returns nil if there is no room:
// then each hit is sent.
func (t *tracer) knowStacks() *ebpf.Map {
	const noPrealloc = 1 // BPF_F_NO_PREALLOC
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "trace_known", Type: ebpf.Hash, KeySize: unwind.KnownKeySize,
		ValueSize: unwind.KnownNodeSize, MaxEntries: unwind.MaxKnownNodes, Flags: noPrealloc})
	if err != nil {
		return nil
	}
	t.atEnd(func() { m.Close() })
	t.known = &unwind.KnownStacks{Map: m}
	return m
}

// collect adds an event, and has the kernel count those with the same stack
// from then on.
func (s *samples) collect(e *trace.Event) {
	known := s.tracer.known
	if known == nil {
		s.add(e, s.tracer.stackOf(e))
		return
	}
	var trail unwind.Trail
	stack := s.tracer.stacks.Unwind(unwind.WithTrail(context.Background(), &trail), e.PID, e.Registers,
		e.StackCopy)
	if len(stack) == 1 && len(e.Stack) > 1 {
		s.add(e, e.Stack)
		return
	}
	s.add(e, stack)
	if trail.IsLost {
		return
	}
	again := &trace.Event{PID: e.PID, Site: e.Site}
	stack = slices.Clone(stack)
	known.Know(uint32(e.PID), stack[0], trail.Words, fmt.Sprint(e.PID, stack), func(hits uint64) {
		again.Weight = hits
		s.add(again, stack)
	})
}

// renew has known stacks walked anew until the tracing ends.
func (s *samples) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewStacks):
			s.tracer.known.Renew()
		}
	}
}

// mergeStacks merges the rows of several processes that have the same stack,
// unless the process is a key.
func (t *tracer) mergeStacks(s *trace.Snapshot) *trace.Snapshot {
	if !t.options.byStack() || slices.Contains(t.options.by, "pid") {
		return s
	}
	return s.Merge(func(row *trace.Row) string { return t.stackKey(s.By, row) })
}

// stackKey is equal for rows of equal keys, and of stacks of the same functions
// of any process.
func (t *tracer) stackKey(by []string, row *trace.Row) string {
	var key []byte
	for i, k := range row.Keys {
		if by[i] == "stack" {
			key = append(key, t.stacks.Key(int(k.Uint()), row.Stack)...)
		} else {
			key = fmt.Appendf(key, "/%d:%q", k.Kind(), k.String())
		}
	}
	return string(key)
}

// maxAskedSites bounds the sites of a file that are checked for frame pointers.
const maxAskedSites = 64

// warnFramePointers warns that stacks need frame pointers if an attached file
// seems to be built without.
func (t *tracer) warnFramePointers(a *trace.Attachment) {
	if t.stacks == nil || t.options.unwind > 0 {
		return
	}
	without, sites := false, a.Sites()
	if !deadline.One(t.ctx, memoryPatience, func() {
		without = lacksFramePointers(seenBy(a.Process().PID, a.Path()), sites)
	}, nil) || !without {
		return
	}
	advice := "--unwind dwarf does without them"
	if reason := t.options.needsKernel(); reason != "" {
		advice = "with " + reason + " there is no other way"
	}
	t.messages.WarnOf("files without frame pointers",
		"stacks are found by frame pointers, which %s seems to have been built without: "+
			"what follows the innermost function may be missing or wrong (%s)", a.Path(), advice)
}

// lacksFramePointers reports whether none of the sites has a frame pointer, as
// far as the tables of the file say.
func lacksFramePointers(path string, sites []*trace.Site) (known bool) {
	file, err := elffile.Open(path)
	if err != nil {
		return false // it may be of another mount namespace
	}
	defer file.Close()
	table, err := unwind.Read(file)
	if err != nil {
		return false
	}
	for _, site := range sites[:min(len(sites), maxAskedSites)] {
		has, ok := table.HasFramePointer(site.Location)
		if has {
			return false
		}
		known = known || ok
	}
	return known
}

// maxStackRows bounds the rows that are kept. Each takes a kilobyte or two.
const maxStackRows = 1 << 17

// samples counts the stacks of events: as a profile, and with --by stack as
// rows like those that the kernel returns of other aggregations.
type samples struct {
	tracer  *tracer
	sum     int            // the argument to add up, -1 for none
	profile *stack.Profile // nil if no file is to be written
	tables  []*eventRows
	mu      sync.Mutex // of add

	unreadable uint64 // hits without the value that is to be added up
}

// eventRows are the rows of one aggregation.
type eventRows struct {
	tracer *tracer
	sum    bool // of hits with a value, which is added up

	mu    sync.Mutex
	since time.Time
	rows  []*trace.Row
	of    map[string]*trace.Row
	lost  uint64 // hits for which there was no room
}

func (t *tracer) newSamples() *samples {
	s := &samples{tracer: t, sum: -1}
	var sum *profile.ValueType
	if n, ok := argumentNumber(t.options.sum); ok {
		s.sum, sum = n, &profile.ValueType{Type: t.options.sum, Unit: "count"}
	}
	if t.options.profiles() {
		s.profile = t.newProfile(sum)
	}
	for _, a := range t.asked {
		if a.inKernel == nil {
			a.rows = &eventRows{tracer: t, sum: a.Sum, of: make(map[string]*trace.Row)}
			s.tables = append(s.tables, a.rows)
		}
	}
	return s
}

func (s *samples) add(e *trace.Event, stack []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := []int64{int64(e.Weight)}
	var value trace.Value
	isComplete := s.sum < 0 || s.sum < len(e.Args) && isInteger(e.Args[s.sum])
	switch {
	case !isComplete:
		s.unreadable += e.Weight
	case s.sum >= 0:
		value = e.Args[s.sum]
		values = append(values, s.tracer.profileSum(times(value, e.Weight)))
	}
	for _, table := range s.tables {
		if isComplete || !table.sum {
			table.add(e, stack, value)
		}
	}
	if s.profile == nil || !isComplete {
		return
	}
	labels := make(map[string]string)
	for _, by := range s.tracer.options.by {
		if by != "stack" {
			labels[by] = label(e, by)
		}
	}
	s.profile.Add(context.Background(), e.PID, stack, values, labels)
}

func isInteger(v trace.Value) bool {
	return v.Kind() == trace.Unsigned || v.Kind() == trace.Signed
}

// add adds an event to its row, and value to the row's sum if there is one.
func (s *eventRows) add(e *trace.Event, stack []uint64, value trace.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &trace.Row{Stack: stack}
	for _, name := range s.tracer.options.by {
		added.Keys = append(added.Keys, keyOf(e, name))
	}
	key := s.tracer.stackKey(s.tracer.options.by, added)
	row := s.of[key]
	if row == nil {
		if len(s.rows) == maxStackRows {
			s.lost += e.Weight
			return
		}
		row, added.Stack = added, slices.Clone(stack)
		s.of[key], s.rows = row, append(s.rows, row)
	}
	row.Count += e.Weight
	if s.sum {
		*row = merged(*row, trace.Row{Min: value, Max: value, Sum: times(value, e.Weight)})
	}
}

// merged adds a row to another one as package trace does: a sum that 64 bits
// cannot hold becomes a float.
func merged(row, more trace.Row) trace.Row {
	s := trace.Snapshot{Other: row, Rows: []trace.Row{more}}
	return s.Top(0).Other
}

// times returns an integer as often as it is to be added up.
func times(value trace.Value, n uint64) (product trace.Value) {
	double := trace.ValueOf(value.Uint())
	if value.Kind() == trace.Signed {
		double = trace.ValueOf(value.Int())
	}
	if n == 1 { // as of nearly all events
		return double
	}
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			product = merged(trace.Row{Sum: product}, trace.Row{Sum: double}).Sum
		}
		double = merged(trace.Row{Sum: double}, trace.Row{Sum: double}).Sum
	}
	return product
}

// keyOf returns the value of a key for an event, as a row has it.
func keyOf(e *trace.Event, by string) trace.Value {
	switch by {
	case "stack", "pid":
		return trace.ValueOf(uint64(e.PID))
	case "tid":
		return trace.ValueOf(uint64(e.TID))
	case "cpu":
		return trace.ValueOf(uint64(e.CPU))
	case "comm":
		return trace.ValueOf(e.Command)
	case "probe":
		return trace.ValueOf(probeName(e.Site))
	}
	if n, ok := argumentNumber(by); ok && n < len(e.Args) {
		return e.Args[n]
	}
	return trace.ValueOf("?")
}

// label returns the value of a key as a text.
func label(e *trace.Event, by string) string {
	v := keyOf(e, by)
	if text, _ := v.Data(); v.Kind() == trace.Text {
		return string(text)
	}
	return v.String()
}

// snapshot returns copies of the rows, the largest first, as an aggregation
// does. If anew is set, counting begins anew.
func (s *eventRows) snapshot(anew bool, maxKeys int) *trace.Snapshot {
	s.tracer.known.Take()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &trace.Snapshot{Start: s.since, Time: time.Now(), By: s.tracer.options.by,
		Other: trace.Row{Count: s.lost}}
	for _, row := range s.rows {
		all.Rows = append(all.Rows, *row)
	}
	slices.SortStableFunc(all.Rows,
		func(a, b trace.Row) int { return cmp.Compare(b.Count, a.Count) })
	if anew {
		s.since, s.rows, s.lost = all.Time, nil, 0
		clear(s.of)
	}
	return all.Top(maxKeys)
}

// profileFile is a file that stacks are written to.
type profileFile struct {
	flag, path string
	write      func(*stack.Profile, context.Context, io.Writer) error
	use        string // what to do with it
	file       *commandline.Output
}

func (o *options) profileFiles() []*profileFile {
	graph := func(p *stack.Profile, ctx context.Context, w io.Writer) error {
		return p.WriteFlameGraph(ctx, w, o.profileTitle())
	}
	return slices.DeleteFunc([]*profileFile{
		{"pprof", o.pprofFile, (*stack.Profile).Write, "go tool pprof " + o.pprofFile, nil},
		{"folded", o.foldedFile, (*stack.Profile).WriteFolded,
			"for tools that draw flame graphs", nil},
		{"flamegraph", o.flamegraphFile, graph, "open it in a browser", nil},
	}, func(f *profileFile) bool { return f.path == "" })
}

func (o *options) profiles() bool { return o.pprofFile+o.foldedFile+o.flamegraphFile != "" }

func (o *options) profileTitle() string {
	var words []string
	if o.sum != "" {
		words = append(words, "sum of "+o.sum+" of")
	}
	if o.latency != nil {
		words = append(words, o.latencyTitle())
	} else {
		for _, p := range o.patterns {
			words = append(words, p.String())
		}
	}
	for _, file := range o.files {
		words = append(words, filepath.Base(file))
	}
	if o.pid != 0 {
		words = append(words, fmt.Sprintf("process %d", o.pid))
	}
	title := strings.Join(words, " ")
	switch {
	case o.every > 1:
		title += fmt.Sprintf(", from one hit in %d", o.every)
	case o.rate > 0:
		title += fmt.Sprintf(", from %d hits a second on each processor", o.rate)
	}
	return title
}

// newProfile returns a profile of hits, and of sum unless that is nil.
func (t *tracer) newProfile(sum *profile.ValueType) *stack.Profile {
	types := []profile.ValueType{{Type: "hits", Unit: "count"}}
	if sum != nil {
		types = append(types, *sum)
	}
	p := stack.NewProfile(t.stacks, types...)
	p.ByProcess = slices.Contains(t.options.by, "pid")
	return p
}

// profileOf returns the profile of rows that the kernel has counted.
func (t *tracer) profileOf(a *aggregation, s *trace.Snapshot) *stack.Profile {
	var sum *profile.ValueType
	switch {
	case a.duration:
		sum = &profile.ValueType{Type: "latency", Unit: "nanoseconds"}
	case a.Sum:
		sum = &profile.ValueType{Type: a.Value, Unit: "count"}
	}
	if t.stacks != nil {
		t.stacks.Remember()
	}
	p := t.newProfile(sum)
	for i := range s.Rows {
		row := &s.Rows[i]
		values := []int64{int64(row.Count), t.profileSum(row.Sum)}
		if t.options.byCalls() {
			p.AddFrames(0, framesOfCalls(&row.Keys[0]), values, nil)
			continue
		}
		pid, _ := stackOf(s, row)
		labels := make(map[string]string)
		for n, key := range row.Keys {
			if s.By[n] != "stack" {
				labels[s.By[n]] = elffile.Shorten(key.String(), maxText)
			}
		}
		p.Add(context.Background(), pid, row.Stack, values, labels)
	}
	if other := &s.Other; other.Count > 0 { // of more stacks than --max-keys
		p.Add(context.Background(), 0, nil, []int64{int64(other.Count), t.profileSum(other.Sum)},
			map[string]string{"stack": otherRow})
	}
	return p
}

// framesOfCalls returns the calls that a key names, the innermost first.
func framesOfCalls(key *trace.Value) (frames []stack.Frame) {
	text, _ := key.Data()
	for _, name := range slices.Backward(strings.Split(string(text), ";")) {
		frames = append(frames, stack.Frame{Function: name})
	}
	return frames
}

// debugFilePatience is how long a run waits for debug files at its end.
const debugFilePatience = time.Minute

// awaitDebugFiles waits at the end of a run for the debug files still to come.
func (t *tracer) awaitDebugFiles() {
	if t.debuginfod == nil || t.debuginfod.Counts().Waiting == 0 || t.ctx.Err() == nil {
		return
	}
	defer t.messages.Progress(func() string {
		return "waiting for " + plural(t.debuginfod.Counts().Waiting, "debug file")
	})()
	ctx, cancel := context.WithTimeout(context.Background(), debugFilePatience)
	defer cancel()
	t.debuginfod.Wait(ctx)
}

// debuginfodText sums up the fetched debug files, "" if none was asked for.
func debuginfodText(c debuginfod.Counts) string {
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, text)
		}
	}
	add(c.Fetched, fmt.Sprintf("%s fetched (%.1f MB)", plural(c.Fetched, "debug file"),
		float64(c.Bytes)/1e6))
	add(c.Cached, plural(c.Cached, "debug file")+" found in the cache")
	add(c.Missing, "no server has that of "+plural(c.Missing, "build"))
	add(c.Waiting, fmt.Sprintf("%d did not come in time (try again)", c.Waiting))
	add(c.Failed, fmt.Sprintf("%d failed: %v", c.Failed, c.Err))
	if len(parts) == 0 {
		return ""
	}
	return "debuginfod: " + strings.Join(parts, "; ") + "\n"
}

// wantNames asks for the names of the rows' functions, waits for the debug
// files that servers have for them, and looks for source lines.
func (t *tracer) wantNames(s *trace.Snapshot) {
	want := func() {
		for i := range s.Rows {
			pid, _ := stackOf(s, &s.Rows[i])
			t.stacks.Want(context.Background(), pid, s.Rows[i].Stack)
		}
	}
	if t.debuginfod != nil {
		want()
		t.awaitDebugFiles()
	}
	if t.options.lines && t.options.byStack() {
		want()
	}
}

// profileSum returns a sum as an int64, which profiles hold. A sum out of range
// becomes the nearest int64, that of no number 0, and that is said.
func (t *tracer) profileSum(sum trace.Value) (held int64) {
	switch f := sum.Float(); {
	case math.IsNaN(f): // 0, as Go leaves the conversion to the processor
	case sum.Kind() != trace.Signed && f >= math.MaxInt64:
		held = math.MaxInt64
	case sum.Kind() == trace.Float && f <= math.MinInt64:
		held = math.MinInt64
	case sum.Kind() == trace.Float:
		return int64(f)
	default:
		return sum.Int()
	}
	t.messages.WarnOf("sums in the profile", "the sum of a stack is %s: the profile has %d, the "+
		"nearest that it can hold", sum, held)
	return held
}

func (t *tracer) writeProfiles(p *stack.Profile, c collected) error {
	if t.options.samples() {
		p.PeriodType = profile.ValueType{Type: "hits", Unit: "count"}
		// The hits that an event stands for.
		p.Period = max(1, int64((c.weight+c.events/2)/max(1, c.events)))
	}
	p.Start, p.Duration = t.began.time, t.took()
	t.awaitDebugFiles()
	ctx := context.Background() // the tracing has ended
	for _, f := range t.profiles {
		if err := f.file.WriteWhole(func(w io.Writer) error { return f.write(p, ctx, w) }); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
		shown, n := p.Len(ctx)
		t.messages.Note("wrote %s to %s (%s)", plural(shown, "stack"), f.path, f.use)
		if n > 0 && f.flag != "pprof" {
			t.messages.Warn("%s not in %s: their sums are below 0, see --pprof or --by stack",
				plural(n, "stack"), f.path)
		}
	}
	return nil
}

// needsKernel returns the flag because of which stacks are counted in the
// kernel rather than from events, "" if there is none.
func (o *options) needsKernel() string {
	switch _, isArgument := argumentNumber(o.sum); {
	case o.latency != nil:
		return "--latency"
	case o.byStack() && o.hist != "":
		return "--hist"
	case o.sum != "" && o.sumIsFloat:
		return "--sum of a float"
	case o.sum != "" && !isArgument:
		return "--sum of more than an argument"
	}
	for _, by := range o.by {
		if _, ok := argumentNumber(by); !ok && !slices.Contains([]string{"stack", "comm", "pid",
			"tid", "cpu", "probe"}, by) {
			return "--by " + by
		}
	}
	return ""
}

// fromEvents reports whether stacks are counted here, from events: because they
// are unwound here, or because hits are sampled.
func (o *options) fromEvents() bool {
	return (o.profiles() || o.byStack()) && o.needsKernel() == "" && (o.unwind > 0 || o.samples())
}

// samples reports whether hits are sampled.
func (o *options) samples() bool { return o.every > 1 || o.rate > 0 }

// argumentIndex returns the index of the argument called argN, or called name
// by the definition, which may be nil.
func argumentIndex(name string, probe *defs.Probe) (n int, ok bool) {
	if n, ok = argumentNumber(name); !ok && probe != nil {
		n = slices.IndexFunc(probe.Arguments,
			func(a defs.Argument) bool { return a.Name == name })
	}
	return n, n >= 0 && (ok || probe != nil)
}

// argumentNumber returns N of "argN".
func argumentNumber(term string) (int, bool) {
	digits, ok := strings.CutPrefix(term, "arg")
	n, err := strconv.ParseUint(digits, 10, 8)
	return int(n), ok && err == nil
}
