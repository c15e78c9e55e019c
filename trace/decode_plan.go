// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// events says how records of a site become events. It is made when the site is
// attached, so that little is left to decide for each record. Sites with equal
// records share it.
type events struct {
	record *bpfgen.Record
	known  []Value // the arguments, as far as the record does not have them

	// Words of eight bytes that can always be read, and follow each other: most
	// arguments do.
	wordsAt, firstWord, wordCount int // place in the record, and the arguments

	numbers  []fetch // other arguments that can always be read
	loads    []fetch // those that are in memory, and may not be there
	captures []captured

	hasHeader bool
	hasBytes  bool // that are behind arguments, or a copy of the stack
	isRare    bool // there are parts that most sessions do not ask for
}

// A fetch is an argument that is not among the words. It is read as the last of
// eight bytes: so many there are always before its end, because a record begins
// with the number of the site, but not behind its beginning.
type fetch struct {
	from, arg, failed int // places in the record, and the argument; see bpfgen.Place
	unused            uint8
	mask              uint64 // of the bits that are the argument's
}

// isBigEndian reports whether this machine is, and so the kernel. It is a
// constant, so that there is nothing to decide at a record.
const isBigEndian = runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" ||
	runtime.GOARCH == "mips64" || runtime.GOARCH == "mips"

func newFetch(arg int, p bpfgen.Place, v *Value) fetch {
	f := fetch{from: p.Value + int(v.size) - 8, arg: arg, failed: p.Failed, unused: 64 - 8*v.size,
		mask: math.MaxUint64}
	if v.kind != Signed {
		f.mask >>= f.unused
	}
	return f
}

// of returns the argument that ends a word, extended to 64 bits by its sign.
func (f *fetch) of(word uint64) uint64 {
	unused := f.unused & 63 // the compiler sees that it is less than 64
	if isBigEndian {
		word <<= unused
	}
	return uint64(int64(word)>>unused) & f.mask
}

// decode sets the argument.
func (f *fetch) decode(args []Value, raw []byte) {
	v := &args[f.arg]
	if f.failed != bpfgen.None {
		if raw[f.failed] != 0 {
			v.state, v.bits = valueUnreadable, 0
			return
		}
		v.state = valuePresent
	}
	v.bits = f.of(binary.NativeEndian.Uint64(raw[f.from:]))
}

// captured is what is behind an argument.
type captured struct {
	arg, status, data int   // the argument, and places in the record
	most              int   // bytes
	terminator        int64 // how many bytes of the status are not the text's
}

// newEvents returns nil where no record is sent.
func newEvents(r *bpfgen.Record, args []argspec.Arg) *events {
	if r == nil {
		return nil
	}
	e := &events{record: r, known: make([]Value, len(args))}
	for i := range args {
		v := &e.known[i]
		*v = valueOf(&args[i])
		p := &r.Args[i]
		if p.Value == bpfgen.None {
			continue
		}
		v.state = valuePresent
		if v.size == 8 && p.Failed == bpfgen.None {
			switch {
			case e.wordCount == 0:
				e.wordsAt, e.firstWord, e.wordCount = p.Value, i, 1
				continue
			case e.firstWord+e.wordCount == i && e.wordsAt+8*e.wordCount == p.Value:
				e.wordCount++
				continue
			}
		}
		if f := newFetch(i, *p, v); p.Failed == bpfgen.None {
			e.numbers = append(e.numbers, f)
		} else {
			e.loads = append(e.loads, f)
		}
	}
	for i := range r.Captures {
		c := &r.Captures[i]
		v := &e.known[c.Arg]
		v.text = c.Text
		if args[c.Arg].Kind == argspec.Bytes {
			v.kind, v.state = Bytes, valuePresent
		}
		place := captured{arg: c.Arg, status: c.Status, data: c.Data, most: c.Max}
		if c.Terminated() {
			place.terminator = 1
		}
		e.captures = append(e.captures, place)
	}
	e.hasHeader = r.CPU != bpfgen.None
	e.hasBytes = len(r.Captures) > 0 || r.Registers != nil
	e.isRare = r.Cgroup != bpfgen.None || r.Weight != bpfgen.None || r.Stack != bpfgen.None ||
		r.Registers != nil || r.Span != nil
	return e
}

// mayFail reports whether an argument may be in memory that is not there.
func (e *events) mayFail(arg int) bool {
	return slices.ContainsFunc(e.loads, func(f fetch) bool { return f.arg == arg })
}

// decodeNumbers sets the arguments.
func (e *events) decodeNumbers(args []Value, raw []byte) {
	for i := range e.wordCount {
		args[e.firstWord+i].bits = binary.NativeEndian.Uint64(raw[e.wordsAt+8*i:])
	}
	for i := range e.numbers {
		e.numbers[i].decode(args, raw)
	}
	for i := range e.loads {
		e.loads[i].decode(args, raw)
	}
}

// decodeCaptures completes the arguments by what is behind them.
func (e *events) decodeCaptures(args []Value, raw []byte) {
	for i := range e.captures {
		e.captures[i].decode(args, raw)
	}
}

// decode completes the argument by what is behind it.
func (c *captured) decode(args []Value, raw []byte) {
	v := &args[c.arg]
	length := int64(binary.NativeEndian.Uint64(raw[c.status:]))
	if length > 0 {
		length -= c.terminator // of an empty text older kernels do not count it
	}
	if v.kind == Bytes {
		v.state = valuePresent // a reused one may have been unreadable
	}
	switch {
	case v.kind == Bytes && length < 0:
		v.state, v.dataState, v.data = valueUnreadable, noData, ""
	case v.state != valuePresent || length < 0:
		v.dataState, v.data = dataUnreadable, ""
	case length > int64(c.most):
		v.setData(raw[c.data:c.data+c.most], dataTruncated)
	default:
		v.setData(raw[c.data:c.data+int(length)], dataComplete)
	}
}
