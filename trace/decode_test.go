// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// sample is a site with arguments of all kinds, and a record of it.
func sample(t testing.TB, reuse bool) (*decoder, []byte) {
	t.Helper()
	args := argspec.Parse(elf.EM_X86_64,
		"-4@%ebx 8@%rax 2@$7 -2@8(%rsp) 8f@16(%rsp) 16@%rax 1@24(%rsp) 8@(%rbp)")
	plan := &bpfgen.Plan{
		Kernel: bpfgen.Kernel{Machine: elf.EM_X86_64, Order: binary.NativeEndian},
		Events: &bpfgen.Events{
			RingSize: 1 << 20, Frames: 4, Copy: bpfgen.CopyUnit,
			Header: true,
			Captures: func(*bpfgen.Site) []bpfgen.Capture {
				return []bpfgen.Capture{{Arg: 1, Text: true, Max: 8, Length: bpfgen.None},
					{Arg: 7, Max: 4, Length: bpfgen.None}}
			},
		},
	}
	site := &Site{Site: usdt.Site{Site: elfnote.Site{Provider: "p", Name: "n"}, Args: args},
		Cookie: 9, siteKind: siteKind{probe: "p:n"}}
	block, err := plan.Block(&bpfgen.Site{Provider: site.Provider, Name: site.Name,
		Cookie: site.Cookie, Args: site.Args})
	qt.Assert(t, qt.IsNil(err))
	site.events = newEvents(block.Record, args)
	sites := &siteTable{}
	qt.Assert(t, qt.IsNil(sites.add(&Site{})))
	qt.Assert(t, qt.IsNil(sites.add(site)))

	r := block.Record
	raw := make([]byte, r.Size)
	order := binary.NativeEndian
	order.PutUint32(raw, site.id)
	order.PutUint32(raw[r.CPU:], 3)
	order.PutUint64(raw[r.Time:], 1_000_000_007)
	order.PutUint64(raw[r.Process:], 12<<32|34)
	copy(raw[r.Command:], "worker\x00junk")
	order.PutUint32(raw[r.Args[0].Value:], 0xfffffffb)
	order.PutUint64(raw[r.Args[1].Value:], 0x7f0000001000)
	order.PutUint16(raw[r.Args[3].Value:], 0x8000)
	order.PutUint64(raw[r.Args[4].Value:], math.Float64bits(-0.5))
	raw[r.Args[6].Failed] = 1
	order.PutUint64(raw[r.Args[7].Value:], 0x1234)
	order.PutUint64(raw[r.Captures[0].Status:], 3)
	copy(raw[r.Captures[0].Data:], "hi\x00")
	order.PutUint64(raw[r.Captures[1].Status:], 4)
	copy(raw[r.Captures[1].Data:], "\x01\x02\x03\x04")
	order.PutUint64(raw[r.Stack:], 16)
	order.PutUint64(raw[r.Stack+bpfgen.StackData:], 0xaaaa)
	order.PutUint64(raw[r.Stack+bpfgen.StackData+8:], 0xbbbb)
	order.PutUint64(raw[r.Registers.PC:], 0xcccc)
	order.PutUint64(raw[r.Registers.SP:], 0x7ffd_0000_1ff8)
	order.PutUint64(raw[r.Registers.General[6]:], 0x7ffd_0000_2000) // rbp
	order.PutUint64(raw[r.Copied:], bpfgen.CopyUnit)
	copy(raw[r.Copy+0xff0:], "below....the top of it")
	return newDecoder(sites, reuse), raw
}

