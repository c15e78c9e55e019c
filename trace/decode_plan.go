// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// events says how records of a site become events. It is made when the site is
// attached, so that little is left to decide for each record. Sites with equal
// records share it.
type events struct {
	record *bpfgen.Record
	known  []Value // the arguments, as far as the record does not have them
	others []fetch

	// Words of eight bytes that can always be read, and follow each other: most
	// arguments do.
	wordsAt, firstWord, wordCount int // place in the record, and the arguments

	isPlain   bool // there are only words; otherwise the next three say what else
	hasHeader bool
	hasBytes  bool // that are behind arguments, or a copy of the stack
	isRare    bool // there are parts that most sessions do not ask for

	// again is the event that is used again, if events are. It belongs to the
	// iteration over events.
	again *Event
}

// fetch is an argument that is not among the words.
type fetch struct {
	at, arg, failed int // places in the record, and the argument; see bpfgen.Place
	size            uint8
	unused          uint8 // bits above it, of a signed number
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
		f := fetch{at: p.Value, arg: i, failed: p.Failed, size: v.size}
		if v.kind == Signed {
			f.unused = 64 - 8*v.size
		}
		e.others = append(e.others, f)
	}
	for i := range r.Captures {
		v := &e.known[r.Captures[i].Arg]
		v.text = r.Captures[i].Text
		if args[r.Captures[i].Arg].Kind == argspec.Bytes {
			v.kind, v.state = Bytes, valuePresent
		}
	}
	e.hasHeader = r.CPU != bpfgen.None
	e.hasBytes = len(r.Captures) > 0 || r.Registers != nil
	e.isRare = r.CGroup != bpfgen.None || r.Weight != bpfgen.None || r.Stack != bpfgen.None || r.Registers != nil || r.Span != nil
	e.isPlain = !e.hasHeader && !e.hasBytes && !e.isRare && len(e.others) == 0
	return e
}

// decodeWords sets the arguments that are words.
func (e *events) decodeWords(args []Value, raw []byte) {
	for i := range e.wordCount {
		args[e.firstWord+i].bits = binary.NativeEndian.Uint64(raw[e.wordsAt+8*i:])
	}
}

// decodeOthers sets the arguments that are not among the words.
func (e *events) decodeOthers(args []Value, raw []byte) {
	order := binary.NativeEndian
	for i := range e.others {
		f := &e.others[i]
		v := &args[f.arg]
		if f.failed != bpfgen.None {
			if raw[f.failed] != 0 {
				v.state, v.bits = valueUnreadable, 0
				continue
			}
			v.state = valuePresent
		}
		at := raw[f.at:]
		switch f.size {
		case 1:
			v.bits = uint64(at[0])
		case 2:
			v.bits = uint64(order.Uint16(at))
		case 4:
			v.bits = uint64(order.Uint32(at))
		default:
			v.bits = order.Uint64(at)
		}
		v.bits = uint64(int64(v.bits<<(f.unused&63)) >> (f.unused & 63)) // the compiler sees that it is less than 64
	}
}

// decodeCaptures completes the arguments by what is behind them.
func (e *events) decodeCaptures(args []Value, raw []byte) {
	captures := e.record.Captures
	for i := range captures {
		decodeCapture(&args[captures[i].Arg], raw, &captures[i])
	}
}

// decodeCapture completes an argument by what is behind it.
func decodeCapture(v *Value, raw []byte, c *bpfgen.CapturePlace) {
	status := int64(binary.NativeEndian.Uint64(raw[c.Status:]))
	length := status
	if c.Terminated() && length > 0 {
		length-- // without the zero at its end, which is not counted of an empty text by older kernels
	}
	if v.kind == Bytes {
		v.state = valuePresent // a reused one may have been unreadable
	}
	switch {
	case v.kind == Bytes && length < 0:
		v.state, v.dataState, v.data = valueUnreadable, noData, ""
	case v.state != valuePresent || length < 0:
		v.dataState, v.data = dataUnreadable, ""
	case length > int64(c.Max):
		v.setData(raw[c.Data:c.Data+c.Max], dataTruncated)
	default:
		v.setData(raw[c.Data:c.Data+int(length)], dataComplete)
	}
}
