// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// Sites take turns, records are discarded or of no site, and the ring buffer
// begins anew many times: each event has the values of its record.
func TestEventsFromMemory(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		t.Run(fmt.Sprint(reuse), func(t *testing.T) {
			s := &Session{opts: SessionOptions{Events: &EventOptions{ReuseEvents: reuse}}}
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
				qt.Assert(t, qt.Equals(ring.consumed, ring.produced))
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
	s := &Session{opts: SessionOptions{Events: &EventOptions{ReuseEvents: true}}}
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
	s := &Session{opts: SessionOptions{Events: &EventOptions{ReuseEvents: true}}}
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
			s := &Session{opts: SessionOptions{Events: &EventOptions{ReuseEvents: true}}}
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
