// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// What holds a phase off is over when a session has entered the phase, and
// nothing begins to hold it off later. A holder can hold off again.
func TestPhasesFollowEachOther(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var l life
			var entered [phases]atomic.Bool
			var all sync.WaitGroup
			for range 20 {
				start, long := time.Duration(random.IntN(100)), time.Duration(random.IntN(20))
				off, next := phase(1+random.IntN(int(phases)-1)), phase(1+random.IntN(int(phases)-1))
				all.Go(func() {
					time.Sleep(start)
					if long%4 == 0 {
						l.enter(next)
						entered[next].Store(true)
						qt.Check(t, qt.IsTrue(l.has(next)))
						return
					}
					hold := func() error {
						time.Sleep(long)
						qt.Check(t, qt.IsFalse(entered[off].Load()))
						return nil
					}
					err := l.before(off, func() error { return errors.Join(hold(), l.before(off, hold)) })
					if err != nil {
						qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
						qt.Check(t, qt.IsTrue(l.has(off)))
					}
				})
			}
			all.Wait()
			qt.Check(t, qt.Equals(l.holders, [phases]int{}))
		})
	}
}

// Calls that end on other threads are recognised: as many starts lack an end as
// ends lack a start.
func TestCallsThatEndOnOtherThreadsAreExplained(t *testing.T) {
	for _, test := range []struct {
		ended  uint64
		many   bool
		losses Losses
		said   bool
	}{
		{0, false, Losses{Left: 36, Replaced: 100, Unfinished: 64, Unmatched: 200}, true},
		{3, false, Losses{Unfinished: 190, Unmatched: 200}, true},
		{1000, false, Losses{Unfinished: 20, Unmatched: 20}, false},
		{256, true, Losses{Unfinished: 1000, Unmatched: 1000}, false},
		{0, false, Losses{Unfinished: 3, Unmatched: 3}, false},
		{0, false, Losses{Unfinished: 5, Unmatched: 5}, true},
		{0, false, Losses{Replaced: 200, Unmatched: 20}, false},
		{112, false, Losses{Left: 140, Replaced: 17, Unmatched: 157}, false},
	} {
		all := &seen{ended: test.ended, many: test.many}
		qt.Check(t, qt.Equals(endElsewhere(&test.losses, all), test.said),
			qt.Commentf("%+v", test))
	}
}

// The variable that a function returns is known by its code.
func TestReturnedVariables(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		code    string // hexadecimal
		want    uint64
	}{
		{elf.EM_X86_64, "488b05992d6a00c3", 0x885df0},
		{elf.EM_X86_64, "f30f1efa488b05992d6a00c3", 0x885df4},
		{elf.EM_X86_64, "488b05992d6a0090", 0},
		{elf.EM_X86_64, "8b05992d6a00c3", 0},
		{elf.EM_AARCH64, "c03400b0000045f9c0035fd6", 0x87ca00},
		{elf.EM_AARCH64, "c03400b0000045f9c0035f00", 0},
		{elf.EM_S390, "488b05992d6a00c3", 0},
	} {
		code, err := hex.DecodeString(test.code)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(returned(test.machine, 0x1e3050, append(code, make([]byte, 16)...)), test.want),
			qt.Commentf("%s", test.code))
	}
}

// So is one behind a pointer, as in Python's libraries: at an offset from 3.7
// on, at none in 3.6.
func TestReturnedPointers(t *testing.T) {
	for _, test := range []struct {
		machine  elf.Machine
		code     string // hexadecimal
		variable uint64
		member   []int32
	}{
		{elf.EM_X86_64, "488b0551f31100488b80c8050000c3", 0x3023a8, []int32{0x5c8}},
		{elf.EM_X86_64, "488b0519341000488b00c3", 0x2e6470, []int32{0}},
		{elf.EM_X86_64, "f30f1efa488b0519341000488b00c3", 0x2e6474, []int32{0}},
		{elf.EM_X86_64, "488b05992d6a00c3", 0x885df0, nil},
		{elf.EM_X86_64, "488b0519341000488b0090", 0, nil},
	} {
		code, err := hex.DecodeString(test.code)
		qt.Assert(t, qt.IsNil(err))
		code = append(code, make([]byte, 20)...)[:20]
		variable, member, ok := returnedPointer(test.machine, 0x1e3050, code)
		qt.Check(t, qt.Equals(ok, test.variable != 0), qt.Commentf("%s", test.code))
		qt.Check(t, qt.Equals(variable, test.variable), qt.Commentf("%s", test.code))
		qt.Check(t, qt.DeepEquals(member, test.member), qt.Commentf("%s", test.code))
	}
}

