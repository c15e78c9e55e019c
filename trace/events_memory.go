// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"unsafe"
)

const (
	// eventsPerCheck is how many events are read before the clock is read,
	// while there are more to read.
	eventsPerCheck = 1024

	// bytesPerCheck is as much in bytes, of events that have hardly any.
	bytesPerCheck = 16 * eventsPerCheck

	// eventsOneByOne is how many events are read, once some have come, with a
	// look at the context after each. If there are more, many of them wait.
	eventsOneByOne = 64
)

// readMemory hands on the events that are in the memory of the ring buffer. It
// reports whether to go on.
func (r *reading) readMemory() bool {
	if r.memory == nil {
		return true
	}
	r.count, r.lookAt = 0, 0
	for r.memory.refill() {
		r.unasked = true
		if !r.readPart() {
			return false
		}
		// The last event is valid until the next one comes, but its bytes are
		// in memory that is the kernel's again as soon as it knows that they
		// were read.
		r.decoder.settle()
	}
	if r.memory.isEmpty() {
		r.freeSites()
	}
	return true
}

// readPart hands on the events that were there at the last refill. It reports
// whether to go on.
func (r *reading) readPart() bool {
	m := r.memory
	for m.read < m.limit {
		if m.read >= r.lookAt && !r.look() {
			return false
		}
		stop := min(m.limit, r.lookAt)
		if !r.readSame(stop) {
			return false
		}
		if m.read >= stop || r.expectNext() {
			continue
		}
		raw, ok := m.next()
		if !ok {
			break
		}
		event, err := r.decoder.decode(raw)
		if !r.yield(event, err) || m.interrupted.Load() && r.isOver() {
			return false
		}
	}
	return true
}

// expectNext makes the next record one that readSame hands on, and reports
// whether it could.
func (r *reading) expectNext() bool {
	at := r.memory.read & r.memory.mask
	length := r.memory.header(at) // before the rest: it says that the rest is there
	return r.decoder.expect(*(*uint32)(unsafe.Pointer(&r.memory.data[at+recordHeader])), length)
}

// readSame hands on the events up to a place, or up to a record that is not of
// the same site as the one before. It reports whether to go on.
//
// These are the tightest loops of the package. A record is compared with what
// it is expected to be: then where the next one begins does not depend on what
// is in this one, and the processor need not wait for its memory before it goes
// on with the next one's. What is common is done here, and not in functions,
// and what is rare elsewhere: so the loop keeps what it has in registers.
func (r *reading) readSame(stop uint64) bool {
	m, d := r.memory, r.decoder
	p := d.repeat
	if p.isShort {
		return r.readShort(stop)
	}
	for m.read < stop {
		record, length := m.record()
		if !p.is(record, length) {
			p = p.next // sites take turns, such as those where calls start and end
			if !p.is(record, length) || p.isShort {
				break
			}
			d.repeat = p
		}
		m.read += p.step
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
		var err error
		if p.hasRest {
			err = d.finish(p, record)
		}
		if !r.yield(p.event, err) {
			return false
		}
		if m.interrupted.Load() && r.isOver() {
			return false
		}
	}
	return true
}

// readShort is readSame for records of words, with or without a text. With less
// to decide for each it takes a tenth less.
func (r *reading) readShort(stop uint64) bool {
	m, d := r.memory, r.decoder
	p := d.repeat
	for m.read < stop {
		record, length := m.record()
		if !p.is(record, length) {
			p = p.next
			if !p.is(record, length) || !p.isShort {
				break
			}
			d.repeat = p
		}
		m.read += p.step
		p.setWords(record)
		if t := p.text; t != nil && !t.set(record) {
			t.decode(p.event.Args, p.bytes(record))
		}
		if !r.yield(p.event, nil) {
			return false
		}
		if m.interrupted.Load() && r.isOver() {
			return false
		}
	}
	return true
}

// isOver reports whether the iteration is to end.
func (r *reading) isOver() bool {
	r.memory.interrupted.Store(false) // first: what comes later must not be missed
	return r.ctx.Err() != nil || r.memory.ended.Load()
}

// look does what is not done for each of many events. It reports whether to go
// on.
func (r *reading) look() bool {
	if r.ctx.Err() != nil {
		return false
	}
	if r.count++; r.count <= eventsOneByOne {
		r.lookAt = r.memory.read + 1
		return true
	}
	r.lookAt = r.memory.read + bytesPerCheck
	return r.check()
}
