// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// OpenCalls returns the calls that have been going on for longer than the given
// time, the longest first: those that hang right now. They are calls of every
// [Latency] of the session for which Filter and Aggregation.Where may hold at
// their end. Values that only the end has, such as its arguments, its probe and
// cpu, are not known: comparisons with these count as true. Of process and
// thread, user, group, control group and variables of the program, the values
// at the start are compared; but with [Latency].By, another thread may end the
// call, and comparisons with tid and comm count as true. Calls are left out if
// their thread or process has ended, if they have failed (see [Event.Failed]),
// or if their probes are not attached any more.
//
// If texts of variables of the program, or of members behind these, are
// captured, an event has the Site of its Start, and as Args those of the Start
// with the texts that the variables lead to now. These are read from the memory
// of the process, on 64-bit machines whose lowest byte is first, and are
// Unreadable if they change meanwhile or that takes longer than a second. A
// text that the program has freed without changing the variable may be another
// one.
//
// The events have a Start, an [Event.Pair], and as Duration the time since the
// start. Start has the same fields as for a call that has ended. If only an
// aggregation measures the call, and Spans do not, Start has no Site and no
// arguments. Its Command is the present one if the kernel has kept no other.
// PID and TID are 0 where those of events are. TID is also 0 if the call does
// not belong to a thread.
//
// It works until [Session.Detach], and takes some 10 ms for each 10,000 threads
// that have passed the probes.
func (s *Session) OpenCalls(longer time.Duration) ([]*Event, error) {
	var open []*Event
	var again []goingCall // what is read again of them
	err := s.use(func() error {
		s.openCalls.takeExits(s)
		r, err := s.callReader()
		if err != nil {
			return err
		}
		for _, l := range s.latencies {
			if err := l.each(func(key [2]uint64, calls []bpfgen.OpenCall, _ []byte) error {
				pid, _, pair := bpfgen.Caller(key)
				for _, call := range calls {
					of, known := r.pairs[pair]
					c := &Event{call: &of, Duration: r.now.monotonic - call.Began}
					if !known || c.Duration <= longer || s.execAfter(pid, call.Began) ||
						!s.mayCount(l, &call, c.Duration) {
						continue
					}
					if c.Start, err = r.openStart(l, key, &of, &call, nil); err != nil {
						return err
					}
					if c.Start == nil || !l.has(key, call) {
						continue
					}
					if site := c.Start.Site; site != nil && len(site.later) > 0 && s.plan.Kernel.PIDs == nil {
						again = append(again, goingCall{c, l, key, call})
						continue
					}
					open = append(open, c)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		open = append(open, readAllNow(again)...)
		return nil
	})
	open = append(open, s.before.open(s, longer)...)
	slices.SortFunc(open, func(a, b *Event) int { return cmp.Compare(b.Duration, a.Duration) })
	return open, err
}

type goingCall struct {
	*Event
	latency *latency
	key     [2]uint64
	call    bpfgen.OpenCall
}

// readAllNow returns the calls that still go on after their captured texts have
// been read again. These are unreadable where that takes too long.
func readAllNow(calls []goingCall) (open []*Event) {
	starts := make([]Event, len(calls)) // of their own: the callers' may change before a late read ends
	for i, c := range calls {
		starts[i] = *c.Start
		starts[i].Args = slices.Clone(c.Start.Args)
	}
	read := inTime(beforePatience, len(calls), func(i int) []Value {
		return readNow(starts[i].PID, starts[i].Site, starts[i].Args)
	})
	for i, c := range calls {
		if !c.latency.has(c.key, c.call) {
			continue
		}
		if c.Site = c.Start.Site; read != nil {
			c.Args = read[i]
		} else {
			c.Args = readNow(0, c.Site, c.Start.Args)
		}
		open = append(open, c.Event)
	}
	return open
}

// inTime returns what n reads return, one after the other, or nil if that takes
// too long. Reads may go on after that.
func inTime(patience time.Duration, n int, read func(i int) []Value) [][]Value {
	all := make([][]Value, n)
	if !deadline.One(context.Background(), patience, func() {
		for i := range all {
			all[i] = read(i)
		}
	}, nil) {
		return nil
	}
	return all
}

// callReader makes events of the calls that the kernel has kept.
type callReader struct {
	*Session
	pairs   map[uint32]defs.Pair // by number
	decoder *decoder
	now     clocks
}

func (s *Session) callReader() (callReader, error) {
	r := callReader{Session: s, pairs: make(map[uint32]defs.Pair), decoder: newDecoder(&s.sites, false)}
	for _, a := range s.Attachments() {
		maps.Copy(r.pairs, a.names)
	}
	var ok bool
	if r.now, ok = readClocks(); !ok {
		return r, errors.New("the clocks cannot be read")
	}
	r.decoder.wall = r.now.wall
	return r, nil
}

// each calls a function for the calls on each stack that the kernel has.
func (l *latency) each(do func(key [2]uint64, calls []bpfgen.OpenCall, stack []byte) error) error {
	return eachOnce(l.calls, "reading the calls that go on",
		func(key [2]uint64, stack *[]byte) error {
			return do(key, l.Calls(*stack), *stack)
		})
}

// has reports whether a call that was read is still there. Threads go on while
// their calls are read: one that has changed meanwhile may be a mixture.
func (l *latency) has(key [2]uint64, call bpfgen.OpenCall) bool {
	var stack []byte
	return l.calls.Lookup(&key, &stack) == nil && slices.Contains(l.Calls(stack), call)
}

// openStart returns the start of a call that goes on, or nil if its thread or
// process has ended. If that is known, ended is its end.
func (r *callReader) openStart(
	l *latency, key [2]uint64, pair *defs.Pair, call *bpfgen.OpenCall, ended *Event,
) (*Event, error) {
	start := &Event{Monotonic: call.Began, Time: time.Unix(0, int64(call.Began)+r.now.wall), CPU: -1,
		Weight: 1, Probe: pair.Start.Provider + ":" + pair.Start.Name}
	switch {
	case ended != nil:
		start.PID, start.TID, start.Command = ended.PID, ended.TID, ended.Command
		start.CgroupID = ended.CgroupID
	case r.plan.Kernel.PIDs == nil:
		start.PID, start.TID, _ = bpfgen.Caller(key)
		var there bool
		if start.Command, there = commandSince(start.PID, start.TID, call.Began); !there {
			return nil, nil
		}
	}
	if !l.Spans {
		return start, nil
	}
	site := r.sites.get(call.Site)
	if site == nil || site.starts == nil {
		return nil, nil // detached meanwhile
	}
	saved := make([]byte, l.SavedSize)
	err := l.saved.Lookup([3]uint64{key[0], key[1], call.Slot}, &saved)
	if err := ignoreMissing(err); err != nil {
		return nil, err
	}
	if err != nil || !call.Saved ||
		binary.NativeEndian.Uint64(saved[l.SavedSize-8:]) != uint64(call.Began) { // of another call
		saved = nil
	}
	r.decoder.decodeStart(start, site, saved)
	return start, nil
}

// mayCount reports whether an open call may become an event, or part of an
// aggregation, when it ends.
func (s *Session) mayCount(l *latency, call *bpfgen.OpenCall, d time.Duration) bool {
	may := func(n *expr.Node) bool {
		if n == nil {
			return true
		}
		yes, _ := outcomes(n, call, d, false)
		return yes
	}
	counts := l.Spans
	for _, a := range s.aggregations {
		counts = counts || a.Latency == &l.Latency && may(a.Where)
	}
	return counts && may(s.plan.Filter)
}

// outcomes reports whether a condition on an open call can be true, and whether
// it can be false. Of a comparison that is negated the kernel has kept whether
// the opposite holds.
func outcomes(
	n *expr.Node, call *bpfgen.OpenCall, d time.Duration, negated bool,
) (yes, no bool) {
	if n.OfStart() || n.Held {
		holds := call.Conditions&(1<<n.AtStart) != 0
		return holds != negated, holds == negated
	}
	if len(n.Nodes) > 0 {
		return n.Combined(func(part *expr.Node) (yes, no bool) {
			return outcomes(part, call, d, negated != (n.Op == expr.Not))
		})
	}
	left, right, op := n.Left, n.Right, n.Op
	if left.Source == expr.Number {
		left, right, op = right, left, op.Mirrored()
	}
	var value uint64
	switch {
	case left.Source == expr.Duration:
		value = uint64(d)
	case left.Source == expr.Failed && call.Failed:
		value = 1
	case left.Source == expr.Failed: // not so far
	default:
		return true, true
	}
	if right.Source != expr.Number {
		return true, true
	}
	if left.HasMask {
		value &= left.Mask
	}
	yes = op.Holds(expr.Uint(value).Compare(right.Number))
	return yes, !yes
}

// openCalls counts the calls that have started and not ended.
type openCalls struct {
	mu     sync.Mutex
	ended  uint64 // calls that had no end when their thread or process ended
	execed uint64 // calls of programs in whose place others run
	frozen bool   // the session has begun to detach
	going  uint64

	// Calls inside which a thread or process has ended, as far as the kernel
	// says how: by a signal or not, and the events that wait for their reader.
	killed, exited uint64
	over           []*Event
	unread         uint64 // events that found no room

	compared map[uint32]*comparison // by the number of the pair
	noTables []string               // see Losses.NoTables
}

const maxNoTables = 16

func (o *openCalls) lackTables(file string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.noTables) < maxNoTables && !slices.Contains(o.noTables, file) {
		o.noTables = append(o.noTables, file)
	}
}

// look counts the calls that go on, and those whose thread or process has
// ended. It forgets those for which forget, if not nil, returns true. It must
// be called within [Session.use].
func (o *openCalls) look(
	s *Session, forget func(l *latency, key [2]uint64, calls []bpfgen.OpenCall) bool,
) (going, ended uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count(s, forget)
}

func (o *openCalls) count(
	s *Session, forget func(l *latency, key [2]uint64, calls []bpfgen.OpenCall) bool,
) (going, ended uint64, err error) {
	if o.frozen {
		return o.going, o.ended + o.execed, nil
	}
	if err := o.lockedTakeExits(s); err != nil {
		return 0, 0, err
	}
	o.going = 0
	for _, c := range o.compared {
		c.now = seen{}
	}
	execed := uint64(0)
	for _, l := range s.latencies {
		if l.calls == nil {
			break // New has failed
		}
		var over [][2]uint64
		if err := l.each(func(key [2]uint64, calls []bpfgen.OpenCall, stack []byte) error {
			pid, tid, pair := bpfgen.Caller(key)
			hasEnded := s.plan.Kernel.PIDs == nil && hasEnded(pid, tid)
			isOver := hasEnded || forget != nil && forget(l, key, calls)
			if isOver {
				over = append(over, key)
			}
			if c := o.compared[pair]; c != nil {
				seen := &c.now
				if isOver {
					seen = &c.past
				}
				seen.add(pid, l.Compared(stack))
			}
			for i := range calls {
				switch isExeced := s.execAfter(pid, calls[i].Began); {
				case hasEnded || isExeced && isOver:
					o.ended++
				case isExeced:
					if l.has(key, calls[i]) { // the kernel removes them at the next end
						execed++
					}
				case !isOver:
					o.going++
				}
			}
			return nil
		}); err != nil {
			return 0, 0, err
		}
		for _, key := range over {
			if err := ignoreMissing(l.calls.Delete(key)); err != nil {
				return 0, 0, explain("removing calls without an end", err)
			}
		}
	}
	o.execed = execed
	return o.going, o.ended + o.execed, nil
}

// maxOver is the number of calls ended by exits that wait for their reader.
const maxOver = 4096

// takeExits takes the calls inside which threads and processes have ended:
// counts them, and makes events of those that are asked for. What cannot be
// read counts as Losses.Replaced later. It must be called within [Session.use].
func (o *openCalls) takeExits(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.lockedTakeExits(s)
}

func (o *openCalls) lockedTakeExits(s *Session) error {
	if s.exits == nil || o.frozen {
		return nil
	}
	exits, processes := make(map[uint64]*bpfgen.Exit), make(map[int]*bpfgen.Exit)
	if err := eachOnce(s.exits, "reading which threads have ended",
		func(thread uint64, exit *bpfgen.Exit) error {
			e := *exit
			if exits[thread] = &e; e.How(true) != "" {
				processes[int(thread>>32)] = &e
			}
			return nil
		}); err != nil || len(exits) == 0 {
		return err
	}
	r, err := s.callReader()
	if err != nil {
		return err
	}
	for _, l := range s.latencies {
		if few := 1 << 12; l.ByThread() && len(exits)*len(r.pairs) < few {
			var stack []byte
			for thread, exit := range exits {
				for pair := range r.pairs {
					key := [2]uint64{thread, uint64(pair)}
					if l.calls.Lookup(&key, &stack) == nil {
						err = cmp.Or(err, r.take(l, key, stack, exit))
					}
				}
			}
		} else {
			err = l.each(func(key [2]uint64, _ []bpfgen.OpenCall, stack []byte) error {
				exit, byThread := exits[key[0]], key[1]>>32 == 0
				if pid, _, _ := bpfgen.Caller(key); !byThread {
					exit = processes[pid]
				}
				if exit == nil {
					return nil
				}
				return r.take(l, key, stack, exit)
			})
		}
		if err != nil {
			return err
		}
	}
	for thread := range exits {
		if err := ignoreMissing(s.exits.Delete(thread)); err != nil {
			return explain("forgetting a thread that has ended", err)
		}
	}
	return nil
}

// take takes the calls on a stack. Later ones are of another thread with the
// same number.
func (r *callReader) take(l *latency, key [2]uint64, stack []byte, exit *bpfgen.Exit) error {
	o := &r.openCalls
	pid, _, number := bpfgen.Caller(key)
	pair, known := r.pairs[number]
	calls := l.Calls(stack)
	isLater := func(c bpfgen.OpenCall) bool { return c.Began > time.Duration(exit.Time) }
	if slices.ContainsFunc(calls, isLater) {
		return nil
	}
	for _, call := range slices.Backward(calls) { // the outermost first
		switch {
		case call.Began < time.Duration(exit.Exec):
			o.ended++
			continue
		case exit.IsKill():
			o.killed++
		default:
			o.exited++
		}
		call.Failed = true
		e := &Event{call: &pair, Duration: time.Duration(exit.Time) - call.Began, Failed: true,
			Ended: exit.How(false)}
		if !l.Spans || !r.events.Exits || !known || !r.mayCount(l, &call, e.Duration) {
			continue
		}
		if len(o.over) == maxOver {
			o.unread++
			continue
		}
		r.setEnd(e, l, exit)
		var err error
		if e.Start, err = r.openStart(l, key, &pair, &call, e); err != nil {
			return err
		}
		if e.Start != nil {
			e.Site, e.Probe = e.Start.Site, e.Start.Probe
			o.over = append(o.over, e)
		}
	}
	if c := o.compared[number]; c != nil {
		c.past.add(pid, l.Compared(stack))
	}
	return ignoreMissing(l.calls.Delete(key))
}

// setEnd sets what the kernel has kept of a thread's end. A call that no thread
// matches may be one of another thread of the process.
func (r *callReader) setEnd(e *Event, l *latency, exit *bpfgen.Exit) {
	e.Monotonic, e.Time = time.Duration(exit.Time), time.Unix(0, int64(exit.Time)+r.now.wall)
	e.PID, e.TID, e.CPU, e.Weight = int(exit.Process>>32), int(uint32(exit.Process)), int(exit.CPU), 1
	e.Command = commandOf(exit.Command)
	if r.plan.Events.Cgroup {
		e.CgroupID = exit.Cgroup
	}
	if !l.ByThread() {
		e.TID = 0
	}
}

// nextOver returns the next event of a call that an exit has ended, or nil.
func (o *openCalls) nextOver() *Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.over) == 0 {
		return nil
	}
	e := o.over[0]
	o.over = o.over[1:]
	return e
}

func (o *openCalls) freeze(s *Session) {
	if len(s.latencies) == 0 {
		return
	}
	_ = s.use(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		_, _, err := o.count(s, nil)
		o.frozen = true
		return err // then fewer are known
	})
}

