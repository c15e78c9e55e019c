// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"math/bits"
	"os"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// SessionOptions change what a session does. Nil, or the zero value, is the
// common case: every hit becomes an event with all that costs little.
type SessionOptions struct {
	// Mode forces how programs are attached; ModeAuto takes the best that the
	// kernel has. In ModeSingleIPMap a session needs no address and so has not
	// the limits that package usdt has there: each site gets a program of its
	// own, and libraries can be traced in every process.
	Mode usdt.Mode

	// Filter is a condition that is decided in the kernel: hits that it does
	// not hold for cost no more than deciding it. The documentation of the
	// package describes the language. Empty means every hit.
	Filter string

	// Captures say what to bring from behind arguments that are pointers.
	Captures []Capture

	// PageIn has memory that an argument leads to and that is not there brought
	// in, as the program itself would by touching it. Otherwise it is
	// unreadable: typically text that the program passes but has not looked at
	// yet. It slows down no hit but those that need it, behind which later
	// events wait. It needs Linux 6.0, and no aggregation can be by "stack"
	// then.
	PageIn bool

	// StackDepth is how many addresses of the user stack an event has at most,
	// up to 127; 0 for no stack. The kernel walks it by frame pointers. On
	// s390x it does so from Linux 6.7 on; stacks are empty before.
	StackDepth int

	// StackCopy is how many bytes of the user stack an event has at most, from
	// the stack pointer up, with the registers, up to 65,536; 0 for none. It is
	// rounded up to a multiple of 4096. That is what a stack can be unwound
	// from, as debuggers do it, of programs without frame pointers. Each event
	// takes that much room in the ring buffer, and 4096 bytes more, however
	// short the stack is: set RingSize, too. A copy takes about half a
	// microsecond for every 4096 bytes, and as long again where it ends early.
	// It is for x86-64, arm64, riscv64 and s390x; elsewhere Attach fails.
	StackCopy int

	// Without leaves parts of an event out, each of which costs some
	// nanoseconds at each hit.
	Without Fields

	// RingSize is the size of the ring buffer in bytes, rounded up to a power
	// of two; 0 stands for 8 MiB. It is memory of the kernel that cannot be
	// paged out.
	RingSize int

	// WhenFull says what happens to events that find no room in the ring
	// buffer.
	WhenFull FullPolicy

	// Delay allows events to wait for the reader so long, if they come too
	// seldom to fill a quarter of the ring buffer. Then the kernel needs not
	// wake the reader for them, which costs the traced program more than all
	// else. 0 has each event delivered at once.
	Delay time.Duration

	// ReuseEvents has Session.Events hand out one Event again and again: an
	// event, and all that its slices and values refer to, is valid until the
	// next one comes. Then no event takes new memory. It is for those who are
	// done with an event before they ask for the next.
	ReuseEvents bool

	// Aggregations are computed in the kernel and read by Session.Snapshot. If
	// there are any, no events are sent, unless WithEvents is set.
	Aggregations []Aggregation
	WithEvents   bool

	// Statistics has the kernel measure how often and how long its BPF programs
	// run, as long as the session is open. It measures all programs of the
	// machine, which costs about 20 ns at each run of each.
	Statistics bool
}

// FullPolicy says what happens when the ring buffer is full.
type FullPolicy uint8

const (
	// DropNew loses the events that find no room. They are counted, and
	// Session.Events reports them by a *LostError between the events that came.
	DropNew FullPolicy = iota

	// StopWhenFull sends nothing more after the first event that found no room,
	// so that the events delivered are all that there were up to that moment.
	// Session.Events ends with a *LostError; hits are still counted as lost.
	StopWhenFull
)

// Fields are parts of an event.
type Fields uint8

// The parts that can be left out: the time (20 to 40 ns), PID and TID (5 ns),
// the command (20 ns), the processor (5 ns).
const (
	FieldTime    = Fields(bpfgen.FieldTime)
	FieldProcess = Fields(bpfgen.FieldProcess)
	FieldCommand = Fields(bpfgen.FieldCommand)
	FieldCPU     = Fields(bpfgen.FieldCPU)

	allFields = FieldTime | FieldProcess | FieldCommand | FieldCPU
)

// Capture says what to bring from behind an argument that is a pointer. What it
// brings is in Value.Data.
type Capture struct {
	// Probes is a pattern as in Open; empty for all probes that have the
	// argument. Of several captures for the same argument the first one that
	// matches counts.
	Probes string

	// Arg is the number of the argument, from 0.
	Arg int

	// Max bounds the bytes, from 1 to 32,768; 0 stands for 128. Each event
	// takes that much room in the ring buffer, however short the text is.
	Max int

	// Bytes: bring Max bytes, rather than a text up to the first zero.
	Bytes bool

	// LengthArg, with Bytes, is 1 plus the number of the argument that says how
	// many bytes there are; 0 if there is none and Max bytes are to be brought.
	// A negative length reads as unreadable.
	LengthArg int
}

