// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

type decoder struct {
	sites    *siteTable
	commands commandTable
	wall     int64 // nanoseconds to add to the monotonic clock

	// Of the last record's site. A record of another one has another number, or
	// after forget none is large enough.
	id      uint32
	size    int // of a record, at least
	site    *Site
	current *events
	event   *Event // if events are reused, else nil

	command [2]uint64 // of the last record, as in commandTable
	name    string    // the same

	reuse bool   // all events of a site use one Event, to allocate nothing
	spare []byte // where settle puts its bytes
	room  []byte // of the last event if events are not reused, for its bytes
}

func newDecoder(sites *siteTable, reuse bool) *decoder {
	d := &decoder{sites: sites, reuse: reuse}
	d.forget()
	return d
}

// decode returns the event of a record. A reused event is valid until the next
// one is decoded, and no longer than the record unless settle is called.
//
// What most records have is decoded here, without a call, and words without a
// loop unless there are many: an event of three words takes 10.5 ns in place of
// 13.4, one of a text 13 in place of 17. With a header, whose places are
// constants, it takes 13 in place of 20.
func (d *decoder) decode(raw []byte) (*Event, error) {
	order := binary.NativeEndian
	if len(raw) < d.size || order.Uint32(raw) != d.id {
		if err := d.find(raw); err != nil {
			return nil, err
		}
	}
	of, e := d.current, d.event
	if e == nil {
		e = d.newEvent(of, of.sizeOfBytes(raw))
	}

	at, args := of.wordsAt, e.Args[of.firstWord:][:of.wordCount]
	for len(args) >= 4 {
		v, w := (*[4]Value)(args), (*[32]byte)(raw[at:at+32])
		v[0].bits, v[1].bits = order.Uint64(w[:]), order.Uint64(w[8:])
		v[2].bits, v[3].bits = order.Uint64(w[16:]), order.Uint64(w[24:])
		args, at = args[4:], at+32
	}
	switch len(args) {
	case 3:
		v, w := (*[3]Value)(args), (*[24]byte)(raw[at:at+24])
		v[0].bits, v[1].bits, v[2].bits = order.Uint64(w[:]), order.Uint64(w[8:]), order.Uint64(w[16:])
	case 2:
		v, w := (*[2]Value)(args), (*[16]byte)(raw[at:at+16])
		v[0].bits, v[1].bits = order.Uint64(w[:]), order.Uint64(w[8:])
	case 1:
		args[0].bits = order.Uint64(raw[at : at+8])
	}
	if len(of.numbers) > 0 {
		of.decodeNumbers(e.Args, raw)
	}

	if of.hasHeader {
		h := (*[bpfgen.HeaderEnd]byte)(raw)
		e.CPU = int(order.Uint32(h[bpfgen.HeaderCPU:]))
		process := order.Uint64(h[bpfgen.HeaderProcess:])
		e.PID, e.TID = int(process>>32), int(uint32(process))
		at := int64(order.Uint64(h[bpfgen.HeaderTime:]))
		e.Monotonic, e.Time = time.Duration(at), time.Unix(0, at+d.wall)
		command := [2]uint64{order.Uint64(h[bpfgen.HeaderCommand:]), order.Uint64(h[bpfgen.HeaderCommand+8:])}
		if command != d.command {
			d.command, d.name = command, d.commands.name(command)
		}
		e.Command = d.name
	}

	if of.isRare {
		if err := d.decodeRare(e, raw, of.record); err != nil {
			return nil, err
		}
	}
	if of.hasBytes {
		// A text that is there and not cut has a status from 1 to Max+1.
		if c := of.text; c != nil && order.Uint64(raw[c.Status:])-1 <= uint64(c.Max) {
			e.Args[c.Arg].setData(raw[c.Data:][:order.Uint64(raw[c.Status:])-1], dataComplete)
		} else {
			of.decodeCaptures(e.Args, raw)
		}
		if !d.reuse {
			e.ownBytes(d.room)
		}
	}
	return e, nil
}