// callsBefore are the calls that were going on when their probes were attached,
// as variables of the program show: see defs.Call.Open.
type callsBefore struct {
	mu         sync.Mutex
	calls      []callBefore
	unsearched atomic.Uint64 // see Losses.Unsearched
}

type callBefore struct {
	pid     int
	latency *latency
	site    *Site // some start of such calls
	program *programVariables
	bias    uint64 // from addresses in the file to those in the process

	conditions uint32 // see bpfgen.OpenCall

	is    callIdentity
	began time.Duration // of the monotonic clock: the start, or the first look at it
}

// callIdentity tells a call from others of its process: its first argument and
// its start, as the program has them, 0 if it does not.
type callIdentity struct{ argument, stamp uint64 }

// programVariables are those of a file that say whether a call goes on.
type programVariables struct {
	condition *expr.Node
	compared  map[*expr.Node]outsideRead // of the comparisons of this, and of conditions on the start
	argument  *outsideRead               // the first argument, nil if the program does not have it
	getter    uint64                     // the address of a function that returns when the call began, or 0
	machine   elf.Machine
	unknown   bool // a condition on the start cannot be read
}

// addCompared has the variables of a condition read from the memory of a
// process. It reports whether all of them can be.
func (w *work) addCompared(v *programVariables, site *Site, node *expr.Node) (ok bool) {
	ok = true
	for _, part := range node.Nodes {
		ok = w.addCompared(v, site, part) && ok
	}
	if len(node.Nodes) > 0 {
		return ok
	}
	t, with, textMax := node.Left, node.Right.Source, 0
	switch {
	case t.Source == expr.String && with == expr.Text && !t.HasLength:
		textMax = cmp.Or(t.Max, len(node.Right.Text)+1)
	case t.Source != expr.Argument || with != expr.Number:
		return false
	}
	v.compared[node], ok = w.outside(site, t.Name, textMax)
	return ok
}