// sessionBubble is a session in a bubble of synctest. Its maps are the
// kernel's. What the kernel would do at a hit is done here: programs are loaded
// and not attached, and the ring buffers are memory of the test.
type sessionBubble struct {
	*testing.T
	*Session
	sel       *usdt.Selection
	events    *bubbleRing
	keys      *bubbleRing
	isTimed   bool // calls of the kernel take time, and may take too long
	takesSome bool // of the aggregations, and not always all

	mu       sync.Mutex // of what follows
	random   *rand.Rand
	attached map[*sessionLink]bool
	known    map[*Attachment]*bubbleOwner
	ending   bool // Detach or Close has been called
	isClosed bool
	ended    time.Time // Detach or Close, at last
	isLate   bool      // a call has taken longer than Detach waits
	trouble  int       // of a hundred calls, those that the kernel refuses

	sent      map[uint64]sentEvent // by their number
	written   map[uint64]bool
	got       map[uint64]bool
	lost      uint64 // events that found no room
	lostTold  uint64 // as the iteration says
	hit       [3]map[string]bounds
	taken     [3]map[string]uint64
	lostCalls [3]bounds // unmatched, replaced and left
	exited    bounds    // calls inside which the thread has ended
	reading   chan struct{}

	thread   sync.Mutex // what the one thread does: it starts calls, executes and ends
	execedAt uint64
}

// bounds are of what is counted for certain, and what may be.
type bounds struct{ certain, most uint64 }

func (b bounds) has(n uint64) bool { return b.certain <= n && n <= b.most }

type sentEvent struct {
	cookie, location uint64
	at               time.Time
}

func (b *bounds) add(n uint64, isCertain bool) {
	if b.most += n; isCertain {
		b.certain += n
	}
}

// bubbleOwner is what is known of an attachment.
type bubbleOwner struct {
	there, leaving bool
	pair           uint64
	open           uint64 // calls that go on
}

// countsAll reports whether all losses are counted now. The lock must be held.
func (b *sessionBubble) countsAll(o *bubbleOwner) bool { return o.there && !o.leaving && !b.ending }

// sessionLink is a link of that kernel.
type sessionLink struct {
	*sessionBubble
	sel   *usdt.Selection
	ids   []uint32
	sites []*Site

	running  sync.RWMutex // held for reading by hits
	detached bool
	state    *bubbleOwner // of its attachment, once it is known

	closing atomic.Bool
	done    chan struct{}
}

func (l *sessionLink) Done() <-chan struct{}      { return l.done }
func (l *sessionLink) Selection() *usdt.Selection { return l.sel }
func (l *sessionLink) PerfEvents() int            { return 0 }

func (l *sessionLink) Err() error {
	select {
	case <-l.done:
		return os.ErrClosed
	default:
		return nil
	}
}

func (l *sessionLink) Close() error {
	if l.closing.Swap(true) {
		<-l.done
		return nil
	}
	l.pause(true)
	l.running.Lock() // the kernel waits for programs that run
	l.detached = true
	l.running.Unlock()
	l.mu.Lock()
	delete(l.attached, l)
	l.mu.Unlock()
	l.pause(true)
	close(l.done)
	return nil
}

// bubbleRing is a ring buffer as the kernel has it, with the descriptor that
// its reader waits for.
type bubbleRing struct {
	memory []byte // consumer, producer, and the data twice
	size   uint64

	mu       sync.Mutex
	deadline time.Time
	closed   bool
	changed  chan struct{}
}

// newBubbleRing returns a ring buffer and its reader, which maps it, too.
func newBubbleRing(t *testing.T) (*bubbleRing, *ringReader) {
	page := os.Getpagesize()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(fd)
	qt.Assert(t, qt.IsNil(unix.Ftruncate(fd, int64(4*page))))
	mapped := func(offset, size int) []byte {
		memory, err := unix.Mmap(fd, int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		qt.Assert(t, qt.IsNil(err))
		return memory
	}
	b := &bubbleRing{memory: mapped(0, 4*page), size: uint64(page), changed: make(chan struct{})}
	r := &ringReader{file: b, conn: b, mask: uint64(page) - 1,
		pages: [2][]byte{mapped(0, page), mapped(page, 3*page)}}
	r.consumer = (*uint64)(unsafe.Pointer(&r.pages[0][0]))
	r.producer = (*uint64)(unsafe.Pointer(&r.pages[1][0]))
	r.data = r.pages[1][page:]
	return b, r
}

func (b *bubbleRing) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&b.memory[at])) }