func (d *decoder) find(raw []byte) error {
	if len(raw) < 8 {
		return fmt.Errorf("a record of %d bytes came from the kernel", len(raw))
	}
	site := d.sites.get(binary.NativeEndian.Uint32(raw))
	if site == nil || site.events == nil || len(raw) < site.events.record.Size {
		return fmt.Errorf("a record of %d bytes came from the kernel for a site that is not known",
			len(raw))
	}
	d.id, d.size, d.site, d.current = site.id, site.events.record.Size, site, site.events
	if d.reuse {
		if site.event == nil {
			site.event = d.newEvent(site.events, 0)
		}
		d.event = site.event
	}
	return nil
}

// forget has decode look for the site of the next record.
func (d *decoder) forget() { d.size, d.site, d.current, d.event = math.MaxInt, nil, nil, nil }

// newEvent returns an event of the site that was found last, with the values
// that are known before a hit. It sets room.
func (d *decoder) newEvent(of *events, bytes int) *Event {
	e, room := newEvent(len(of.known), bytes)
	e.Args = append(e.Args, of.known...)
	e.Weight = 1
	e.Probe, e.Site = d.site.probe, d.site
	d.room = room
	return e
}

// settle gives the last event memory of its own for its bytes if events are
// reused. Other events have their own already.
func (d *decoder) settle() {
	if e := d.event; e != nil {
		d.spare = e.ownBytes(d.spare[:0])
		if e.Start != nil {
			d.spare = e.Start.ownBytes(d.spare)
		}
	}
}

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

func (d *decoder) decodeSpan(e *Event, raw []byte, p *bpfgen.SpanPlace) error {
	order := binary.NativeEndian
	e.Duration = time.Duration(order.Uint64(raw[p.Duration:]))
	word := order.Uint64(raw[p.Word:])
	e.Failed = word&(1<<bpfgen.FlagFailed) != 0
	site := d.sites.get(uint32(word >> 32))
	if site == nil || site.starts == nil {
		return errors.New("a record came from the kernel of a call whose start is not known")
	}
	e.call = nil
	if word&(1<<bpfgen.FlagNamed) != 0 {
		e.call = site.call
	}
	if !d.reuse || e.Start == nil {
		e.Start, _ = newEvent(len(site.starts.known), 0)
		e.Start.Weight = 1
	}
	start := e.Start
	start.PID, start.TID, start.Command, start.CgroupID = e.PID, e.TID, e.Command, e.CgroupID
	start.Monotonic = time.Duration(order.Uint64(raw[p.Began:]))
	var saved []byte
	if order.Uint64(raw[p.Found:]) != 0 {
		saved = raw[p.Saved:][:p.Size]
	}
	d.decodeStart(start, site, saved)
	return nil
}