func TestDecode(t *testing.T) {
	d, raw := sample(t, true)
	d.wall = 1_000_000_000
	for range 2 { // values of the event before must not show
		e, err := d.decode(raw)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(e.Time.UnixNano(), 2_000_000_007))
		qt.Check(t, qt.Equals(e.Monotonic.Nanoseconds(), 1_000_000_007))
		qt.Check(t, qt.Equals(e.PID, 12))
		qt.Check(t, qt.Equals(e.TID, 34))
		qt.Check(t, qt.Equals(e.Command, "worker"))
		qt.Check(t, qt.Equals(e.CPU, 3))
		qt.Check(t, qt.Equals(e.Probe, "p:n"))
		qt.Check(t, qt.Equals(e.Site.Cookie, 9))
		qt.Check(t, qt.DeepEquals(e.Stack, []uint64{0xaaaa, 0xbbbb}))
		qt.Check(t, qt.Equals(e.Registers[16], 0xcccc))
		qt.Check(t, qt.Equals(e.Registers[6], 0x7ffd_0000_2000))
		qt.Check(t, qt.Equals(e.Registers[7], 0x7ffd_0000_1ff8))
		qt.Check(t, qt.Equals(string(e.StackCopy), ".the top"))
		var shown []string
		for _, arg := range e.Args {
			shown = append(shown, arg.String())
		}
		qt.Check(t,
			qt.DeepEquals(shown,
				[]string{"-5", `"hi"`, "7", "-32768", "-0.5", "?", "<unreadable>", "01 02 03 04"}))
		qt.Check(t, qt.Equals(e.Args[1].Uint(), 0x7f0000001000))
		qt.Check(t, qt.Equals(e.Args[0].Int(), -5))
		qt.Check(t, qt.Equals(e.Args[4].Float(), -0.5))
	}
}

func TestCommands(t *testing.T) {
	var table commandTable
	name := func(text string) string {
		var raw [16]byte
		copy(raw[:], text)
		return table.name([2]uint64{binary.NativeEndian.Uint64(raw[:]),
			binary.NativeEndian.Uint64(raw[8:])})
	}
	for range 2 {
		qt.Check(t, qt.Equals(name(""), ""))
		qt.Check(t, qt.Equals(name("worker"), "worker"))
		qt.Check(t, qt.Equals(name("worker\x00junk"), "worker"))
		qt.Check(t, qt.Equals(name("a name of 16 byt"), "a name of 16 byt"))
		for i := range 8 << commandBits {
			qt.Assert(t, qt.Equals(name(fmt.Sprint("thread", i)), fmt.Sprint("thread", i)))
		}
	}
}

// An event owns all that it refers to, unless it is reused for the next one.
func TestDecodeReuse(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		t.Run(fmt.Sprint(reuse), func(t *testing.T) {
			d, raw := sample(t, reuse)
			first, err := d.decode(raw)
			qt.Assert(t, qt.IsNil(err))
			stack, general, copied := first.Stack, first.Registers, first.StackCopy
			clear(raw[8:])
			second, err := d.decode(raw)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(first == second, reuse))
			qt.Check(t, qt.Equals(second.Args[0].Int(), 0))
			qt.Check(t, qt.Equals(second.Args[1].String(), `""`))
			empty, complete := second.Args[1].Data()
			qt.Check(t, qt.IsNotNil(empty))
			qt.Check(t, qt.IsTrue(complete))
			if reuse {
				return
			}
			qt.Check(t, qt.Equals(first.Args[1].String(), `"hi"`))
			qt.Check(t, qt.Equals(first.Args[7].String(), "01 02 03 04"))
			qt.Check(t, qt.Equals(first.Args[0].Int(), -5))
			qt.Check(t, qt.DeepEquals(stack, []uint64{0xaaaa, 0xbbbb}))
			qt.Check(t, qt.Equals(general[6], 0x7ffd_0000_2000))
			qt.Check(t, qt.Equals(string(copied), ".the top"))

			// Bytes that are appended to one value are not another's.
			data, _ := first.Args[1].Data()
			_ = append(data, "overwritten"...)
			qt.Check(t, qt.Equals(first.Args[7].String(), "01 02 03 04"))
		})
	}
}

// A reused event must not change when the kernel overwrites the record, because
// the next event may come much later.
func TestDecodeSettle(t *testing.T) {
	d, raw := sample(t, true)
	for range 2 {
		record := slices.Clone(raw)
		e, err := d.decode(record)
		qt.Assert(t, qt.IsNil(err))
		d.settle()
		clear(record)
		qt.Check(t, qt.Equals(e.Args[1].String(), `"hi"`))
		qt.Check(t, qt.Equals(e.Args[7].String(), "01 02 03 04"))
		qt.Check(t, qt.Equals(string(e.StackCopy), ".the top"))
	}
}

// The number of a removed site may be given to another one.
func TestDecodeForget(t *testing.T) {
	d, raw := sample(t, true)
	first, err := d.decode(raw)
	qt.Assert(t, qt.IsNil(err))
	before := first.Site
	d.sites.remove([]*Site{before})
	d.forget()
	_, err = d.decode(raw)
	qt.Assert(t, qt.IsNotNil(err))
	other := &Site{Site: before.Site, siteKind: siteKind{probe: "p:other", events: before.events}}
	qt.Assert(t, qt.IsNil(d.sites.add(other)))
	qt.Assert(t, qt.Equals(other.id, before.id))
	second, err := d.decode(raw)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(second.Probe, "p:other"))
	qt.Check(t, qt.Equals(second.Site, other))
}