func (b *bubbleRing) header(position uint64) *uint32 {
	return (*uint32)(unsafe.Pointer(&b.memory[2*b.size+position%b.size]))
}

// write writes a record, and lets others go on while it is written. It reports
// whether there was room.
func (b *bubbleRing) write(record []byte, pause func()) bool {
	b.mu.Lock()
	at := atomic.LoadUint64(b.word(b.size))
	next := at + recordHeader + uint64(len(record)+7)&^7
	if next-atomic.LoadUint64(b.word(0)) > b.size {
		b.mu.Unlock()
		return false
	}
	atomic.StoreUint32(b.header(at), uint32(len(record))|recordBusy)
	atomic.StoreUint64(b.word(b.size), next)
	b.mu.Unlock()
	pause()
	for i, c := range record { // the second half is the same memory as the first
		to := (at + recordHeader + uint64(i)) % b.size
		b.memory[2*b.size+to], b.memory[3*b.size+to] = c, c
	}
	pause()
	atomic.StoreUint32(b.header(at), uint32(len(record)))
	if atomic.LoadUint64(b.word(0)) == at { // else the reader will see it
		b.change(func() {})
	}
	return true
}

func (b *bubbleRing) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *bubbleRing) SetReadDeadline(at time.Time) error {
	b.change(func() { b.deadline = at })
	return nil
}

func (b *bubbleRing) Close() error {
	b.change(func() { b.closed = true })
	return nil
}

func (b *bubbleRing) Control(func(uintptr)) error    { return nil }
func (b *bubbleRing) Write(func(uintptr) bool) error { return nil }
func (b *bubbleRing) Read(isRead func(uintptr) bool) error {
	for {
		b.mu.Lock()
		deadline, closed, changed := b.deadline, b.closed, b.changed
		b.mu.Unlock()
		var timeout <-chan time.Time
		switch {
		case closed:
			return os.ErrClosed
		case !deadline.IsZero() && !deadline.After(time.Now()):
			return os.ErrDeadlineExceeded
		case isRead(0):
			return nil
		case !deadline.IsZero():
			timeout = time.After(time.Until(deadline))
		}
		select {
		case <-changed:
		case <-timeout:
		}
	}
}

// In whatever order a session attaches and detaches, and its aggregations,
// events and losses are read, while hits come at any time and the kernel
// answers late or refuses, each hit is in one snapshot, and in one event or
// among those that are lost. A call that is left by an exec or exit is counted
// once. Close leaves nothing attached, and no call of Attach attaches later.
//
// What only BPF programs do is not in it, but in TestSessionIsAsItsModel: to
// find the start of a call that ends, and to choose what is forgotten. Neither
// is a watch: it waits for processes in calls of the kernel, and no time passes
// in a bubble meanwhile.
func TestSessionInABubble(t *testing.T) {
	testprog.RequireBPF(t)
	sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-pie"), NoLease: true},
		elfnote.Exact("gousdt_test", "three"), elfnote.Exact("gousdt_test", "twelve"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	const steps = 500
	all, seeds := testprog.Soak(10_000, 1_000_000), make(chan uint64)
	var running sync.WaitGroup
	for range 32 { // they mostly wait for the kernel
		running.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					liveInABubble(t, sel, seed, steps)
				})
			}
		})
	}
	var given uint64
	if text := os.Getenv("GOUSDT_MODEL_SEED"); text != "" {
		_, err := fmt.Sscan(text, &given)
		qt.Assert(t, qt.IsNil(err))
	}
	for n := 0; n < all && !t.Failed(); n += steps {
		seeds <- cmp.Or(given, rand.Uint64())
	}
	close(seeds)
	running.Wait()
}

