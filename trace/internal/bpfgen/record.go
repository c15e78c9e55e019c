// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// commandSize is how many bytes the kernel has for a thread's name, with the
// terminator (TASK_COMM_LEN).
const commandSize = 16

// Record says where the parts of an event lie in the ring buffer. All numbers
// are offsets in bytes from the beginning of the record; None stands for a part
// that is not there. Everything is in the kernel's byte order.
//
// A record begins with the ID of the site in four bytes. Offsets are multiples
// of 8 but for the processor's and those of arguments.
type Record struct {
	Size int

	CPU     int // u32
	Cgroup  int // u64
	Time    int // u64, nanoseconds of the monotonic clock
	Process int // u64, the process in the high half, the thread in the low one
	Command int // 16 bytes, ends with a zero byte
	Weight  int // u64, how many hits the event stands for

	Args     []Place
	Captures []CapturePlace // in the order of the arguments
	Stack    int            // s64, length in bytes or a negative error; addresses from StackData on
	Frames   int            // the most addresses

	Span *SpanPlace // nil unless it is the end of a call

	Registers *Registers // nil if they are not there
	Copied    int        // u64, the bytes of the user stack that were copied

	// Copy is where they begin, with the unit of CopyUnit bytes that the stack
	// pointer is in. CopySize is the most of them: one unit more than are asked
	// for, 0 if none are.
	Copy, CopySize int
}

// SpanPlace is where a call lies in the record of its end.
type SpanPlace struct {
	Duration int // u64, nanoseconds
	Began    int // u64, nanoseconds of the monotonic clock
	Word     int // u64, the ID of the start's site in its high half
	Found    int // u64, 1 if the saved start is there
	Saved    int // the saved start, a record as Block.Saved describes it
	Size     int // of the saved start, or of the largest one that there may be

	call *call
}

// emptyRecord is the size of a record that has only the ID of its site.
const emptyRecord = 8

// A header follows the ID of the site. So its places are the same in all
// records that have one, and a reader checks once that they are there.
const (
	HeaderCPU     = 4
	HeaderTime    = emptyRecord
	HeaderProcess = HeaderTime + 8
	HeaderCommand = HeaderProcess + 8
	HeaderEnd     = HeaderCommand + commandSize
)

// StackData is where the addresses of a user stack begin, after its length.
const StackData = 8

// None is the offset of a part that a record does not have.
const None = -1

// Place is where an argument lies in a record.
type Place struct {
	// Value is the offset of the argument, which takes as many bytes as it has
	// in the program. None: it is the same at each hit, or cannot be fetched.
	Value int

	// Failed is the offset of a byte that is not 0 where the argument could not
	// be read, or None.
	Failed int
}

// CapturePlace says where captured bytes lie in a record.
type CapturePlace struct {
	Capture
	Status int // s64: what Capture says, or a negative error
	Data   int
}

// Capture says which memory to copy: the bytes that an argument points to, or
// an argument that is bytes in memory itself (argspec.Bytes), up to Max bytes
// of it.
type Capture struct {
	Arg int

	// Text says that the bytes are a text. Without a Length it ends with the
	// first zero byte. The status is the number of bytes with the zero. It is
	// Max+2 for a text that is longer than Max, and the last of the bytes is a
	// zero then. For an empty text it is 1, or 0 on older kernels, which do not
	// count the zero.
	//
	// Otherwise there are Max bytes, or as many as the argument Length says if
	// that is less; the status is the number asked for, which can be more than
	// Max.
	Text   bool
	Max    int
	Length int // None: there is no such argument
}

// Terminated reports whether a zero byte ends the capture.
func (c *Capture) Terminated() bool { return c.Text && c.Length == None }

// room returns how many bytes of a record a capture takes, with its terminator.
func (c *Capture) room() int {
	if c.Terminated() {
		return align8(c.Max + 2)
	}
	return align8(c.Max)
}

func align8(n int) int { return (n + 7) &^ 7 }

// layout places the parts of a record. saved is the size of a call's saved
// start, or None. groups are the arguments to be read from memory together.
// Arguments that were read before are copied like registers.
func (b *builder) layout(e *Events, captures []Capture, groups []argcode.Group, saved int) *Record {
	r := &Record{Size: emptyRecord, CPU: None, Time: None, Process: None, Command: None,
		Cgroup: None, Weight: None, Stack: None}
	take := func(size int) int {
		at := r.Size
		r.Size += align8(size)
		return at
	}
	if e.Header {
		r.CPU, r.Time, r.Process, r.Command = HeaderCPU, take(8), take(8), take(commandSize)
	}
	if e.Cgroup {
		r.Cgroup = take(8)
	}
	if e.Sampling != nil {
		r.Weight = take(8)
	}

	r.Args = slices.Repeat([]Place{{Value: None, Failed: None}}, len(b.Args))
	// Fields that are stored by an instruction come first: their offsets must
	// fit into 16 bits.
	if saved != None {
		r.Span = &SpanPlace{Duration: take(8), Began: take(8), Word: take(8), Found: take(8),
			Size: saved}
	}
	if e.Copy > 0 {
		registers := savedRegisters[b.kernel.Machine]
		if registers.General == nil {
			b.Fail(fmt.Errorf("stacks cannot be copied: it is not known where a kernel for %v saves the registers", b.kernel.Machine))
		}
		r.CopySize, r.Registers = e.Copy+CopyUnit, &Registers{PC: take(8),
			General: slices.Clone(registers.General)}
		for n, word := range registers.General {
			if word != None {
				r.Registers.General[n] = take(8)
			}
			if word == registers.SP {
				r.Registers.SP = r.Registers.General[n]
			}
		}
		r.Copied = take(8)
	}
	for _, g := range groups {
		for _, i := range g.Args {
			r.Args[i].Failed = r.Size
			r.Size++
		}
	}
	r.Size = align8(r.Size)
	// The largest come first, so that each is aligned.
	for _, size := range []int{8, 4, 2, 1} {
		for i := range b.sent {
			if r.Args[i].Failed == None && b.Readable(i) &&
				b.Args[i].Kind != argspec.Constant && b.Args[i].Size == size {
				r.Args[i].Value = r.Size
				r.Size += size
			}
		}
	}
	r.Size = align8(r.Size)
	for _, c := range captures {
		r.Captures = append(r.Captures, CapturePlace{Capture: c, Status: take(8)})
	}
	if e.Frames > 0 {
		r.Stack, r.Frames = take(StackData+8*e.Frames), e.Frames
	}
	for _, g := range groups {
		block := take(g.Lead() + g.Span())
		for _, i := range g.Args {
			r.Args[i].Value = block + g.Lead() + g.Distance(b.Args, i)
		}
	}
	for i := range r.Captures {
		r.Captures[i].Data = take(r.Captures[i].room())
	}
	if saved != None {
		r.Span.Saved = take(saved)
	}
	if r.CopySize > 0 {
		r.Copy = take(r.CopySize)
	}
	return r
}
