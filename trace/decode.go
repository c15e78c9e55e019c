// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// maxCommands bounds the names of threads that are kept as strings. A machine
// has hundreds of them. A program that renames its threads at each request
// makes the decoder forget all names from time to time.
const maxCommands = 4096

// decoder turns records into events.
type decoder struct {
	sites    *siteTable
	commands map[[commandSize]byte]string
	wall     int64 // nanoseconds to add to the monotonic clock

	// reused is the one event that decode returns, so that an event costs no
	// allocation once the commands and the sizes are known; nil if each event
	// is to be the caller's own.
	reused *Event
}

const commandSize = 16

func newDecoder(sites *siteTable, reuse bool) *decoder {
	d := &decoder{sites: sites, commands: make(map[[commandSize]byte]string)}
	if reuse {
		d.reused = new(Event)
	}
	return d
}

// decode returns the event of a record. If the event is reused it is valid
// until the next call, and as long as the record is.
func (d *decoder) decode(raw []byte) (*Event, error) {
	order := binary.NativeEndian
	if len(raw) < 8 {
		return nil, fmt.Errorf("a record of %d bytes came from the kernel", len(raw))
	}
	site := d.sites.get(order.Uint32(raw))
	if site == nil || site.events.record == nil || len(raw) < site.events.record.Size {
		return nil, fmt.Errorf("a record of %d bytes came from the kernel for a site that is not known", len(raw))
	}
	r := site.events.record
	e := d.reused
	if e == nil {
		e = newEvent(len(site.events.known))
	}
	e.Probe, e.Site = site.probe, site
	if r.CPU != bpfgen.None {
		e.CPU = int(order.Uint32(raw[r.CPU:]))
	}
	if r.Time != bpfgen.None {
		monotonic := int64(order.Uint64(raw[r.Time:]))
		e.Monotonic, e.Time = time.Duration(monotonic), time.Unix(0, monotonic+d.wall)
	}
	if r.Process != bpfgen.None {
		both := order.Uint64(raw[r.Process:])
		e.PID, e.TID = int(both>>32), int(uint32(both))
	}
	if r.CGroup != bpfgen.None {
		e.CGroup = order.Uint64(raw[r.CGroup:])
	}
	e.Weight = 1
	if r.Weight != bpfgen.None {
		e.Weight = order.Uint64(raw[r.Weight:])
	}
	if r.Command != bpfgen.None {
		e.Command = d.command(raw[r.Command:])
	}
	decodeArguments(e, raw, &site.events)
	if r.Stack != bpfgen.None {
		decodeStack(e, raw, r)
	}
	if r.Registers != nil {
		decodeRegisters(e, raw, r)
	}
	if r.Span != nil {
		if err := d.decodeSpan(e, raw, r.Span); err != nil {
			return nil, err
		}
	}
	if d.reused == nil && (len(r.Captures) > 0 || len(e.StackCopy) > 0) {
		e.copyBytes()
	}
	return e, nil
}

// decodeSpan completes an event by the call that it ends.
func (d *decoder) decodeSpan(e *Event, raw []byte, p *bpfgen.SpanPlace) error {
	order := binary.NativeEndian
	e.Duration = time.Duration(order.Uint64(raw[p.Duration:]))
	site := d.sites.get(uint32(order.Uint64(raw[p.Word:]) >> 32))
	if site == nil || site.starts.record == nil {
		return errors.New("a record came from the kernel of a call whose start is not known")
	}
	r, start := site.starts.record, e.Start
	if d.reused == nil || start == nil {
		start = newEvent(len(site.starts.known))
	}
	e.Start = start
	start.Probe, start.Site, start.CPU = site.probe, site, -1
	start.PID, start.TID, start.Command, start.CGroup = e.PID, e.TID, e.Command, e.CGroup
	start.Monotonic = time.Duration(order.Uint64(raw[p.Began:]))
	start.Time = time.Unix(0, int64(start.Monotonic)+d.wall)
	saved := raw[p.Saved:][:p.Size]
	if order.Uint64(raw[p.Found:]) == 0 {
		if r.Process != bpfgen.None {
			start.TID, start.Command = 0, "" // it may have been another thread
		}
		forgotten(start, &site.starts)
		return nil
	}
	if r.Process != bpfgen.None {
		both := order.Uint64(saved[r.Process:])
		start.PID, start.TID = int(both>>32), int(uint32(both))
		start.Command = d.command(saved[r.Command:])
	}
	if r.CGroup != bpfgen.None {
		start.CGroup = order.Uint64(saved[r.CGroup:])
	}
	decodeArguments(start, saved, &site.starts)
	if d.reused == nil && len(r.Captures) > 0 {
		start.copyBytes()
	}
	return nil
}