func liveInABubble(t *testing.T, sel *usdt.Selection, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 0))
	options := SessionOptions{Mode: usdt.ModeMulti, Events: &EventOptions{RingSize: os.Getpagesize()},
		Aggregations: []*Aggregation{{By: []string{"cookie"}}, {By: []string{"site"}}, {}}}
	if random.IntN(2) == 0 {
		options.Events.Delay = 10 * time.Millisecond
	}
	if random.IntN(4) == 0 {
		options.Aggregations = append(options.Aggregations, &Aggregation{
			Latency: &Latency{Pair: "gousdt_test:three..gousdt_test:twelve"}})
	}
	s, err := New(&options)
	qt.Assert(t, qt.IsNil(err))
	s.signals.end()
	s.taking.Wait()
	s.ring.end()
	synctest.Test(t, func(t *testing.T) {
		b := &sessionBubble{T: t, Session: s, sel: sel, random: random, isTimed: random.IntN(2) == 0,
			takesSome: random.IntN(4) == 0, attached: map[*sessionLink]bool{},
			known: map[*Attachment]*bubbleOwner{}, sent: map[uint64]sentEvent{}, written: map[uint64]bool{},
			got: map[uint64]bool{}, reading: make(chan struct{})}
		for i := range b.hit {
			b.hit[i], b.taken[i] = map[string]bounds{}, map[string]uint64{}
		}
		b.events, s.ring = newBubbleRing(t)
		b.keys, s.signals = newBubbleRing(t)
		defer unix.Munmap(b.events.memory)
		defer unix.Munmap(b.keys.memory)
		s.attach = b.attachLink
		s.taking = sync.WaitGroup{}
		s.taking.Go(s.takeKeys)
		b.live(steps)
	})
}

func (b *sessionBubble) choose(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.IntN(n)
}

func (b *sessionBubble) pause(takesTime bool) {
	n := b.choose(8)
	switch {
	case !takesTime || !b.isTimed:
		for range n {
			runtime.Gosched()
		}
	default:
		time.Sleep(time.Duration(n*n) * time.Millisecond)
	}
}

// attachLink is in the place of the kernel's.
func (b *sessionBubble) attachLink(
	sel *usdt.Selection, _ *ebpf.Program, cookies []uint64, sites ...int,
) (kernelLink, error) {
	if b.isTimed && b.choose(10) == 0 {
		b.mu.Lock()
		b.isLate = true
		b.mu.Unlock()
		time.Sleep(2 * time.Minute)
	}
	b.pause(true)
	l := &sessionLink{sessionBubble: b, sel: sel, done: make(chan struct{}), state: &bubbleOwner{}}
	for _, cookie := range cookies {
		l.ids = append(l.ids, uint32(cookie>>32))
		l.sites = append(l.sites, b.Session.sites.get(uint32(cookie>>32)))
	}
	err := func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.random.IntN(100) < b.trouble {
			return unix.ENOMEM
		}
		b.attached[l] = true
		return nil
	}()
	if err != nil {
		return nil, err
	}
	b.pause(true) // it is attached, and Attach does not know yet
	return l, nil
}

func (b *sessionBubble) live(steps int) {
	go b.read()
	const rounds = 16
	for range rounds - 1 {
		b.mu.Lock()
		b.trouble = b.random.IntN(2) * 20
		b.mu.Unlock()
		b.together(steps/rounds, nil)
		b.check()
	}
	b.isLate, b.trouble = false, 0
	detaches := b.choose(2) == 0
	if detaches {
		besides := b.detach
		if b.choose(2) == 0 { // nothing else wakes the reader
			besides = nil
		}
		if b.together(steps/rounds, besides); besides == nil {
			for len(b.known) > 0 {
				b.closeOne()
			}
			synctest.Wait()
			b.detach()
		}
		<-b.reading
		b.check()
		if !b.isLate {
			qt.Check(b, qt.Equals(b.lostTold, b.lost))
			qt.Check(b, qt.Equals(len(b.got), len(b.sent)))
			// An attachment may have been closed beside Detach, and its sites.
			for e, err := range b.Session.Events(context.Background()) {
				b.Errorf("%v, %v after the last event", e, err)
			}
			qt.Check(b, qt.Equals(int(b.Session.sites.next), 0), qt.Commentf("numbers of sites"))
		}
		b.together(8, b.close)
	} else {
		b.together(steps/rounds, b.close)
		<-b.reading
	}
	qt.Check(b, qt.Equals(len(b.attached), 0))
	qt.Check(b, qt.HasLen(b.Session.Attachments(), 0))
	for a := range b.known {
		<-a.Done()
		qt.Check(b, qt.ErrorIs(a.Err(), os.ErrClosed))
	}
	_, err := b.Session.attachRest(b.sel, "", proc.Process{}, nil)
	qt.Check(b, qt.ErrorIs(err, os.ErrClosed))
	_, err = b.Take()
	qt.Check(b, qt.ErrorIs(err, os.ErrClosed))
	qt.Check(b, qt.Equals(len(b.attached), 0))
	qt.Check(b, qt.Equals(len(b.programs.known), 0), qt.Commentf("programs"))
}