// Sites whose events alternate keep their own values.
func TestDecodeSeveralSites(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		d, raw := sample(t, reuse)
		first := d.sites.get(binary.NativeEndian.Uint32(raw))
		second := &Site{Site: first.Site, siteKind: siteKind{probe: "p:second", events: first.events}}
		qt.Assert(t, qt.IsNil(d.sites.add(second)))
		for range 3 {
			for _, site := range []*Site{first, second} {
				binary.NativeEndian.PutUint32(raw, site.id)
				e, err := d.decode(raw)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(e.Site, site))
				qt.Check(t, qt.Equals(e.Probe, site.probe))
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	d, raw := sample(t, false)
	for _, n := range []int{0, 4, 7, 8, 24, len(raw) - 1} {
		_, err := d.decode(raw[:n])
		qt.Check(t, qt.IsNotNil(err))
	}
	for _, id := range []uint32{0, 2, 1023, 1024, math.MaxUint32} {
		binary.NativeEndian.PutUint32(raw, id)
		_, err := d.decode(raw)
		qt.Check(t, qt.IsNotNil(err))
	}
}

func TestDecodeAllocations(t *testing.T) {
	// Under the race detector slices.Grow makes what it appends: for the
	// registers, which are more than a stack has room for.
	grown := 0.0
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		grown = 1
	}
	for _, test := range []struct {
		reuse bool
		want  float64
	}{
		{true, 0},
		{false, 5 + grown}, // the event, its arguments, all bytes, the stack, the registers
	} {
		d, raw := sample(t, test.reuse)
		text := make([]byte, 0, 1024)
		allocations := testing.AllocsPerRun(1000, func() {
			e, err := d.decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			text = text[:0]
			for _, arg := range e.Args {
				text = arg.AppendTo(text)
			}
		})
		qt.Check(t, qt.Equals(allocations, test.want))
	}
}

func TestNewEventAllocations(t *testing.T) {
	for args := range 13 {
		for _, size := range []int{0, 1, 64, 65} {
			e, room := newEvent(args, size)
			qt.Check(t, qt.HasLen(e.Args, 0))
			qt.Check(t, qt.IsTrue(cap(e.Args) >= args))
			qt.Check(t, qt.HasLen(room, 0))
			hasRoom := args <= 4 && size <= 64
			qt.Check(t, qt.IsTrue(!hasRoom || cap(room) >= size))
			var kept *Event
			allocations := testing.AllocsPerRun(100, func() { kept, _ = newEvent(args, size) })
			runtime.KeepAlive(kept)
			qt.Check(t, qt.Equals(allocations, map[bool]float64{true: 1, false: 2}[args <= 4]))
		}
	}
}