// outcomes reports whether a condition holds in the memory of a process, and
// whether its opposite does. Neither holds of what cannot be read.
func (v *programVariables) outcomes(n *expr.Node, memory *os.File, bias uint64) (yes, no bool) {
	if len(n.Nodes) > 0 {
		return n.Combined(func(part *expr.Node) (yes, no bool) { return v.outcomes(part, memory, bias) })
	}
	of := v.compared[n]
	if n.Right.Source == expr.Text {
		_, text, ok := of.read(memory, bias)
		if !ok || text == nil {
			return false, false
		}
		text, _, _ = bytes.Cut(text[:min(len(text), of.max)], []byte{0})
		yes = n.Op.Holds(bytes.Compare(text, []byte(n.Right.Text)))
		return yes, !yes
	}
	bits, ok := readWord(memory, bias+of.variable, of.size)
	if !ok {
		return false, false
	}
	if n.Left.HasMask {
		bits &= n.Left.Mask
	}
	yes = n.Op.Holds(expr.Uint(bits).Compare(n.Right.Number))
	return yes, !yes
}

// beforePatience is how long is waited for the memory of processes, which these
// can make wait. maxBefore bounds the calls that are known.
const (
	beforePatience = time.Second
	maxBefore      = 4096
	maxTextBefore  = 1 << 10 // of the first argument
)