func (b *sessionBubble) together(steps int, besides func()) {
	var running sync.WaitGroup
	workers := 1 + b.choose(4)
	for range workers {
		running.Go(func() {
			for range max(1, steps/workers) {
				if b.isTimed {
					time.Sleep(time.Duration(b.choose(100)) * time.Millisecond)
				}
				b.step()
			}
		})
	}
	if besides != nil {
		running.Go(besides)
		if !b.isTimed { // else it would wait for a mutex
			running.Go(besides)
		}
	}
	running.Wait()
}

// closedOnly checks that an error is that of a session that ends.
func (b *sessionBubble) closedOnly(err error, phase *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && !(*phase && errors.Is(err, os.ErrClosed)) {
		b.Error(err)
	}
	return err == nil
}

func (b *sessionBubble) step() {
	switch n := b.choose(100); {
	case n < 12:
		b.attachOne()
	case n < 20:
		b.closeOne()
	case n < 22:
		b.leave(n == 20)
	case n < 74:
		b.hitOne()
	case n < 82:
		b.take(true, !b.takesSome)
	case n < 87:
		b.take(false, false)
	case n < 94:
		b.look()
	default:
		b.drain()
	}
}

func (b *sessionBubble) attachOne() {
	sel := b.sel
	cookie := uint64(b.choose(6))
	a, err := b.Session.attachRest(sel, "", proc.Process{}, &usdt.AttachOptions{Cookie: cookie})
	if errors.Is(err, unix.ENOMEM) {
		return
	}
	if !b.closedOnly(err, &b.ending) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := &bubbleOwner{there: !b.ending}
	if len(a.pairs) > 0 {
		owner.pair = uint64(a.pairs[0])
	}
	b.known[a] = owner
	for _, l := range a.links {
		l.kernelLink.(*sessionLink).state = owner
	}
}

func (b *sessionBubble) closeOne() {
	b.mu.Lock()
	var one *Attachment
	for a, owner := range b.known { // others may close it, too
		one, owner.leaving = a, true
		break
	}
	b.mu.Unlock()
	if one == nil {
		return
	}
	qt.Check(b, qt.IsNil(one.Close()))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range one.links {
		qt.Check(b, qt.IsFalse(b.attached[l.kernelLink.(*sessionLink)]))
	}
	delete(b.known, one)
}

// hitOne does what a program does at a hit.
func (b *sessionBubble) hitOne() {
	b.mu.Lock()
	var l *sessionLink
	for l = range b.attached {
		break
	}
	b.mu.Unlock()
	if l == nil {
		return
	}
	l.running.RLock()
	defer l.running.RUnlock()
	if l.detached {
		return
	}
	n, hits := b.choose(len(l.sites)), 1
	if b.choose(16) == 0 {
		hits = 80 // more than there is room for
	}
	for range hits {
		_ = b.use(func() error { // no program has the maps of a closed session in a bubble
			b.aggregate(l.sites[n], l.ids[n])
			b.send(l.sites[n], l.ids[n])
			b.lose(l, l.sites[n], l.ids[n])
			return nil
		})
	}
}

