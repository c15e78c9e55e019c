// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// decoder turns records into events.
type decoder struct {
	sites    *siteTable
	commands commandTable
	wall     int64 // nanoseconds to add to the monotonic clock

	// A second, by the wall clock, since 1970: in nanoseconds and in seconds.
	second, unix int64

	site    *Site   // of the last record for which find was called
	current *events // of its site

	// reuse has an event used again for the next one of the same kind, so that
	// it costs no allocation once the commands and the sizes are known.
	// Otherwise each is the caller's own.
	reuse bool
	spare []byte // where settle puts its bytes

	repeat *repeat // of the site of the last record, if events are reused; otherwise of none
}

func newDecoder(sites *siteTable, reuse bool) *decoder {
	return &decoder{sites: sites, reuse: reuse, repeat: noRepeat()}
}

// decode returns the event of any record. If events are reused it is valid
// until the next one is decoded, and as long as the record is, unless settle is
// called.
func (d *decoder) decode(raw []byte) (*Event, error) {
	if d.reuse {
		if p := d.repeat; uint64(len(raw)) < uint64(p.length) ||
			binary.NativeEndian.Uint32(raw) != p.id {
			if err := d.find(raw); err != nil {
				return nil, err
			}
		}
		return d.again(unsafe.Pointer(unsafe.SliceData(raw)))
	}
	if d.current == nil || len(raw) < d.current.record.Size ||
		binary.NativeEndian.Uint32(raw) != d.site.id {
		if err := d.find(raw); err != nil {
			return nil, err
		}
	}
	of := d.current
	e := d.newEvent(of)
	of.decodeNumbers(e.Args, raw)
	if of.hasHeader {
		h := (*header)(unsafe.Pointer(unsafe.SliceData(raw)))
		h.setHeader(e)
		e.Time, e.Command = d.timeOf(h), d.commands.name(h.command)
	}
	if of.isRare {
		if err := d.decodeRare(e, raw, of.record); err != nil {
			return nil, err
		}
	}
	if of.hasBytes {
		of.decodeCaptures(e.Args, raw)
		e.ownBytes(nil)
	}
	return e, nil
}

// find sets what decode needs for the record's site.
func (d *decoder) find(raw []byte) error {
	if len(raw) < 8 {
		return fmt.Errorf("a record of %d bytes came from the kernel", len(raw))
	}
	site := d.sites.get(binary.NativeEndian.Uint32(raw))
	if site == nil || site.events == nil || len(raw) < site.events.record.Size {
		return fmt.Errorf("a record of %d bytes came from the kernel for a site that is not known",
			len(raw))
	}
	d.site, d.current = site, site.events
	if d.reuse {
		if site.repeat == nil {
			site.repeat = newRepeat(d.newEvent(site.events), site)
		}
		d.turnTo(site.repeat)
	}
	return nil
}

// expect makes the next record one of a site of which there were some before,
// if events are reused. It reports whether there were any of that length.
func (d *decoder) expect(id, length uint32) bool {
	if !d.reuse {
		return false
	}
	site := d.sites.get(id)
	if site == nil || site.repeat == nil || site.repeat.length != length {
		return false
	}
	d.turnTo(site.repeat)
	return true
}

// turnTo makes the next record one of another site.
func (d *decoder) turnTo(p *repeat) {
	d.repeat.next = p
	d.repeat = p
}

// forget is called when sites are removed, whose numbers others can have then.
func (d *decoder) forget(sites []*Site) {
	for _, site := range sites {
		if site.repeat != nil {
			site.repeat.length = noRecord // it may be the next one of another
		}
	}
	d.site, d.current, d.repeat = nil, nil, noRepeat()
}

// newEvent returns an event of the site that was found last, with all that is
// known beforehand.
func (d *decoder) newEvent(of *events) *Event {
	e := newEvent(len(of.known))
	e.Args = append(e.Args, of.known...)
	e.Weight = 1
	e.Probe, e.Site = d.site.probe, d.site
	return e
}

// settle gives the last event that was decoded memory of its own for its bytes,
// if it is used again. The others have theirs.
func (d *decoder) settle() {
	if d.repeat.hasBytes {
		e := d.repeat.event
		d.spare = e.ownBytes(d.spare[:0])
		if e.Start != nil {
			d.spare = e.Start.ownBytes(d.spare)
		}
	}
}

// decodeRare completes an event by what most sessions do not ask for.
func (d *decoder) decodeRare(e *Event, raw []byte, r *bpfgen.Record) error {
	order := binary.NativeEndian
	if r.Cgroup != bpfgen.None {
		e.CgroupID = order.Uint64(raw[r.Cgroup:])
	}
	if r.Weight != bpfgen.None {
		e.Weight = order.Uint64(raw[r.Weight:])
	}
	if r.Stack != bpfgen.None {
		decodeStack(e, raw, r)
	}
	if r.Registers != nil {
		decodeRegisters(e, raw, r)
	}
	if r.Span != nil {
		return d.decodeSpan(e, raw, r.Span)
	}
	return nil
}