// lookBefore looks at each process that an attachment is for, once.
func (s *Session) lookBefore(a *Attachment, w *work) {
	for _, l := range s.latencies {
		site := slices.IndexFunc(w.sites, func(site *Site) bool {
			return site.call != nil && l.call != nil && site.Provider == l.call.Provider &&
				site.call.Start.Name == l.call.Name+"__start"
		})
		file := elffile.OSFile(w.elf)
		if site < 0 || file == nil || len(l.call.Open) == 0 || len(l.call.Arguments) == 0 {
			continue
		}
		open, argument := l.call.Open[0], l.call.Arguments[0].Value
		v := &programVariables{compared: make(map[*expr.Node]outsideRead), machine: w.elf.Header().Machine}
		var err error
		if v.condition, err = expr.ParseCondition(open.If, s.opts.names(nil, l.pair), nil); err != nil ||
			!w.addCompared(v, w.sites[site], v.condition) {
			continue // of another version
		}
		if read, ok := w.outside(w.sites[site], argument, maxTextBefore); ok {
			v.argument = &read
		} else if _, isGlobal := (&expr.Term{Name: argument}).Global(); isGlobal {
			continue
		}
		if symbol, err := w.symbols.Symbol(open.Name); err == nil {
			v.getter = symbol.Value
		} else if v.argument == nil {
			continue
		}
		for _, asked := range l.Conditions {
			v.unknown = !w.addCompared(v, w.sites[site], asked.Node) || v.unknown
		}
		own, err := procfs.IdentifyFile(file)
		pids := []int{a.process.PID}
		if a.process.PID == 0 && err == nil {
			pids, err = procfs.FS("").PIDs()
		}
		if err != nil {
			continue
		}
		deadline.One(context.Background(), beforePatience, func() {
			for _, pid := range pids {
				var one uint32
				if s.family != nil && s.family.Lookup(uint32(pid), &one) != nil {
					continue
				}
				s.before.lookAt(callBefore{pid: pid, latency: l, site: w.sites[site], program: v}, own.FileID)
			}
		}, nil)
	}
}