// decodeStart sets the start of a call from the bytes that the kernel has
// saved, nil if it has forgotten them. The monotonic time, and the thread as of
// the call's end, are set already.
func (d *decoder) decodeStart(start *Event, site *Site, saved []byte) {
	order := binary.NativeEndian
	of := site.starts
	r := of.record
	start.Probe, start.Site, start.CPU = site.probe, site, -1
	start.Time = time.Unix(0, int64(start.Monotonic)+d.wall)
	if saved == nil {
		if r.Process != bpfgen.None {
			start.TID, start.Command = 0, "" // it may have been another thread
		}
		forgotten(start, of)
		return
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
	of.decodeWords(start.Args, saved)
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
}

// forgotten makes the arguments of a start that was not kept unreadable, and
// removes its stack.
func forgotten(start *Event, of *events) {
	start.Stack, start.StackCopy, start.Registers = start.Stack[:0], nil, nil
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

// newEvent returns an event with room for its arguments, and for bytes. Most
// probes have few of both, and then all is one allocation. Its size is most of
// what an event costs that is kept.
func newEvent(args, bytes int) (e *Event, room []byte) {
	if bytes > bytesOfEvent {
		bytes = 0 // they are another allocation
	}
	switch {
	case args <= 2 && bytes == 0:
		b := new(eventWithArgs[[2]Value])
		b.Args = b.args[:0]
		return &b.Event, nil
	case args <= 2:
		b := new(eventWithBytes[[2]Value])
		b.Args = b.args[:0]
		return &b.Event, b.bytes[:0]
	case args <= 4 && bytes == 0:
		b := new(eventWithArgs[[4]Value])
		b.Args = b.args[:0]
		return &b.Event, nil
	case args <= 4:
		b := new(eventWithBytes[[4]Value])
		b.Args = b.args[:0]
		return &b.Event, b.bytes[:0]
	}
	return &Event{Args: make([]Value, 0, args)}, nil
}

const bytesOfEvent = 64

type eventWithArgs[A any] struct {
	Event
	args A
}

type eventWithBytes[A any] struct {
	eventWithArgs[A]
	bytes [bytesOfEvent]byte
}

// ownBytes copies the bytes of an event from the record to the end of a block,
// which it returns.
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
	e.Stack = slices.Grow(e.Stack[:0], int(size/8))[:size/8]
	addresses := raw[r.Stack+bpfgen.StackData:]
	for i := range e.Stack {
		e.Stack[i] = binary.NativeEndian.Uint64(addresses[8*i:])
	}
}

func decodeRegisters(e *Event, raw []byte, r *bpfgen.Record) {
	order := binary.NativeEndian
	e.Registers = slices.Grow(e.Registers[:0], len(r.Registers.General)+1)
	for _, at := range r.Registers.General {
		word := uint64(0)
		if at != bpfgen.None {
			word = order.Uint64(raw[at:])
		}
		e.Registers = append(e.Registers, word)
	}
	e.Registers = append(e.Registers, order.Uint64(raw[r.Registers.PC:]))
	copied := min(order.Uint64(raw[r.Copied:]), uint64(r.CopySize))
	below := min(order.Uint64(raw[r.Registers.SP:])%bpfgen.CopyUnit, copied)
	e.StackCopy = raw[r.Copy:][below:copied:copied]
}

// events is the form of a site's records. It is made when the site is attached,
// so that little is left to decide for each record. Sites with equal records
// share it.
type events struct {
	record *bpfgen.Record
	known  []Value // the arguments, with the values that no record has

	// Words of eight bytes that can always be read, and follow each other: most
	// arguments do.
	wordsAt, firstWord, wordCount int // place in the record, and the arguments

	numbers []fetch // the other arguments

	hasHeader bool // time, process, thread and processor
	hasBytes  bool // captures, or a copy of the stack
	isRare    bool // there are parts that few sessions ask for

	// text is the capture if there is but one, of a text that a word leads to.
	text *bpfgen.CapturePlace
}

// A fetch is an argument that is not among the words. It is read as the end of
// eight bytes. There are always eight before its end, because a record begins
// with the number of the site, but there may be fewer after its beginning.
type fetch struct {
	from, arg, failed int // places in the record, and the argument; see bpfgen.Place
	unused            uint8
	mask              uint64 // of the bits that are the argument's
}

// isBigEndian is the byte order of this machine, and so of the kernel. As a
// constant it costs no branch at each record.
const isBigEndian = runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" ||
	runtime.GOARCH == "mips64" || runtime.GOARCH == "mips"

func newEvents(r *bpfgen.Record, args []argspec.Arg) *events {
	if r == nil {
		return nil
	}
	e := &events{record: r, known: make([]Value, len(args))}
	for i := range args {
		arg, v, p := &args[i], &e.known[i], &r.Args[i]
		switch {
		case arg.Float:
			v.kind = Float
		case arg.Signed:
			v.kind = Signed
		}
		if arg.Size <= math.MaxUint8 {
			v.size = uint8(arg.Size)
		}
		if arg.Kind == argspec.Constant {
			v.bits, v.state = arg.Constant, valuePresent
		}
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
		f := fetch{from: p.Value + int(v.size) - 8, arg: i, failed: p.Failed, unused: 64 - 8*v.size,
			mask: math.MaxUint64}
		if v.kind != Signed {
			f.mask >>= f.unused
		}
		e.numbers = append(e.numbers, f)
	}
	for i := range r.Captures {
		c := &r.Captures[i]
		v := &e.known[c.Arg]
		v.text = c.Text
		if args[c.Arg].Kind == argspec.Bytes {
			v.kind, v.state = Bytes, valuePresent
		}
	}
	e.hasHeader = r.CPU != bpfgen.None
	e.hasBytes = len(r.Captures) > 0 || r.Registers != nil
	e.isRare = r.Cgroup != bpfgen.None || r.Weight != bpfgen.None || r.Stack != bpfgen.None ||
		r.Registers != nil || r.Span != nil
	if len(r.Captures) == 1 && r.Captures[0].Terminated() {
		if arg := r.Captures[0].Arg; arg >= e.firstWord && arg < e.firstWord+e.wordCount {
			e.text = &r.Captures[0]
		}
	}
	return e
}

func (e *events) sizeOfBytes(raw []byte) (size int) {
	for i := range e.record.Captures {
		c := &e.record.Captures[i]
		size += max(0, min(c.Max, int(int64(binary.NativeEndian.Uint64(raw[c.Status:])))))
	}
	return size
}

func (e *events) decodeWords(args []Value, raw []byte) {
	words := raw[e.wordsAt:][:8*e.wordCount]
	args = args[e.firstWord:][:e.wordCount]
	for i := range args {
		args[i].bits = binary.NativeEndian.Uint64(words[8*i:])
	}
}

func (e *events) decodeNumbers(args []Value, raw []byte) {
	for i := range e.numbers {
		f := &e.numbers[i]
		v := &args[f.arg]
		if f.failed != bpfgen.None {
			if raw[f.failed] != 0 {
				v.state, v.bits = valueUnreadable, 0
				continue
			}
			v.state = valuePresent
		}
		word := binary.NativeEndian.Uint64(raw[f.from:])
		unused := f.unused & 63 // the compiler sees that it is less than 64
		if isBigEndian {
			word <<= unused
		}
		v.bits = uint64(int64(word)>>unused) & f.mask
	}
}

func (e *events) decodeCaptures(args []Value, raw []byte) {
	for i := range e.record.Captures {
		c := &e.record.Captures[i]
		v := &args[c.Arg]
		length := int64(binary.NativeEndian.Uint64(raw[c.Status:]))
		if length > 0 && c.Terminated() {
			length-- // older kernels do not count the zero of an empty text
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
			data := raw[c.Data : c.Data+c.Max]
			if v.text {
				data = wholeText(data)
			}
			v.setData(data, dataTruncated)
		default:
			v.setData(raw[c.Data:c.Data+int(length)], dataComplete)
		}
	}
}

const commandBits = 10

// commandTable has the strings of the names of threads, which events share. Of
// names with the same hash it keeps the last.
type commandTable [1 << commandBits]struct {
	raw  [2]uint64 // as the kernel has sent it, with any bytes after the terminator
	name string
}

func (t *commandTable) name(raw [2]uint64) string {
	const spread = 0x9e3779b97f4a7c15 // odd, and without a pattern
	entry := &t[(raw[0]^raw[1])*spread>>(64-commandBits)]
	if entry.raw != raw {
		entry.raw, entry.name = raw, commandOf(raw)
	}
	return entry.name
}

func commandOf(raw [2]uint64) string {
	order := binary.NativeEndian
	// Some kernels, such as 6.1, leave old memory after the end.
	return unix.ByteSliceToString(order.AppendUint64(order.AppendUint64(nil, raw[0]), raw[1]))
}

// wholeText returns a text without the beginning of a character at its end,
// where the text was cut. Text that is not UTF-8 stays as it is.
func wholeText(text []byte) []byte {
	for i := 1; i <= min(len(text), utf8.UTFMax-1); i++ {
		if end := text[len(text)-i:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
