// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"
)

// A repeat is what it takes to decode records of a kind into one event that is
// used again and again. Most records are of the same site as the one before,
// and one reader has to keep up with what many processors send: what can be
// known before is known, down to the addresses of what is to be set.
type repeat struct {
	event *Event

	words    []Value // of the event's arguments
	wordsAt  int     // place in the record
	numbers  []repeatedNumber
	texts    []repeatedText
	captures []captured // what is behind the others

	isPlain             bool // there are only words
	hasHeader, hasBytes bool
	hasRest             bool // see finish
}

// repeatedNumber is an argument that is not among the words, and can always be
// read. See fetch.
type repeatedNumber struct {
	value *Value
	fetch
}

// repeatedText is what is behind an argument that can always be read.
type repeatedText struct {
	value *Value
	captured
}

// noRecord is a length that no record has: it has a flag, too.
const noRecord = math.MaxUint32

// newRepeat returns what it takes to use an event of the site again.
func newRepeat(e *Event, of *events) *repeat {
	p := &repeat{
		event: e, words: e.Args[of.firstWord:][:of.wordCount], wordsAt: of.wordsAt,
		isPlain: of.isPlain, hasHeader: of.hasHeader, hasBytes: of.hasBytes || of.isRare,
		hasRest: of.isRare || len(of.loads) > 0,
	}
	for _, f := range of.numbers {
		p.numbers = append(p.numbers, repeatedNumber{&e.Args[f.arg], f})
	}
	for _, c := range of.captures {
		if v := &e.Args[c.arg]; v.kind != Bytes && v.state == valuePresent && !of.mayFail(c.arg) {
			p.texts = append(p.texts, repeatedText{v, c})
		} else {
			p.captures = append(p.captures, c)
			p.hasRest = true
		}
	}
	return p
}

// again returns the event of a record that is of the same site as the one
// before, if events are reused. It is valid until the next one is decoded, and
// as long as the record is, unless settle is called.
//
// This is the tightest place of the package. Nothing of a record is checked
// again: that it is of the site and as long as the site's records are is known,
// and so it is known where in it is what.
func (d *decoder) again(record unsafe.Pointer) (*Event, error) {
	p := d.repeat
	words, from := p.words, unsafe.Add(record, p.wordsAt)
	for i := range words {
		words[i].bits = *(*uint64)(from)
		from = unsafe.Add(from, 8)
	}
	if p.isPlain {
		return p.event, nil
	}
	if p.hasHeader {
		d.setHeader(p.event, (*header)(record))
	}
	numbers := p.numbers
	for i := range numbers {
		n := &numbers[i]
		// It need not be aligned, as some machines want a word to be.
		n.value.bits = n.of(binary.NativeEndian.Uint64((*[8]byte)(unsafe.Add(record, n.from))[:]))
	}
	texts := p.texts
	for i := range texts {
		t := &texts[i]
		status := *(*int64)(unsafe.Add(record, t.status))
		if length := status - t.terminator; uint64(length) <= uint64(t.most) {
			t.value.data = unsafe.String((*byte)(unsafe.Add(record, t.data)), int(length))
			t.value.dataState = dataComplete
			continue
		}
		t.decode(p.event.Args, unsafe.Slice((*byte)(record), d.length))
	}
	if p.hasBytes && d.last != p.event {
		d.last = p.event
	}
	if p.hasRest {
		return d.finish(p, unsafe.Slice((*byte)(record), d.length))
	}
	return p.event, nil
}

// finish completes the event of a record by what is rare, or may be missing.
func (d *decoder) finish(p *repeat, raw []byte) (*Event, error) {
	e, of := p.event, d.current
	for i := range of.loads {
		of.loads[i].decode(e.Args, raw)
	}
	if of.isRare {
		if err := d.decodeRare(e, raw, of.record); err != nil {
			return nil, err
		}
	}
	for i := range p.captures {
		p.captures[i].decode(e.Args, raw)
	}
	return e, nil
}

// header is what a record begins with that says when and where the hit was, as
// [bpfgen.Record] places it.
type header struct {
	site, cpu     uint32
	time, process uint64
	command       [commandSize / 8]uint64
}

// setHeader completes an event by when and where the hit was.
func (d *decoder) setHeader(e *Event, h *header) {
	e.CPU = int(h.cpu)
	e.Monotonic, e.Time = time.Duration(h.time), time.Unix(0, int64(h.time)+d.wall)
	e.PID, e.TID = int(h.process>>32), int(uint32(h.process))
	if h.command != d.command {
		d.command, d.name = h.command, d.commands.name(h.command)
	}
	e.Command = d.name
}
