// SPDX-License-Identifier: BSD-2-Clause

package selftest

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// traced is what the probes are attached to.
//
//go:noinline
func traced(n int) int { return n*n + 1 }

// counted has a reference counter between two neighbours that must keep their
// values. It is initialized so that it is in the file.
var counted = struct{ before, counter, after uint16 }{0x5555, 0, 0xaaaa}

// How a counter program is loaded.
type loading int

const (
	loadPlain  loading = iota // for a perf event, without asking for the cookie
	loadCookie                // for a perf event
	loadMulti                 // for a uprobe_multi link
)

const cookie = 0x0123456789abcdef

// newHits makes the map of a counter program: number of hits, last cookie.
func newHits(t *testing.T) *ebpf.Map {
	t.Helper()
	hits, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 2})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { hits.Close() })
	return hits
}

// loadCounter loads a program that counts its runs in hits and stores its
// cookie there.
func loadCounter(t *testing.T, how loading, hits *ebpf.Map) *ebpf.Program {
	t.Helper()
	// R6 context, R7 cookie
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R7, 0),
	}
	if how != loadPlain {
		code = append(code, asm.FnGetAttachCookie.Call(), asm.Mov.Reg(asm.R7, asm.R0))
	}
	code = append(code,
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, hits.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.StoreImm(asm.RFP, -4, 1, asm.Word),
		asm.LoadMapPtr(asm.R1, hits.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
	spec := &ebpf.ProgramSpec{
		Name: "selftest_count", Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: code,
	}
	if how == loadMulti {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	program, err := ebpf.NewProgram(spec)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { program.Close() })
	return program
}

// fileOffset tells where an address of this process is in its file. The
// process was built without cgo or with it, as a PIE or not: the kernel knows.
func fileOffset(t *testing.T, address uintptr) uint64 {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	qt.Assert(t, qt.IsNil(err))
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end, offset uint64
		var permissions string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x", &start, &end, &permissions, &offset)
		qt.Assert(t, qt.IsNil(err))
		if a := uint64(address); start <= a && a < end {
			qt.Assert(t, qt.StringContains(lines.Text(), "/"), qt.Commentf("not in a file"))
			return a - start + offset
		}
	}
	t.Fatalf("address %#x is not mapped", address)
	return 0
}

// blockPreemption blocks the signal by which Go preempts this test. Where it
// comes between a breakpoint and the step over its instruction, the kernel
// starts again at the breakpoint, and counts twice.
func blockPreemption(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var urgent, before unix.Sigset_t
	number := uint(unix.SIGURG - 1)
	bits := uint(unsafe.Sizeof(urgent.Val[0])) * 8
	urgent.Val[number/bits] = 1 << (number % bits)
	qt.Assert(t, qt.IsNil(unix.PthreadSigmask(unix.SIG_BLOCK, &urgent, &before)))
	t.Cleanup(func() { unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) })
}

func TestUprobeFiresOncePerCall(t *testing.T) {
	requireBPF(t)
	site := fileOffset(t, reflect.ValueOf(traced).Pointer())
	self, err := link.OpenExecutable("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))

	best := true // the modes below are in the order of preference
	for _, m := range []struct {
		mode   string
		since  string // version of Linux
		how    loading
		attach func(*ebpf.Program) (link.Link, error)
		cookie uint64
	}{
		{"multi+cookie", "6.6", loadMulti, func(p *ebpf.Program) (link.Link, error) {
			return self.UprobeMulti(nil, p, &link.UprobeMultiOptions{
				Addresses: []uint64{site}, Cookies: []uint64{cookie},
			})
		}, cookie},
		{"single+cookie", "5.15", loadCookie, func(p *ebpf.Program) (link.Link, error) {
			return self.Uprobe("traced", p, &link.UprobeOptions{Address: site, Cookie: cookie})
		}, cookie},
		{"single+ip", "4.17", loadPlain, func(p *ebpf.Program) (link.Link, error) {
			return self.Uprobe("traced", p, &link.UprobeOptions{Address: site})
		}, 0},
	} {
		t.Run(m.mode, func(t *testing.T) {
			testneeds.Kernel(t, m.since, m.mode)
			if best {
				t.Logf("gousdt-mode: %s", m.mode)
				best = false
			}
			hits := newHits(t)
			l, err := m.attach(loadCounter(t, m.how, hits))
			qt.Assert(t, qt.IsNil(err))
			defer l.Close()
			const calls = 7
			blockPreemption(t)
			for i := range calls {
				qt.Assert(t, qt.Equals(traced(i), i*i+1))
			}
			var seen, last uint64
			qt.Assert(t, qt.IsNil(hits.Lookup(uint32(0), &seen)))
			qt.Assert(t, qt.IsNil(hits.Lookup(uint32(1), &last)))
			qt.Check(t, qt.Equals(seen, calls))
			qt.Check(t, qt.Equals(last, m.cookie))

			qt.Assert(t, qt.IsNil(l.Close()))
			qt.Check(t, qt.Equals(traced(0), 1))
			qt.Assert(t, qt.IsNil(hits.Lookup(uint32(0), &seen)))
			qt.Check(t, qt.Equals(seen, calls), qt.Commentf("hits after the link was closed"))
		})
	}
}

// load reads what the kernel may have written, which the compiler cannot know.
//
//go:noinline
func load(p *uint16) uint16 { return *p }

func TestReferenceCounterIsOneWhileAttached(t *testing.T) {
	requireBPF(t)
	site := fileOffset(t, reflect.ValueOf(traced).Pointer())
	counter := fileOffset(t, reflect.ValueOf(&counted.counter).Pointer())
	self, err := link.OpenExecutable("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	check := func(t *testing.T, l link.Link, err error) {
		t.Helper()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(load(&counted.counter), 1), qt.Commentf("attached"))
		qt.Assert(t, qt.IsNil(l.Close()))
		qt.Check(t, qt.Equals(load(&counted.counter), 0), qt.Commentf("closed"))
		qt.Check(t, qt.Equals(counted.before, 0x5555))
		qt.Check(t, qt.Equals(counted.after, 0xaaaa))
	}
	t.Run("single", func(t *testing.T) {
		l, err := self.Uprobe("traced", loadCounter(t, loadPlain, newHits(t)),
			&link.UprobeOptions{Address: site, RefCtrOffset: counter})
		check(t, l, err)
	})
	t.Run("multi", func(t *testing.T) {
		testneeds.Kernel(t, "6.6", "uprobe_multi links")
		l, err := self.UprobeMulti(nil, loadCounter(t, loadMulti, newHits(t)),
			&link.UprobeMultiOptions{Addresses: []uint64{site}, RefCtrOffsets: []uint64{counter}})
		check(t, l, err)
	})
}