const (
	defaultRingSize = 8 << 20
	// maxRingSize is what the size's 32 bits in the kernel's interface can say.
	maxRingSize    = 1 << 30
	defaultCapture = 128
	// maxCapture keeps an event within the offsets of instructions, and within
	// a ring buffer of usual size.
	maxCapture = 32 << 10
	// maxStackDepth is the kernel's own limit (sysctl
	// kernel.perf_event_max_stack) unless somebody has raised it.
	maxStackDepth = 127
	// maxStackCopy holds hundreds of functions. What is more would be most of a
	// ring buffer of usual size.
	maxStackCopy = 64 << 10
)

// ringSize returns the size of the ring buffer as the kernel wants it: a power
// of two, and whole pages.
func (o *SessionOptions) ringSize() (int, error) {
	size := o.RingSize
	if size == 0 {
		size = defaultRingSize
	}
	if size < 0 || size > maxRingSize {
		return 0, fmt.Errorf("options: RingSize is %d, not between 0 and %d", size, maxRingSize)
	}
	size = max(size, os.Getpagesize())
	return 1 << bits.Len(uint(size-1)), nil
}

// captures is SessionOptions.Captures with its patterns parsed.
type captures []parsedCapture

type parsedCapture struct {
	probes elfnote.Pattern
	all    bool
	bpfgen.Capture
}

func (o *SessionOptions) captures() (captures, error) {
	var parsed captures
	for i, c := range o.Captures {
		p := parsedCapture{all: c.Probes == "", Capture: bpfgen.Capture{
			Arg: c.Arg, Text: !c.Bytes, Max: c.Max, Length: c.LengthArg - 1,
		}}
		if p.Max == 0 {
			p.Max = defaultCapture
		}
		switch {
		case c.Arg < 0 || c.LengthArg < 0:
			return nil, fmt.Errorf("options: capture %d: arguments are numbered from 0", i)
		case p.Max < 1 || p.Max > maxCapture:
			return nil, fmt.Errorf("options: capture %d: Max is %d, not between 1 and %d", i, c.Max, maxCapture)
		case c.LengthArg > 0 && !c.Bytes:
			return nil, fmt.Errorf("options: capture %d: only with Bytes an argument says the length", i)
		}
		if !p.all {
			var err error
			if p.probes, err = elfnote.ParsePattern(c.Probes); err != nil {
				return nil, fmt.Errorf("options: capture %d: %w", i, err)
			}
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
}

// of returns the captures for a site.
func (cs captures) of(site *bpfgen.Site) []bpfgen.Capture {
	var found []bpfgen.Capture
	taken := make(map[int]bool)
	for i := range cs {
		c := &cs[i]
		if !taken[c.Arg] && (c.all || c.probes.Match(site.Provider, site.Name)) {
			taken[c.Arg] = true
			found = append(found, c.Capture)
		}
	}
	return found
}

// plan returns what to generate code for, but for the descriptors of the maps.
func (o *SessionOptions) plan() (*bpfgen.Plan, error) {
	plan := &bpfgen.Plan{Counters: bpfgen.None, PageIn: o.PageIn}
	var err error
	if o.Filter != "" {
		if plan.Filter, err = expr.ParseCondition(o.Filter); err != nil {
			return nil, fmt.Errorf("options: filter: %w", err)
		}
	}
	if len(o.Aggregations) > 0 && !o.WithEvents {
		return plan, nil
	}

	captures, err := o.captures()
	if err != nil {
		return nil, err
	}
	size, err := o.ringSize()
	if err != nil {
		return nil, err
	}
	switch {
	case o.StackDepth < 0 || o.StackDepth > maxStackDepth:
		return nil, fmt.Errorf("options: StackDepth is %d, not between 0 and %d", o.StackDepth, maxStackDepth)
	case o.StackCopy < 0 || o.StackCopy > maxStackCopy:
		return nil, fmt.Errorf("options: StackCopy is %d, not between 0 and %d", o.StackCopy, maxStackCopy)
	case o.WhenFull > StopWhenFull:
		return nil, fmt.Errorf("options: WhenFull is %d, which is no policy", o.WhenFull)
	case o.Delay < 0:
		return nil, fmt.Errorf("options: Delay is %v, which is negative", o.Delay)
	}
	plan.Events = &bpfgen.Events{
		RingSize: size,
		Fields:   bpfgen.Fields(allFields &^ o.Without),
		Frames:   o.StackDepth,
		Copy:     (o.StackCopy + bpfgen.CopyUnit - 1) &^ (bpfgen.CopyUnit - 1),
		Captures: captures.of,
		Batch:    o.Delay > 0,
		Stop:     bpfgen.None,
	}
	return plan, nil
}