// lookAt adds the call that a process is in, if it maps the file.
func (b *callsBefore) lookAt(c callBefore, own procfs.FileID) {
	var mapped bool
	if c.bias, mapped = biasOf(c.pid, c.site, own); !mapped {
		return
	}
	now, ok := readClocks()
	memory := openMemory(c.pid)
	defer memory.Close()
	is, _, open := c.look(memory)
	if !open || !ok {
		return
	}
	if c.program.unknown {
		b.unsearched.Add(1)
		return
	}
	for _, asked := range c.latency.Conditions {
		yes, no := c.program.outcomes(asked.Node, memory, c.bias)
		if yes && !asked.Negated || no && asked.Negated {
			c.conditions |= 1 << asked.Node.AtStart
		}
	}
	c.is, c.began = is, now.monotonic
	if is.stamp != 0 {
		c.began = time.Duration(int64(is.stamp)*1000 + timestampEpoch - now.wall)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) < maxBefore {
		b.calls = append(b.calls, c)
	}
}

// biasOf returns what a process has added to the addresses of a site's file.
func biasOf(pid int, site *Site, own procfs.FileID) (bias uint64, mapped bool) {
	files, _ := procfs.Files("", pid)
	for _, file := range files {
		if id, err := file.Identify(); err != nil || !id.MayBe(own) {
			continue
		}
		for _, m := range file.Mappings {
			if site.Offset >= m.Offset && site.Offset-m.Offset < m.End-m.Start {
				return m.Start + site.Offset - m.Offset - site.Location, true
			}
		}
	}
	return 0, false
}

