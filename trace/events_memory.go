// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"sync/atomic"
	"unsafe"
)

const (
	// eventsPerCheck is how many events are read before the clock is read,
	// while there are more to read.
	eventsPerCheck = 1024

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
	r.count = 0
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
//
// A record is compared with what it is expected to be, which is another one of
// the same site: then where the next one begins does not depend on what is in
// this one, and the processor need not wait for its memory before it goes on
// with the next one's.
func (r *reading) readPart() bool {
	m, d := r.memory, r.decoder
	data, mask := unsafe.Pointer(unsafe.SliceData(m.data)), m.mask
	read, limit := m.read, m.limit
	for read < limit {
		var event *Event
		var err error
		header := unsafe.Add(data, read&mask)
		length := atomic.LoadUint32((*uint32)(header)) // before the rest: it says that the rest is there
		record := unsafe.Add(header, recordHeader)
		if length == d.length && *(*uint32)(record) == d.id {
			read += d.step
			m.read = read
			event, err = d.again(record)
		} else {
			raw, ok := m.next()
			if !ok {
				break
			}
			read = m.read
			event, err = d.decode(raw)
		}
		if !r.yield(event, err) || m.interrupted.Load() && r.isOver() {
			return false
		}
		if r.count++; (r.count < eventsOneByOne || r.count%eventsPerCheck == 0) && !r.look() {
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
	return r.ctx.Err() == nil && (r.count%eventsPerCheck != 0 || r.check())
}