// forgotten sets the arguments of a start of which nothing was kept.
func forgotten(start *Event, of *events) {
	start.Args = append(start.Args[:0], of.known...)
	for i := range start.Args {
		if v := &start.Args[i]; of.record.Args[i].Value != bpfgen.None || v.kind == Bytes {
			v.state = Unreadable
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

// copyBytes copies all bytes that are still in the record into one block.
func (e *Event) copyBytes() {
	size := len(e.StackCopy)
	for i := range e.Args {
		size += len(e.Args[i].data)
	}
	block := make([]byte, 0, size)
	own := func(b []byte) []byte {
		start := len(block)
		block = append(block, b...)
		return block[start:len(block):len(block)]
	}
	for i := range e.Args {
		if e.Args[i].data != nil {
			e.Args[i].data = own(e.Args[i].data)
		}
	}
	if e.StackCopy != nil {
		e.StackCopy = own(e.StackCopy)
	}
}

func (d *decoder) command(raw []byte) string {
	key := [commandSize]byte(raw[:commandSize])
	end := bytes.IndexByte(key[:], 0)
	if end < 0 {
		end = len(key)
	}
	clear(key[end:]) // some kernels, 6.1 is one, leave there what was in memory
	if command, ok := d.commands[key]; ok {
		return command
	}
	if len(d.commands) == maxCommands {
		clear(d.commands)
	}
	command := string(key[:end])
	d.commands[key] = command
	return command
}

// decodeArguments sets the arguments of an event, with what is behind them.
func decodeArguments(e *Event, raw []byte, of *events) {
	args := append(e.Args[:0], of.known...)
	e.Args = args
	for i := range of.record.Args {
		p := &of.record.Args[i]
		if p.Value == bpfgen.None {
			continue
		}
		v := &args[i]
		if p.Failed != bpfgen.None && raw[p.Failed] != 0 {
			v.state = Unreadable
			continue
		}
		at := raw[p.Value:]
		order := binary.NativeEndian
		switch v.size {
		case 1:
			v.bits = uint64(at[0])
		case 2:
			v.bits = uint64(order.Uint16(at))
		case 4:
			v.bits = uint64(order.Uint32(at))
		default:
			v.bits = order.Uint64(at)
		}
		if v.kind == Signed {
			unused := 64 - 8*uint(v.size)
			v.bits = uint64(int64(v.bits<<unused) >> unused)
		}
	}
	for i := range of.record.Captures {
		decodeCapture(&args[of.record.Captures[i].Arg], raw, &of.record.Captures[i])
	}
}

// decodeCapture completes an argument by what is behind it.
func decodeCapture(v *Value, raw []byte, c *bpfgen.CapturePlace) {
	status := int64(binary.NativeEndian.Uint64(raw[c.Status:]))
	v.text = c.Text
	length := status
	if c.Terminated() && length > 0 {
		length-- // without the zero at its end, which is not counted of an empty text by older kernels
	}
	switch {
	case v.kind == Bytes && length < 0:
		v.state = Unreadable
	case v.state != Present || length < 0:
		v.dataState = dataUnreadable
	case length > int64(c.Max):
		v.dataState = dataTruncated
		v.data = raw[c.Data : c.Data+c.Max]
	default:
		v.dataState = dataComplete
		v.data = raw[c.Data : c.Data+int(length)]
	}
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