// outsideRead is a variable of the program, or the text that it or a member
// behind it points to, as it is read from the memory of a process.
type outsideRead struct {
	variable, size uint64       // its address in the file
	offsets        []int64      // see debuginfo.Member
	owner          *outsideRead // the variable Owner of a member, if there is one
	ownedAt        int64
	max            int // bytes of the text
}

// laterRead is a captured text that is read again while a call goes on.
type laterRead struct {
	arg int
	outsideRead
}

// outside returns how a variable is read, or of up to some bytes the text that
// it or a member leads to. ok is false if the program has it in another way.
func (w *work) outside(site *Site, name string, text int) (r outsideRead, ok bool) {
	from, _, isMember := expr.CutMember(name)
	variable, ok := (&expr.Term{Name: from}).Global()
	symbol, err := w.symbols.Symbol(variable)
	if header := w.elf.Header(); !ok || err != nil || elf.ST_TYPE(symbol.Info) == elf.STT_TLS ||
		header.Class != elf.ELFCLASS64 || header.ByteOrder != binary.LittleEndian ||
		text > 0 && symbol.Size != 8 {
		return r, false
	}
	r = outsideRead{variable: symbol.Value, size: min(symbol.Size, 8), max: text}
	if isMember {
		m, _, _, err := w.member(site, name)
		r.offsets, ok = m.Offsets, err == nil && text > 0 && m.Text && !m.Array
		if ok && m.Owner != "" {
			var owner outsideRead
			owner, ok = w.outside(site, "global."+m.Owner, 0)
			r.owner, r.ownedAt = &owner, m.OwnedAt
		}
	}
	return r, ok
}