// send sends an event.
func (b *sessionBubble) send(site *Site, id uint32) {
	of := site.siteKind.events.record
	record := make([]byte, of.Size)
	b.mu.Lock()
	number := uint64(len(b.sent)) + b.lost + 1
	b.sent[number] = sentEvent{site.Cookie, site.Location, time.Now()}
	b.mu.Unlock()
	binary.NativeEndian.PutUint32(record, id)
	binary.NativeEndian.PutUint64(record[of.Time:], number)
	wrote := b.events.write(record, func() { b.pause(false) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if wrote {
		b.written[number] = true
		return
	}
	delete(b.sent, number)
	b.lost++
	b.add(b.counters, uint32(bpfgen.CounterEvents), 0, 1)
}

// add adds to words of an element on one processor.
func (b *sessionBubble) add(m *ebpf.Map, key any, at int, more ...uint64) {
	var each [][]byte
	if err := m.Lookup(key, &each); err != nil {
		each = make([][]byte, b.cpus)
		for i := range each {
			each[i] = make([]byte, m.ValueSize())
		}
	}
	for i, n := range more {
		word := each[0][at+8*i:]
		binary.NativeEndian.PutUint64(word, binary.NativeEndian.Uint64(word)+n)
	}
	qt.Check(b, qt.IsNil(m.Put(key, each)))
}

// aggregate adds a hit to the maps of a moment.
func (b *sessionBubble) aggregate(site *Site, id uint32) {
	full := b.choose(20) == 0
	signals := b.choose(20) == 0
	keys := [3]string{fmt.Sprint(site.Cookie), fmt.Sprint(site.Location), ""}
	b.generations.mu.Lock() // flip waits for programs
	var word uint64
	qt.Check(b, qt.IsNil(b.generations.words[b.generations.used].Lookup(uint32(0), &word)))
	for i, a := range b.aggregations[:3] {
		half := int(word >> a.Bit & 1)
		array := uint32(half * a.Entries())
		switch {
		case len(a.Keys) == 0:
			b.add(a.array, array, 0, 1)
		case full:
			keys[i] = "other"
			b.add(a.array, array, 0, 1)
		default:
			key := make([]byte, a.keySize)
			binary.NativeEndian.PutUint64(key, site.Cookie)
			if i == 1 {
				binary.NativeEndian.PutUint64(key, uint64(id))
			}
			b.add(a.rows[half], key, 0, 1)
		}
	}
	b.mu.Lock()
	for i, key := range keys {
		n := b.hit[i][key]
		n.most++
		if !b.ending {
			n.certain++
		}
		b.hit[i][key] = n
	}
	b.mu.Unlock()
	b.generations.mu.Unlock()
	if !signals {
		return
	}
	b.mu.Lock()
	a := b.aggregations[b.random.IntN(2)]
	var state bpfgen.RoomState
	qt.Check(b, qt.IsNil(b.room.Lookup(a.Room.Made(), &state)))
	state.Keys += uint64(a.Room.Filled)
	qt.Check(b, qt.IsNil(b.room.Put(a.Room.Made(), state)))
	b.mu.Unlock()
	b.keys.write(binary.NativeEndian.AppendUint64(nil, uint64(a.Room.Index)), func() { b.pause(false) })
}

// lose loses a call at a site: an end without a start, or a start without an
// end.
func (b *sessionBubble) lose(l *sessionLink, site *Site, id uint32) {
	if b.attachments.counts == nil || b.choose(4) > 0 {
		return
	}
	if b.exits != nil && b.choose(2) == 0 {
		b.start(l, site, id)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kind := b.random.IntN(3)
	var each [4]uint64
	qt.Check(b, qt.IsNil(b.attachments.counts.Lookup(id, &each)))
	each[kind]++
	qt.Check(b, qt.IsNil(b.attachments.counts.Put(id, each)))
	b.lostCalls[kind].add(1, b.countsAll(l.state))
}

// A stack of calls as programs keep it: how many were pushed, how many are
// there, and from callsFirst on their times and sites.
const callsFirst, callSize, callWord, callsAtMost = 24, 24, 16, 64

func ownThread() uint64 { return uint64(os.Getpid())<<32 | uint64(os.Getpid()) }

// start has the thread start a call at a site. After the thread has ended there
// is another one with its number once that was seen.
func (b *sessionBubble) start(l *sessionLink, site *Site, id uint32) {
	b.thread.Lock()
	defer b.thread.Unlock()
	b.mu.Lock()
	pair := l.state.pair
	b.mu.Unlock()
	var exit bpfgen.Exit
	if !site.isStart || pair == 0 || b.exits.Lookup(ownThread(), &exit) == nil {
		return
	}
	key, stack := [2]uint64{ownThread(), pair}, make([]byte, bpfgen.CallsSize)
	calls := b.latencies[0].calls
	_ = calls.Lookup(key, &stack) // or it is the first
	order := binary.NativeEndian
	pushed, count := order.Uint32(stack), order.Uint32(stack[4:])
	now, ok := readClocks()
	if count == callsAtMost || !ok {
		return
	}
	call := stack[callsFirst+callSize*(pushed%callsAtMost):]
	order.PutUint64(call, uint64(now.monotonic))
	order.PutUint64(call[callWord:], uint64(id)<<32)
	order.PutUint32(stack, pushed+1)
	order.PutUint32(stack[4:], count+1)
	qt.Check(b, qt.Equals(b.latencies[0].Calls(stack)[0].Began, now.monotonic))
	qt.Check(b, qt.IsNil(calls.Put(key, stack)))
	b.mu.Lock()
	defer b.mu.Unlock()
	l.state.open++
}

// leave ends all calls of the thread: it executes a program, or ends.
func (b *sessionBubble) leave(execs bool) {
	if b.exits == nil {
		return
	}
	b.thread.Lock()
	defer b.thread.Unlock()
	_ = b.use(func() error {
		now, ok := readClocks()
		var exit bpfgen.Exit
		if !ok || b.exits.Lookup(ownThread(), &exit) == nil {
			return nil
		}
		b.mu.Lock()
		to := &b.exited
		if execs {
			to = &b.lostCalls[1]
		}
		for _, owner := range b.known {
			to.add(owner.open, b.countsAll(owner))
			owner.open = 0
		}
		b.mu.Unlock()
		if execs {
			b.execedAt = uint64(now.monotonic)
			qt.Check(b, qt.IsNil(b.execs.Put(uint32(os.Getpid()), b.execedAt)))
			return nil
		}
		qt.Check(b, qt.IsNil(b.exits.Put(ownThread(), &bpfgen.Exit{Time: uint64(now.monotonic),
			Process: ownThread(), Exec: b.execedAt})))
		_ = b.events.write(bytes.Repeat([]byte{0xff}, 8), func() { b.pause(false) }) // a mark
		return nil
	})
}

// take takes the rows, or looks at them. What it gets it changes: it has them
// alone.
func (b *sessionBubble) take(anew, all bool) {
	var of []*Aggregation
	if some := b.choose(3); !all {
		of = b.opts.Aggregations[some : some+1]
	}
	var snapshots []*Snapshot
	var err error
	if anew {
		snapshots, err = b.Take(of...)
	} else {
		snapshots = make([]*Snapshot, 1)
		snapshots[0], err = b.Snapshot(of[0])
	}
	if !b.closedOnly(err, &b.isClosed) {
		return
	}
	if of == nil {
		of = b.opts.Aggregations
	}
	var sums [3]uint64
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, s := range snapshots {
		i := slices.Index(b.opts.Aggregations, of[n])
		if i >= len(b.taken) {
			continue
		}
		qt.Check(b, qt.Equals(s.Overflow, s.Other.Count))
		count := func(key string, n uint64) {
			if sums[i] += n; anew && n > 0 {
				b.taken[i][key] += n
			}
		}
		count("other", s.Other.Count)
		for r := range s.Rows {
			row := &s.Rows[r]
			key := ""
			if len(row.Keys) > 0 {
				key = fmt.Sprint(row.Keys[0].Uint())
				row.Keys[0] = ValueOf(uint64(999))
			}
			count(key, row.Count)
			row.Count = 1 << 40
		}
	}
	if len(snapshots) >= 3 && !b.takesSome {
		qt.Check(b, qt.Equals(sums[0], sums[1]))
		qt.Check(b, qt.Equals(sums[0], sums[2]))
	}
}

// look reads the losses twice, and the rest.
func (b *sessionBubble) look() {
	b.mu.Lock()
	certain := b.lostCalls
	b.mu.Unlock()
	before, err := b.Losses()
	if !b.closedOnly(err, &b.isClosed) {
		return
	}
	if before.Unmatched < certain[0].certain || before.Replaced < certain[1].certain ||
		before.Left < certain[2].certain {
		b.Errorf("%+v are less than %+v", before, certain)
	}
	_ = b.Session.Attachments()
	_, err = b.OpenCalls(0)
	b.closedOnly(err, &b.isClosed)
	after, err := b.Losses()
	if b.closedOnly(err, &b.isClosed) && (after.Unmatched < before.Unmatched ||
		after.Replaced < before.Replaced || after.Left < before.Left || after.Events < before.Events) {
		b.Errorf("%+v after %+v", after, before)
	}
}

// drain waits for the events that have been sent.
func (b *sessionBubble) drain() {
	b.mu.Lock()
	written := maps.Clone(b.written)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := b.Session.Drain(ctx)
	b.mu.Lock()
	ending := b.ending
	b.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) && (b.isTimed || ending) || !b.closedOnly(err, &b.ending) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for number := range written {
		if !b.got[number] {
			b.Errorf("event %d is to come", number)
		}
	}
}

// read reads the events, and begins anew from time to time.
func (b *sessionBubble) read() {
	defer close(b.reading)
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		// Where nothing takes time, the reader is woken at once.
		if !b.isTimed && !b.ended.IsZero() {
			qt.Check(b, qt.IsTrue(time.Since(b.ended) <= b.Session.events.Delay))
		}
	}()
	for again := true; again; {
		ctx, cancel := context.WithCancel(context.Background())
		again = false
		for e, err := range b.Session.Events(ctx) {
			b.mu.Lock()
			var lost LostError
			switch {
			case errors.As(err, &lost):
				b.lostTold += uint64(lost)
			case err != nil:
				b.Error(err)
			default:
				number := uint64(e.Monotonic)
				of, isSent := b.sent[number]
				is := sentEvent{e.Site.Cookie, e.Site.Location, of.at}
				if !isSent || b.got[number] || of != is {
					b.Errorf("event %d of %v, not %v", number, is, of)
				}
				if late := time.Since(of.at); late > b.Session.events.Delay && !b.isTimed {
					b.Errorf("event %d comes %v late", number, late)
				}
				b.got[number] = true
			}
			b.mu.Unlock()
			switch b.choose(50) {
			case 0:
				again = true
				cancel()
			case 1, 2, 3, 4:
				if b.isTimed {
					time.Sleep(time.Duration(b.choose(20)) * time.Millisecond)
				}
			case 5:
				again = true
			}
			b.pause(false)
			if again {
				break
			}
		}
		cancel()
	}
}

func (b *sessionBubble) detach() { b.end(b.Session.Detach, false) }

func (b *sessionBubble) close() {
	b.end(b.Session.Close, true)
	qt.Check(b, qt.HasLen(b.Session.Attachments(), 0))
}

func (b *sessionBubble) end(do func() error, closes bool) {
	if b.isTimed {
		time.Sleep(time.Duration(b.choose(200)) * time.Millisecond)
	}
	b.pause(false)
	b.mu.Lock()
	b.ending = true
	b.isClosed = b.isClosed || closes // or is about to be
	b.mu.Unlock()
	began := time.Now()
	err := do()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = time.Now()
	qt.Check(b, qt.IsTrue(time.Since(began) < 4*time.Second)) // 2 s, and while links are closed
	if err == nil {
		qt.Check(b, qt.Equals(len(b.attached), 0))
		return
	}
	qt.Check(b, qt.ErrorIs(err, proc.ErrBlocked))
	qt.Check(b, qt.IsTrue(b.isLate))
	qt.Check(b, qt.IsTrue(time.Since(began) >= 2*time.Second))
}

// check compares the session with the model while nothing is done.
func (b *sessionBubble) check() {
	b.take(true, true)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, hit := range b.hit {
		for key, n := range hit {
			if got := b.taken[i][key]; !n.has(got) {
				b.Errorf("aggregation %d has %d hits of %q, not %+v", i, got, key, n)
			}
		}
		for key := range b.taken[i] {
			if _, known := hit[key]; !known {
				b.Errorf("aggregation %d has the key %q", i, key)
			}
		}
	}
	maps.DeleteFunc(b.known, func(a *Attachment, _ *bubbleOwner) bool { return b.ending && a.Err() != nil })
	losses, err := b.Losses()
	qt.Assert(b, qt.IsNil(err))
	qt.Check(b, qt.Equals(losses.Events, b.lost))
	open := uint64(0)
	for _, owner := range b.known {
		open += owner.open
	}
	if !b.ending { // else it is what was going on then
		qt.Check(b, qt.Equals(losses.Unfinished, open))
	}
	if !b.exited.has(losses.Exited) || losses.Killed > 0 {
		b.Errorf("%d calls are over by exits, not %+v: %+v", losses.Exited, b.exited, losses)
	}
	for i, n := range []uint64{losses.Unmatched, losses.Replaced, losses.Left} {
		if !b.lostCalls[i].has(n) {
			b.Errorf("%d calls are lost, not %+v: %+v", n, b.lostCalls[i], losses)
		}
	}
	qt.Check(b, qt.Equals(len(b.Session.Attachments()), len(b.known)))
}
