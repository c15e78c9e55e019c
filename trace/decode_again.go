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
	event  *Event
	events *events

	// A record of the site is as long as that, and begins with the number.
	length, id uint32
	step       uint64 // to the record behind it

	// next is of the site that followed this one when the last record of this
	// one was followed by one of another, or the same one.
	next *repeat

	words   []Value // of the event's arguments
	wordsAt int     // place in the record

	isShort   bool // there are only words, and perhaps a text
	hasHeader bool
	text      *repeatedText // what is behind the first argument that has a text
	hasRest   bool          // see finish

	command [commandSize / 8]uint64 // the bytes of the event's, if there is a header

	hasBytes bool // that are in the record, see settle
	numbers  []repeatedNumber
	texts    []repeatedText // behind other arguments
	captures []captured     // that are not texts, or may be missing
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

// noRepeat returns one that is of no site.
func noRepeat() *repeat {
	p := &repeat{length: noRecord}
	p.next = p
	return p
}

// newRepeat returns what it takes to use an event of the site again.
func newRepeat(e *Event, site *Site) *repeat {
	of := site.events
	p := &repeat{
		event:     e,
		events:    of,
		id:        site.id,
		words:     e.Args[of.firstWord:][:of.wordCount],
		wordsAt:   of.wordsAt,
		hasHeader: of.hasHeader, hasBytes: of.hasBytes || of.isRare,
		length: uint32(of.record.Size),
	}
	p.next = p
	p.step = recordHeader + (uint64(p.length)+7)&^7
	for _, f := range of.numbers {
		p.numbers = append(p.numbers, repeatedNumber{&e.Args[f.arg], f})
	}
	for _, c := range of.captures {
		v := &e.Args[c.arg]
		switch {
		case v.kind == Bytes || v.state != valuePresent || of.mayFail(c.arg):
			p.captures = append(p.captures, c)
		case p.text == nil:
			p.text = &repeatedText{v, c}
		default:
			p.texts = append(p.texts, repeatedText{v, c})
		}
	}
	p.hasRest = of.isRare || len(of.loads)+len(p.texts)+len(p.captures) > 0
	p.isShort = !p.hasHeader && len(p.numbers) == 0 && !p.hasRest
	return p
}

// is reports whether a record is of the site.
func (p *repeat) is(record unsafe.Pointer, length uint32) bool {
	return length == p.length && *(*uint32)(record) == p.id
}

// setWords sets the arguments that are words. Nothing of a record is checked
// here, nor in the next ones: that it is of the site and as long as the site's
// records are is known, and so it is known where in it is what.
func (p *repeat) setWords(record unsafe.Pointer) {
	words, from := p.words, unsafe.Add(record, p.wordsAt)
	if len(words) == 0 {
		return
	}
	words[0].bits = *(*uint64)(from) // not in the loop: most have few
	for i := 1; i < len(words); i++ {
		words[i].bits = *(*uint64)(unsafe.Add(from, i*8))
	}
}

// setNumbers sets the other arguments that can always be read.
func (p *repeat) setNumbers(record unsafe.Pointer) {
	numbers := p.numbers
	for i := range numbers {
		n := &numbers[i]
		// It need not be aligned, as some machines want a word to be.
		n.value.bits = n.of(binary.NativeEndian.Uint64((*[8]byte)(unsafe.Add(record, n.from))[:]))
	}
}

// set sets the text if it is complete. It reports whether it is.
func (t *repeatedText) set(record unsafe.Pointer) bool {
	length := *(*int64)(unsafe.Add(record, t.status)) - t.terminator
	if uint64(length) > uint64(t.most) {
		return false
	}
	t.value.data = unsafe.String((*byte)(unsafe.Add(record, t.data)), int(length))
	t.value.dataState = dataComplete
	return true
}

// bytes returns the record.
func (p *repeat) bytes(record unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(record), p.length)
}

// again returns the event of a record of the site. It is what
// [reading.readSame] does.
func (d *decoder) again(record unsafe.Pointer) (*Event, error) {
	p := d.repeat
	p.setWords(record)
	if p.hasHeader {
		h := (*header)(record)
		if !d.isAsBefore(p, h) {
			d.turn(p, h)
		}
		h.setHeader(p.event)
		p.event.Time = d.timeOf(h)
	}
	if p.text != nil && !p.text.set(record) {
		p.text.decode(p.event.Args, p.bytes(record))
	}
	p.setNumbers(record)
	if p.hasRest {
		return p.event, d.finish(p, record)
	}
	return p.event, nil
}

// finish completes the event of a record by what is rare, or may be missing.
func (d *decoder) finish(p *repeat, record unsafe.Pointer) error {
	e, of, raw := p.event, p.events, p.bytes(record)
	for i := range p.texts {
		p.texts[i].decode(e.Args, raw)
	}
	for i := range of.loads {
		of.loads[i].decode(e.Args, raw)
	}
	if of.isRare {
		if err := d.decodeRare(e, raw, of.record); err != nil {
			return err
		}
	}
	for i := range p.captures {
		p.captures[i].decode(e.Args, raw)
	}
	return nil
}

// header is what a record begins with that says when and where the hit was, as
// [bpfgen.Record] places it.
type header struct {
	site, cpu     uint32
	time, process uint64
	command       [commandSize / 8]uint64
}

// setHeader completes an event by where the hit was, without the name of the
// thread.
func (h *header) setHeader(e *Event) {
	e.CPU = int(h.cpu)
	e.PID, e.TID = int(h.process>>32), int(uint32(h.process))
	e.Monotonic = time.Duration(h.time)
}

// isAsBefore reports whether the thread has the name that the one of the event
// before has, and the second is that of the decoder.
func (d *decoder) isAsBefore(p *repeat, h *header) bool {
	return uint64(int64(h.time)+d.wall-d.second) < uint64(time.Second) &&
		h.command[0] == p.command[0] && h.command[1] == p.command[1]
}

// turn has isAsBefore be true.
func (d *decoder) turn(p *repeat, h *header) {
	if h.command != p.command {
		p.command, p.event.Command = h.command, d.commands.name(h.command)
	}
	d.unix = (int64(h.time) + d.wall) / int64(time.Second)
	d.second = d.unix * int64(time.Second)
}

// timeOf returns the time of a hit by the wall clock.
func (d *decoder) timeOf(h *header) time.Time {
	return time.Unix(d.unix, int64(h.time)+d.wall-d.second)
}