// readLater has a captured text read again while a call goes on, if that can be
// read from outside.
func (w *work) readLater(s *Site, arg int, c *parsedCapture) {
	if !c.Text || c.length != nil {
		return
	}
	read, ok := w.outside(s, c.arg.Name, c.Max)
	if !ok {
		return
	}
	if file, err := procfs.IdentifyFile(elffile.OSFile(w.elf)); err == nil {
		s.mapped = file.FileID
		s.later = append(s.later, laterRead{arg, read})
	}
}

// openMemory opens the memory of a process. If that fails it returns nil, and
// reads of that fail.
func openMemory(pid int) *os.File {
	memory, _ := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	return memory
}

// readWord reads a number of up to 8 bytes.
func readWord(memory *os.File, at, size uint64) (word uint64, ok bool) {
	var bytes [8]byte
	_, err := memory.ReadAt(bytes[:size], int64(at))
	return binary.LittleEndian.Uint64(bytes[:]), err == nil
}

// readNow returns the arguments of a start with the captured texts that there
// are now in the memory of a process. One that changes meanwhile is unreadable.
func readNow(pid int, site *Site, start []Value) []Value {
	args := slices.Clone(start)
	bias, mapped := biasOf(pid, site, site.mapped)
	memory := openMemory(pid)
	defer memory.Close()
	for _, r := range site.later {
		v := &args[r.arg]
		*v = Value{valueForm: v.valueForm, text: true}
		v.state, v.dataState = valueUnreadable, noData
		var pointer uint64
		var text []byte
		isSame := false
		for try := 0; mapped && !isSame && try < 3; try++ {
			at, now, ok := r.read(memory, bias)
			isSame = ok && try > 0 && at == pointer && bytes.Equal(now, text)
			pointer, text = at, now
		}
		if isSame {
			r.set(v, pointer, text)
		}
	}
	return args
}

// set gives a value what was read.
func (r *outsideRead) set(v *Value, pointer uint64, text []byte) {
	v.state, v.bits, v.text, v.dataState = valuePresent, pointer, true, dataUnreadable
	if text == nil {
		return
	}
	text, _, isWhole := bytes.Cut(text, []byte{0})
	if v.setData(text, dataComplete); !isWhole {
		v.setData(wholeText(text[:min(len(text), r.max)]), dataTruncated)
	}
}

// read reads the pointer to a text, and that, nil if it is not there.
func (r *outsideRead) read(memory *os.File, bias uint64) (pointer uint64, text []byte, ok bool) {
	at := bias + r.variable
	for i := 0; ; i++ {
		if pointer, ok = readWord(memory, at, 8); !ok {
			return 0, nil, false
		}
		if i == len(r.offsets) {
			break
		}
		if i == 0 && r.owner != nil {
			own, isRead := readWord(memory, bias+r.owner.variable, r.owner.size)
			in, ok := readWord(memory, pointer+uint64(r.ownedAt), r.owner.size)
			if !isRead || !ok || own != in {
				return 0, nil, false
			}
		}
		at = pointer + uint64(r.offsets[i])
	}
	buffer := make([]byte, r.max+1)
	n, _ := memory.ReadAt(buffer, int64(pointer))
	if n == 0 {
		return pointer, nil, true
	}
	if end := bytes.IndexByte(buffer[:n], 0); end >= 0 {
		n = end + 1
	}
	return pointer, buffer[:n], true
}

// timestampEpoch is 2000-01-01 in nanoseconds of the wall clock.
const timestampEpoch = 946_684_800 * int64(time.Second)