// The kernel writes no record with a stack or a text that is longer than there
// is room for. If it did, nothing must be read past the record.
func FuzzRecord(f *testing.F) {
	_, raw := sample(f, false)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, fuzzed []byte) {
		var shown []string
		for _, reuse := range []bool{false, true} {
			d, _ := sample(t, reuse)
			e, err := d.decode(fuzzed)
			qt.Assert(t, qt.Equals(e == nil, err != nil))
			if e == nil {
				return
			}
			for _, arg := range e.Args {
				shown = append(shown, arg.String())
			}
			qt.Assert(t, qt.IsTrue(len(e.Stack) <= 4))
			qt.Assert(t, qt.IsTrue(len(e.StackCopy) <= 2*bpfgen.CopyUnit))
		}
		half := len(shown) / 2
		qt.Assert(t, qt.DeepEquals(shown[:half], shown[half:]))
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, test := range []struct {
		name  string
		reuse bool
	}{{"reused", true}, {"own", false}} {
		b.Run(test.name, func(b *testing.B) {
			d, raw := sample(b, test.reuse)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A start that was not kept has no made-up values.
func TestDecodeForgottenStart(t *testing.T) {
	args := argspec.Parse(elf.EM_X86_64, "8@%rax 8@$4096 24@(%rsp)")
	latency := &bpfgen.Latency{
		Match: bpfgen.Match{Start: expr.Term{Source: expr.Argument}, Done: expr.Term{Source: expr.Argument}},
		Birth: bpfgen.None, Spans: true, SavedSize: 256,
	}
	plan := &bpfgen.Plan{
		Kernel: bpfgen.Kernel{Machine: elf.EM_X86_64, Order: binary.NativeEndian},
		Events: &bpfgen.Events{RingSize: 1 << 20, Header: true, Captures: captures{
			{Capture: bpfgen.Capture{Text: true, Max: 8, Length: bpfgen.None},
				arg: &expr.Term{Source: expr.Argument, Index: 1}},
		}.of},
		Latencies: []*bpfgen.Latency{latency},
	}
	sites := &siteTable{}
	add := func(ends bpfgen.Ends) (*Site, *bpfgen.Block) {
		block, err := plan.Block(&bpfgen.Site{Args: args,
			Pairs: map[*bpfgen.Latency]bpfgen.Ends{latency: ends}})
		qt.Assert(t, qt.IsNil(err))
		site := &Site{Site: usdt.Site{Args: args}, siteKind: siteKind{
			events: newEvents(block.Record, args), starts: newEvents(block.Saved, args)}}
		qt.Assert(t, qt.IsNil(sites.add(site)))
		return site, block
	}
	start, _ := add(bpfgen.Ends{Start: 1})
	done, block := add(bpfgen.Ends{Done: 1})

	raw := make([]byte, block.Record.Size)
	order := binary.NativeEndian
	order.PutUint32(raw, done.id)
	order.PutUint64(raw[block.Record.Process:], 12<<32|34)
	copy(raw[block.Record.Command:], "ends\x00")
	order.PutUint64(raw[block.Record.Span.Word:], uint64(start.id)<<32)
	e, err := newDecoder(sites, false).decode(raw)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(e.TID, 34))
	qt.Check(t, qt.Equals(e.Start.PID, 12)) // arguments are compared within a process
	qt.Check(t, qt.Equals(e.Start.TID, 0))
	qt.Check(t, qt.Equals(e.Start.Command, ""))
	qt.Check(t,
		qt.Equals(fmt.Sprint(e.Start.Args), "[<unreadable> 4096 <unreadable> <unreadable>]"))
}

// Sites take turns, records are discarded or of no site, and the ring buffer
// begins anew many times: each event has the values of its record.
func TestEventsFromMemory(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		t.Run(fmt.Sprint(reuse), func(t *testing.T) {
			s := reusing(reuse)
			var sites []*Site
			for _, arguments := range []string{"8@%rax", "8@%rax", "-4@%eax",
				"8@%rax -2@%bx 1@%cl"} {
				sites = append(sites, siteWith(t, s, arguments))
			}
			s.decoder = newDecoder(&s.sites, reuse)
			ring := newFakeRing(1024)
			type outcome struct {
				site    *Site
				numbers string
			}
			var sent, came []outcome
			malformed, errs := 0, 0
			send := func(i int) {
				site := sites[i/3%len(sites)] // three of each
				raw := make([]byte, site.events.record.Size)
				binary.NativeEndian.PutUint32(raw, site.id)
				numbers := ""
				for a, place := range site.events.record.Args {
					number := -1 - i - a
					switch at := raw[place.Value:]; site.Args[a].Size {
					case 8:
						binary.NativeEndian.PutUint64(at, uint64(number))
					case 4:
						binary.NativeEndian.PutUint32(at, uint32(number))
					case 2:
						binary.NativeEndian.PutUint16(at, uint16(number))
					default:
						at[0] = byte(number)
						number &= 0xff
					}
					numbers += fmt.Sprint(number, " ")
				}
				switch {
				case i%7 == 0:
					ring.writeBytes(raw, recordDiscarded)
				case i%11 == 0:
					binary.NativeEndian.PutUint32(raw, 1000)
					ring.writeBytes(raw, 0)
					malformed++
				default:
					ring.writeBytes(raw, 0)
					sent = append(sent, outcome{site, numbers})
				}
			}
			r := &reading{Session: s, ctx: context.Background(), ring: &ring.ringReader}
			r.clocks, r.checked = farAway, farAway
			r.yield = func(e *Event, err error) bool {
				if err != nil {
					errs++
					return true
				}
				numbers := ""
				for i := range e.Args {
					numbers += fmt.Sprint(e.Args[i].Int(), " ")
				}
				came = append(came, outcome{e.Site, numbers})
				return true
			}
			for i := 0; i < 3000; {
				for range 1 + i%10 {
					send(i)
					i++
				}
				qt.Assert(t, qt.IsTrue(r.readAll()))
				qt.Assert(t, qt.Equals(ring.read, ring.produced))
			}
			qt.Assert(t, qt.Equals(errs, malformed))
			qt.Assert(t, qt.HasLen(came, len(sent)))
			for i := range sent {
				qt.Assert(t, qt.Equals(came[i], sent[i]))
			}
		})
	}
}

// A reused event keeps nothing of the event before. It has the values of an
// event of its own, whatever the names of threads, times and texts are.
func TestEventsFromMemoryAreWhatOthersWouldBe(t *testing.T) {
	s := reusing(true)
	var sites []*Site
	for i, captures := range [][]bpfgen.Capture{
		nil,
		{{Arg: 0, Text: true, Max: 15, Length: bpfgen.None}},
		{{Arg: 0, Text: true, Max: 15, Length: bpfgen.None},
			{Arg: 2, Text: true, Max: 7, Length: bpfgen.None}},
	} {
		args := argspec.Parse(elf.EM_X86_64, "8@%rax -4@%ebx 8@%rcx 8@8(%rsp)")
		plan := &bpfgen.Plan{
			Kernel: bpfgen.Kernel{Machine: elf.EM_X86_64, Order: binary.NativeEndian},
			Events: &bpfgen.Events{RingSize: 1 << 20, Header: i != 1,
				Captures: func(*bpfgen.Site) []bpfgen.Capture { return captures }},
		}
		block, err := plan.Block(&bpfgen.Site{Args: args})
		qt.Assert(t, qt.IsNil(err))
		site := &Site{Site: usdt.Site{Args: args},
			siteKind: siteKind{events: newEvents(block.Record, args)}}
		qt.Assert(t, qt.IsNil(s.sites.add(site)))
		sites = append(sites, site)
	}
	s.decoder = newDecoder(&s.sites, true)
	s.decoder.wall = 1_700_000_000_123_456_789
	own := newDecoder(&s.sites, false)
	own.wall = s.decoder.wall
	shown := func(e *Event) string {
		return fmt.Sprint(e.Time.UnixNano(), e.Monotonic, e.PID, e.TID, e.CPU, e.Command, e.Weight,
			e.Site.id, e.Args)
	}

	ring := newFakeRing(1 << 16)
	random := rand.New(rand.NewPCG(1, 2))
	var want, got []string
	now := uint64(0)
	for range 2000 {
		site := sites[random.IntN(len(sites))]
		for range random.IntN(5) {
			r := site.events.record
			raw := make([]byte, r.Size)
			for i := range raw {
				raw[i] = byte(random.Uint32())
			}
			binary.NativeEndian.PutUint32(raw, site.id)
			if site.events.hasHeader {
				now += random.Uint64N(uint64(time.Second))
				binary.NativeEndian.PutUint64(raw[r.Time:], now)
				clear(raw[r.Command:][:16])
				copy(raw[r.Command:], []string{"postgres", "a", "the name is long"}[random.IntN(3)])
			}
			for _, c := range r.Captures {
				status := random.IntN(24) - 2
				binary.NativeEndian.PutUint64(raw[c.Status:], uint64(status))
			}
			for _, place := range r.Args {
				if place.Failed != bpfgen.None {
					raw[place.Failed] = byte(random.IntN(2))
				}
			}
			ring.writeBytes(raw, 0)
			e, err := own.decode(raw)
			qt.Assert(t, qt.IsNil(err))
			want = append(want, shown(e))
		}
		if random.IntN(20) == 0 {
			r := &reading{Session: s, ctx: context.Background(), ring: &ring.ringReader}
			r.clocks, r.checked = farAway, farAway
			r.yield = func(e *Event, err error) bool {
				qt.Assert(t, qt.IsNil(err))
				got = append(got, shown(e))
				return true
			}
			qt.Assert(t, qt.IsTrue(r.readAll()))
			qt.Assert(t, qt.DeepEquals(got, want))
			got, want = nil, nil
		}
	}
}

// A removed site leaves its number to another site, and nothing else.
func TestEventsFromMemoryOfSitesThatFollow(t *testing.T) {
	s := reusing(true)
	first, second := siteWith(t, s, "8@%rax"), siteWith(t, s, "8@%rax")
	s.decoder = newDecoder(&s.sites, true)
	ring := newFakeRing(4096)
	var got []*Site
	read := func(sites ...*Site) []*Site {
		for _, site := range sites {
			raw := make([]byte, site.events.record.Size)
			binary.NativeEndian.PutUint32(raw, site.id)
			ring.writeBytes(raw, 0)
		}
		got = nil
		r := &reading{Session: s, ctx: context.Background(), ring: &ring.ringReader}
		r.clocks, r.checked = farAway, farAway
		r.yield = func(e *Event, err error) bool {
			qt.Assert(t, qt.IsNil(err))
			got = append(got, e.Site)
			return true
		}
		qt.Assert(t, qt.IsTrue(r.readAll()))
		r.pass()
		return got
	}
	isOf := func(got []*Site, want ...*Site) {
		t.Helper()
		qt.Assert(t, qt.IsTrue(slices.Equal(got, want)))
	}
	isOf(read(first, second, first, second, second, first), first, second, first, second,
		second, first)

	s.drains = []drain{{ring.produced, func() {
		s.sites.remove([]*Site{second})
		s.decoder.forget()
	}}}
	read()
	third := siteWith(t, s, "8@%rax")
	qt.Assert(t, qt.Equals(third.id, second.id))
	isOf(read(first, third, first, third, third, first), first, third, first, third, third, first)
}

// A loop whose body ends its context gets no further event, unless many follow
// each other and the reader has not been interrupted.
func TestEventsFromMemoryEnd(t *testing.T) {
	const all = 5000
	for _, at := range []int{1, 10, 100, 2000} {
		for _, interrupted := range []bool{false, true} {
			s := reusing(true)
			site := siteWith(t, s, "8@%rax")
			s.decoder = newDecoder(&s.sites, true)
			ring := newFakeRing(1 << 20)
			raw := make([]byte, site.events.record.Size)
			binary.NativeEndian.PutUint32(raw, site.id)
			for range all {
				ring.writeBytes(raw, 0)
			}
			ctx, cancel := context.WithCancel(context.Background())
			r := &reading{Session: s, ctx: ctx, ring: &ring.ringReader}
			r.clocks, r.checked = farAway, farAway
			count := 0
			r.yield = func(*Event, error) bool {
				if count++; count == at {
					cancel()
					if interrupted {
						ring.interrupted.Store(true)
					}
				}
				return true
			}
			qt.Check(t, qt.IsFalse(r.readAll()))
			if at < eventsOneByOne || interrupted {
				qt.Check(t, qt.Equals(count, at))
			} else {
				qt.Check(t, qt.IsTrue(count < at+1024))
			}
			before := count
			qt.Check(t, qt.IsFalse(r.readAll()))
			qt.Check(t, qt.Equals(count, before))
			// A late interruption of an earlier iteration ends nothing.
			r.ctx = context.Background()
			ring.interrupted.Store(true)
			qt.Check(t, qt.IsTrue(r.readAll()))
			qt.Check(t, qt.Equals(count, all))
		}
	}
}

// reusing returns a session without a kernel.
func reusing(reuse bool) *Session {
	opts := SessionOptions{Events: &EventOptions{ReuseEvents: reuse}}
	return &Session{definition: definition{opts: opts}}
}

// siteWith adds a site to a session that sends its arguments only.
func siteWith(t *testing.T, s *Session, arguments string) *Site {
	t.Helper()
	args := argspec.Parse(elf.EM_X86_64, arguments)
	plan := &bpfgen.Plan{
		Kernel: bpfgen.Kernel{Machine: elf.EM_X86_64, Order: binary.NativeEndian},
		Events: &bpfgen.Events{RingSize: 1 << 20},
	}
	block, err := plan.Block(&bpfgen.Site{Args: args})
	qt.Assert(t, qt.IsNil(err))
	site := &Site{Site: usdt.Site{Args: args},
		siteKind: siteKind{events: newEvents(block.Record, args)}}
	qt.Assert(t, qt.IsNil(s.sites.add(site)))
	return site
}
func TestWholeText(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "aä": "aä", "a\xc3": "a", "€": "€",
		"a\xe2\x82": "a", "a\xe2": "a", "\xf0\x9f\x98": "", "a\xff": "a\xff", "a\x80": "a\x80",
		"\x82\x82\x82\x82": "\x82\x82\x82\x82"} {
		qt.Check(t, qt.Equals(string(wholeText([]byte(in))), want), qt.Commentf("%q", in))
	}
}
