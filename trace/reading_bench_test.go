// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// BenchmarkReading measures what an event costs the reader: from a ring buffer
// that is full to a loop that adds the arguments up. bench compares that with
// other readers.
func BenchmarkReading(b *testing.B) {
	for _, test := range []struct {
		name, arguments string
		text, header    bool
		sites           int // which take turns
	}{
		{"three", "8@%rax 8@%rbx 8@%rcx", false, false, 1},
		{"three-header", "8@%rax 8@%rbx 8@%rcx", false, true, 1},
		{"three-header-turns", "8@%rax 8@%rbx 8@%rcx", false, true, 2},
		{"three-ints", "-4@%eax -4@%ebx -4@%ecx", false, false, 1},
		{"text", "8@%rax", true, false, 1},
		{"twelve",
			"8@%rax 8@%rbx 8@%rcx 8@%rdx 8@%rsi 8@%rdi 8@%rbp 8@%r8 8@%r9 8@%r10 8@%r11 8@%r12",
			false, false, 1},
	} {
		for _, reuse := range []bool{true, false} {
			name := test.name + "/own"
			if reuse {
				name = test.name + "/reused"
			}
			b.Run(name, func(b *testing.B) {
				args := argspec.Parse(elf.EM_X86_64, test.arguments)
				events := &bpfgen.Events{RingSize: 1 << 20, Header: test.header}
				if test.text {
					events.Captures = func(*bpfgen.Site) []bpfgen.Capture {
						return []bpfgen.Capture{{Arg: 0, Text: true, Max: 31, Length: bpfgen.None}}
					}
				}
				plan := &bpfgen.Plan{Kernel: bpfgen.Kernel{Machine: elf.EM_X86_64,
					Order: binary.NativeEndian}, Events: events}
				site := &Site{Site: usdt.Site{Site: elfnote.Site{Provider: "p", Name: "n"},
					Args: args}, siteKind: siteKind{probe: "p:n"}}
				block, err := plan.Block(&bpfgen.Site{Provider: "p", Name: "n", Args: args})
				qt.Assert(b, qt.IsNil(err))
				s := &Session{}
				for range test.sites {
					other := *site
					other.events = newEvents(block.Record, args)
					qt.Assert(b, qt.IsNil(s.sites.add(&other)))
				}
				s.decoder = newDecoder(&s.sites, reuse)
				raw := make([]byte, block.Record.Size)
				if test.text {
					binary.NativeEndian.PutUint64(raw[block.Record.Captures[0].Status:], 32)
				}
				if test.header {
					copy(raw[block.Record.Command:], "postgres")
				}
				const ringSize = 1 << 20
				ring := newFakeRing(ringSize)
				count := 0
				for ring.produced < ringSize/2 {
					at := ring.produced
					binary.NativeEndian.PutUint32(ring.data[at:], uint32(len(raw)))
					binary.NativeEndian.PutUint32(raw, uint32(count%test.sites))
					copy(ring.data[at+8:], raw)
					ring.produced += uint64(8 + len(raw))
					count++
				}
				b.ReportAllocs()
				b.ResetTimer()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				sum := uint64(0)
				for i := 0; i < b.N; i += count {
					ring.read, ring.consumed = 0, 0
					left := min(count, b.N-i)
					r := &reading{Session: s, ctx: ctx, ring: &ring.ringReader}
					r.clocks, r.checked = farAway, farAway
					came := 0
					for e, err := range func(yield func(*Event, error) bool) {
						r.yield = yield
						r.loop()
					} {
						if err != nil {
							b.Fatal(err)
						}
						of := uint64(0)
						for i := range e.Args {
							of += e.Args[i].Uint()
						}
						if test.text {
							text, _ := e.Args[0].Data()
							of += uint64(len(text))
						}
						sum += of
						if came++; came == left {
							break
						}
					}
				}
				runtime.KeepAlive(sum)
			})
		}
	}
}

// farAway keeps the reader from looking at clocks and losses.
var farAway = time.Now().Add(time.Hour)