// look reads from the memory of the process whether a call goes on there, what
// tells it from others, and the text that its first argument points to.
func (c *callBefore) look(memory *os.File) (is callIdentity, text []byte, open bool) {
	v := c.program
	if open, _ = v.outcomes(v.condition, memory, c.bias); open && v.argument != nil {
		is.argument, text, open = v.argument.read(memory, c.bias)
	}
	if !open {
		return is, nil, false
	}
	if v.getter != 0 {
		var code [16]byte
		if _, err := memory.ReadAt(code[:], int64(c.bias+v.getter)); err == nil {
			if at := returned(v.machine, c.bias+v.getter, code[:]); at != 0 {
				is.stamp, open = readWord(memory, at, 8)
			}
		}
	}
	// Without an argument its start alone tells it from the next one.
	return is, text, open && (v.argument != nil || is.stamp != 0)
}

// returned returns the address of the variable that a function returns, which
// does nothing else, by its code: so it is known also if the variable has no
// symbol. It returns 0 for another function.
func returned(machine elf.Machine, at uint64, code []byte) uint64 {
	order := binary.LittleEndian
	switch machine {
	case elf.EM_X86_64:
		endbr := []byte{0xf3, 0x0f, 0x1e, 0xfa}
		if bytes.HasPrefix(code, endbr) {
			at, code = at+4, code[4:]
		}
		if bytes.HasPrefix(code, []byte{0x48, 0x8b, 0x05}) && code[7] == 0xc3 { // MOV disp32(RIP), RAX; RET
			return at + 7 + uint64(int64(int32(order.Uint32(code[3:]))))
		}
	case elf.EM_AARCH64:
		page, load := order.Uint32(code), order.Uint32(code[4:])
		if page&0x9f00001f == 0x90000000 && load&0xffc003ff == 0xf9400000 &&
			order.Uint32(code[8:]) == 0xd65f03c0 {
			// ADRP X0; LDR X0, [X0, #n]; RET
			distance := int64(int32(page<<8)>>13)<<2 | int64(page>>29&3)
			return at&^0xfff + uint64(distance<<12) + uint64(load>>10&0xfff)*8
		}
	}
	return 0
}

// open returns the calls of before that still go on, and forgets the others.
func (b *callsBefore) open(s *Session, longer time.Duration) []*Event {
	b.mu.Lock()
	calls := b.calls
	b.mu.Unlock()
	now, ok := readClocks()
	if !ok || len(calls) == 0 {
		return nil
	}
	var over []callBefore
	var open []*Event
	if !deadline.One(context.Background(), beforePatience, func() {
		for _, c := range calls {
			memory := openMemory(c.pid)
			is, text, going := c.look(memory)
			memory.Close()
			duration, kept := now.monotonic-c.began, bpfgen.OpenCall{Conditions: c.conditions}
			switch {
			case !going || is != c.is:
				over = append(over, c)
			case duration > longer && s.mayCount(c.latency, &kept, duration):
				open = append(open, c.event(text, duration, now.wall))
			}
		}
	}, nil) {
		return nil // it may still write
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = slices.DeleteFunc(slices.Clone(b.calls),
		func(c callBefore) bool { return slices.Contains(over, c) })
	return open
}

func (c *callBefore) event(text []byte, duration time.Duration, wall int64) *Event {
	start := &Event{Monotonic: c.began, Time: time.Unix(0, int64(c.began)+wall), CPU: -1, Weight: 1,
		Probe: c.site.call.Start.Provider + ":" + c.site.call.Start.Name, PID: c.pid, TID: c.pid}
	start.Command, _ = commandSince(c.pid, 0, c.began)
	e := &Event{call: c.site.call, Start: start, Duration: duration}
	if !c.latency.Spans {
		return e
	}
	start.Site = &Site{File: c.site.File, siteKind: c.site.siteKind}
	start.Site.Provider, start.Site.Name = c.site.call.Start.Provider, c.site.call.Start.Name
	args, reads := c.site.own, c.site.starts != nil && len(c.site.later) > 0
	if reads {
		args = len(c.site.starts.known)
	}
	unreadable := Value{valueForm: valueForm{state: valueUnreadable}}
	start.Args = slices.Repeat([]Value{unreadable}, args) // what was captured there is not known either
	if first := c.program.argument; first != nil {
		start.Args[0] = ValueOf(c.is.argument)
		first.set(&start.Args[0], c.is.argument, text)
	}
	if reads {
		e.Site, e.Args = start.Site, readNow(c.pid, c.site, start.Args)
	}
	return e
}