// decodeSpan completes an event by the call that it ends.
func (d *decoder) decodeSpan(e *Event, raw []byte, p *bpfgen.SpanPlace) error {
	order := binary.NativeEndian
	e.Duration = time.Duration(order.Uint64(raw[p.Duration:]))
	word := order.Uint64(raw[p.Word:])
	e.Failed = word&(1<<bpfgen.FlagFailed) != 0
	site := d.sites.get(uint32(word >> 32))
	if site == nil || site.starts == nil {
		return errors.New("a record came from the kernel of a call whose start is not known")
	}
	of := site.starts
	r, start := of.record, e.Start
	if !d.reuse || start == nil {
		start = newEvent(len(of.known))
		start.Weight = 1
	}
	e.Start = start
	start.Probe, start.Site, start.CPU = site.probe, site, -1
	start.PID, start.TID, start.Command, start.CgroupID = e.PID, e.TID, e.Command, e.CgroupID
	start.Monotonic = time.Duration(order.Uint64(raw[p.Began:]))
	start.Time = time.Unix(0, int64(start.Monotonic)+d.wall)
	saved := raw[p.Saved:][:p.Size]
	if order.Uint64(raw[p.Found:]) == 0 {
		if r.Process != bpfgen.None {
			start.TID, start.Command = 0, "" // it may have been another thread
		}
		forgotten(start, of)
		return nil
	}
	if r.Process != bpfgen.None {
		both := order.Uint64(saved[r.Process:])
		start.PID, start.TID = int(both>>32), int(uint32(both))
		start.Command = d.commands.name([2]uint64{order.Uint64(saved[r.Command:]),
			order.Uint64(saved[r.Command+8:])})
	}
	if r.Cgroup != bpfgen.None {
		start.CgroupID = order.Uint64(saved[r.Cgroup:])
	}
	start.Args = append(start.Args[:0], of.known...)
	of.decodeNumbers(start.Args, saved)
	of.decodeCaptures(start.Args, saved)
	if r.Stack != bpfgen.None {
		decodeStack(start, saved, r)
	}
	if r.Registers != nil {
		decodeRegisters(start, saved, r)
	}
	if !d.reuse && of.hasBytes {
		start.ownBytes(nil)
	}
	return nil
}

// forgotten sets the arguments of a start of which nothing was kept, and no
// stack.
func forgotten(start *Event, of *events) {
	start.Stack, start.StackCopy, start.Registers = start.Stack[:0], nil, proc.Registers{}
	start.Args = append(start.Args[:0], of.known...)
	for i := range start.Args {
		if v := &start.Args[i]; of.record.Args[i].Value != bpfgen.None || v.kind == Bytes {
			v.state = valueUnreadable
		}
	}
	for i := range of.record.Captures {
		if v := &start.Args[of.record.Captures[i].Arg]; v.kind != Bytes {
			v.dataState = dataUnreadable
		}
	}
}

// newEvent returns an event with room for so many arguments. Most probes have
// few, and then event and arguments are one allocation.
func newEvent(args int) *Event {
	switch {
	case args <= 2:
		b := new(struct {
			Event
			args [2]Value
		})
		b.Args = b.args[:0]
		return &b.Event
	case args <= 4:
		b := new(struct {
			Event
			args [4]Value
		})
		b.Args = b.args[:0]
		return &b.Event
	case args <= 8:
		b := new(struct {
			Event
			args [8]Value
		})
		b.Args = b.args[:0]
		return &b.Event
	}
	return &Event{Args: make([]Value, 0, args)}
}

// ownBytes copies all bytes that are still in the record into one block behind
// what is there, which it returns with them.
func (e *Event) ownBytes(block []byte) []byte {
	size := len(e.StackCopy)
	for i := range e.Args {
		size += len(e.Args[i].data)
	}
	block = slices.Grow(block, size)
	own := func(b []byte) []byte {
		start := len(block)
		block = append(block, b...)
		return block[start:len(block):len(block)]
	}
	for i := range e.Args {
		if v := &e.Args[i]; v.data != "" {
			v.setData(own(v.bytes()), v.dataState)
		}
	}
	if e.StackCopy != nil {
		e.StackCopy = own(e.StackCopy)
	}
	return block
}

func decodeStack(e *Event, raw []byte, r *bpfgen.Record) {
	size := int64(binary.NativeEndian.Uint64(raw[r.Stack:]))
	if size < 0 || size > int64(8*r.Frames) {
		size = 0
	}
	e.Stack = resize(e.Stack, int(size/8))
	addresses := raw[r.Stack+bpfgen.StackData:]
	for i := range e.Stack {
		e.Stack[i] = binary.NativeEndian.Uint64(addresses[8*i:])
	}
}

// resize returns a slice with a length, which reuses the memory of words if
// there is enough.
func resize(words []uint64, length int) []uint64 {
	if cap(words) < length {
		return make([]uint64, length)
	}
	return words[:length]
}

func decodeRegisters(e *Event, raw []byte, r *bpfgen.Record) {
	order := binary.NativeEndian
	registers := &e.Registers
	registers.Machine = r.Registers.Machine
	registers.PC = order.Uint64(raw[r.Registers.PC:])
	registers.SP = order.Uint64(raw[r.Registers.SP:])
	registers.General = resize(registers.General, len(r.Registers.General))
	for i, at := range r.Registers.General {
		registers.General[i] = 0
		if at != bpfgen.None {
			registers.General[i] = order.Uint64(raw[at:])
		}
	}
	copied := min(order.Uint64(raw[r.Copied:]), uint64(r.CopySize))
	below := min(registers.SP%bpfgen.CopyUnit, copied)
	e.StackCopy = raw[r.Copy:][below:copied:copied]
}
