// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// modelSpecs is the room of a model's Manager.
const modelSpecs = 4

// modelProbes have different numbers of arguments, and so different specs.
var modelProbes = map[string]int32{"three": 3, "twelve": 12, "sizes": 8, "counted": 2}

// modelLink is what a Manager must know of a link.
type modelLink struct {
	real    *usdt.Link
	probe   string
	program string
	cookie  uint64
}

func (l modelLink) spec() string { return fmt.Sprint(l.probe, l.cookie) }

// managerModel is what a Manager must do after what was done to it.
type managerModel struct {
	*collector
	t          *testing.T
	random     *rand.Rand
	collection *ebpf.Collection
	process    *testprog.Process
	log        []string
	isChained  bool // the program array has a program

	mu    sync.Mutex // of what follows, which changes while a batch runs
	links map[*usdt.Link]modelLink
}

// A Manager is what a model of it says after anything that can be done to it,
// in any order and at the same time. GOUSDT_MODEL_SEED repeats a run.
func TestManagerIsAsItsModel(t *testing.T) {
	needsTailCallsBesideFunctions(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		seed := uint64(time.Now().UnixNano())
		if text := os.Getenv("GOUSDT_MODEL_SEED"); text != "" {
			_, err := fmt.Sscan(text, &seed)
			qt.Assert(t, qt.IsNil(err))
		}
		until := time.Now().Add(testprog.Soak(5*time.Second, 10*time.Minute))
		for ; time.Now().Before(until) && !t.Failed(); seed++ {
			t.Run("a life", func(t *testing.T) {
				m := &managerModel{t: t, random: rand.New(rand.NewPCG(seed, 0)),
					links: map[*usdt.Link]modelLink{}}
				defer func() {
					if t.Failed() {
						t.Logf("GOUSDT_MODEL_SEED=%d\n%s", seed, strings.Join(m.log, "\n"))
					}
				}()
				m.live(mode)
			})
		}
	})
}

// live is the life of one Manager.
func (m *managerModel) live(mode usdt.Mode) {
	t := m.t
	m.process = testprog.Start(t, "target-pie")
	spec, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	m.collector = &collector{}
	m.Manager, m.collection = manage(t, withDispatcher(spec),
		&usdt.ManagerOptions{Mode: mode, MaxSpecs: modelSpecs})
	m.events, err = ringbuf.NewReader(m.collection.Maps["events"])
	qt.Assert(t, qt.IsNil(err))
	defer m.events.Close()
	for range 4 + m.random.IntN(8) {
		m.batch()
		m.check()
	}
	m.end()
}

// batch does one thing, or some at the same time.
func (m *managerModel) batch() {
	var running sync.WaitGroup
	var names []string
	all := 1 + m.random.IntN(3)
	before := slices.Collect(maps.Values(m.links))
	for range all {
		name, do := m.action(all == 1, &before)
		names = append(names, name)
		running.Go(do)
	}
	m.log = append(m.log, strings.Join(names, ", "))
	running.Wait()
}

// action chooses what is done. Where it is done alone, the outcome is exact.
func (m *managerModel) action(isAlone bool, links *[]modelLink) (name string, do func()) {
	switch n := m.random.IntN(10); {
	case n < 4 && len(*links) > 0:
		l := (*links)[0]
		*links = (*links)[1:]
		return fmt.Sprintf("close %s %d", l.probe, l.cookie), func() {
			qt.Check(m.t, qt.IsNil(l.real.Close()))
			qt.Check(m.t, qt.IsNil(l.real.Close()))
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.links, l.real)
		}
	case n < 5 && isAlone:
		m.isChained = !m.isChained
		return fmt.Sprintf("chain %v", m.isChained), func() {
			if chain := m.collection.Maps["chain"]; m.isChained {
				qt.Check(m.t, qt.IsNil(chain.Put(uint32(0), m.collection.Programs["collect"])))
			} else {
				qt.Check(m.t, qt.IsNil(chain.Delete(uint32(0))))
			}
		}
	}
	probes := slices.Sorted(maps.Keys(modelProbes))
	l := modelLink{probe: probes[m.random.IntN(len(probes))], cookie: uint64(m.random.IntN(3)),
		program: []string{"collect", "collect12", "dispatch"}[m.random.IntN(3)]}
	isWrong := m.random.IntN(8) == 0
	return fmt.Sprintf("attach %+v %v", l, isWrong), func() { m.attach(l, isWrong, isAlone) }
}

// attach attaches, by a program that the kernel refuses if isWrong.
func (m *managerModel) attach(l modelLink, isWrong, isAlone bool) {
	program, target := m.collection.Programs[l.program],
		usdt.Target{Path: testprog.Path(m.t, "target-pie"), PID: m.process.PID}
	if isWrong {
		program = wrongProgram(m.t)
	}
	m.mu.Lock()
	specs := map[string]bool{l.spec(): true}
	for _, other := range m.links {
		specs[other.spec()] = true
	}
	isFull := len(specs) > modelSpecs
	m.mu.Unlock()
	lnk, err := m.Attach(program, target, &usdt.AttachOptions{Cookie: l.cookie},
		elfnote.Exact(provider, l.probe))
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		l.real = lnk
		m.links[lnk] = l
	}
	var full *usdt.LimitError
	switch {
	case isWrong:
		qt.Check(m.t, qt.IsNotNil(err))
	case !isAlone && (err == nil || errors.As(err, &full)):
	case isFull:
		qt.Check(m.t, qt.ErrorAs(err, &full))
	default:
		qt.Check(m.t, qt.IsNil(err))
	}
}

// check compares the Manager with the model while nothing is done.
func (m *managerModel) check() {
	t := m.t
	specs, counted := map[string]bool{}, 0
	for _, l := range m.links {
		specs[l.spec()] = true
		if l.probe == "counted" {
			counted = 1 // the kernel counts the probe, not those who listen
		}
	}
	used, room := m.SpecsInUse()
	qt.Assert(t, qt.Equals(used, len(specs)))
	qt.Assert(t, qt.Equals(room, modelSpecs))
	qt.Assert(t, qt.HasLen(m.Links(), len(m.links)))
	qt.Assert(t, qt.Equals(m.process.Semaphore("counted"), counted))
	for probe, arguments := range modelProbes {
		want, got, n := map[string]int{}, map[string]int{}, 0
		for _, l := range m.links {
			if l.probe == probe && (l.program != "dispatch" || m.isChained) {
				want[fmt.Sprint(arguments, " ", l.cookie)]++
				n++
			}
		}
		m.process.Fire(probe, 1)
		for _, e := range m.next(t, n) {
			got[fmt.Sprint(e.ArgCnt, " ", e.Cookie)]++
		}
		qt.Assert(t, qt.DeepEquals(got, want), qt.Commentf(probe))
		m.silent(t)
	}
}

// end closes the Manager while it attaches and its links are closed.
func (m *managerModel) end() {
	t := m.t
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: m.process.PID}
	again := modelLink{probe: "counted"}
	for _, l := range m.links {
		again = l // there is room for its spec
	}
	var running sync.WaitGroup
	begin := func(do func()) {
		delay := time.Duration(m.random.IntN(3000)) * time.Microsecond
		running.Go(func() {
			time.Sleep(delay)
			do()
		})
	}
	var attached [6]*usdt.Link
	for i := range attached {
		begin(func() {
			var err error
			attached[i], err = m.Attach(m.collection.Programs["collect"], target,
				&usdt.AttachOptions{Cookie: again.cookie}, elfnote.Exact(provider, again.probe))
			if err != nil {
				qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
			}
		})
	}
	for l := range m.links {
		if m.random.IntN(2) == 0 {
			begin(func() { qt.Check(t, qt.IsNil(l.Close())) })
		}
	}
	for range 2 {
		begin(func() { qt.Check(t, qt.IsNil(m.Manager.Close())) })
	}
	running.Wait()
	m.links, m.log = nil, append(m.log, "end")
	for _, l := range attached {
		if l != nil {
			<-l.Done()
			qt.Check(t, qt.ErrorIs(l.Err(), os.ErrClosed))
		}
	}
	<-m.Done()
	m.check()
	_, err := m.Attach(m.collection.Programs["collect"], target, nil, elfnote.Exact(provider, "three"))
	qt.Check(t, qt.ErrorIs(err, os.ErrClosed))
}

// bubble is a Manager in a bubble of synctest, with a kernel that only records
// what is attached. Each attachment in it has a program's view of its specs.
type bubble struct {
	*testing.T
	*usdt.Manager
	program *ebpf.Program
	sel     *usdt.Selection
	specs   *ebpf.Map
	isTimed bool // calls of the kernel take time, and may take too long

	mu       sync.Mutex // of what follows
	random   *rand.Rand
	attached map[*bubbleLink]bool
	refused  map[uint64]bool // by the address
	trouble  int             // of a hundred calls, those that the kernel refuses
	isLate   bool            // a call has taken longer than Close waits
	frozen   bool            // the map of specs takes no more
	written  bool
	closing  bool
	closed   bool
	links    map[*usdt.Link]map[string]bool // with their specs
}

// bubbleLink is a link of that kernel.
type bubbleLink struct {
	link.Link
	*bubble
	cookies []uint64          // of the kernel, by the site
	specs   map[uint64]string // what its program finds
}

// In whatever order a Manager attaches and its links are closed, while the
// kernel answers late or refuses, a file is written to and specs run out, a
// hit finds the spec of its site as long as that is attached. Close leaves
// nothing attached, and no call of Attach attaches later.
//
// A kernel without uprobe_multi links has perf events. These have only
// TestManagerIsAsItsModel: they are made in tracefs and by files that say who
// else has them open. In a bubble no time passes while a goroutine waits for a
// mutex. So where the kernel takes time, nothing is done twice at once that
// waits for it with a mutex: closing the Manager, and writing to the file.
func TestManagerInABubble(t *testing.T) {
	needsMode(t, usdt.ModeMulti)
	testprog.RequireBPF(t)
	collection, err := testbpf.LoadArgs()
	qt.Assert(t, qt.IsNil(err))
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		AttachType: ebpf.AttachTraceUprobeMulti, Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	qt.Assert(t, qt.IsNil(err))
	defer program.Close()
	selected := func() *usdt.Selection {
		var patterns []elfnote.Pattern
		for probe := range modelProbes {
			patterns = append(patterns, elfnote.Exact(provider, probe))
		}
		sel, err := usdt.Select(usdt.Target{Path: testprog.Path(t, "target-pie"), NoLease: true}, patterns...)
		qt.Assert(t, qt.IsNil(err))
		return sel
	}
	defer selected().Close() // what waits for writers is outside of the bubbles
	const rounds, steps = 4, 60
	seed, isGiven := rand.Uint64(), os.Getenv("GOUSDT_MODEL_SEED") != ""
	if isGiven {
		_, err := fmt.Sscan(os.Getenv("GOUSDT_MODEL_SEED"), &seed)
		qt.Assert(t, qt.IsNil(err))
	}
	for n := 0; n < testprog.Soak(10_000, 1_000_000) && !t.Failed(); n += steps {
		if !isGiven {
			seed = rand.Uint64()
		}
		sel := selected()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				mgr, err := usdt.NewManager(collection.Copy(), &usdt.ManagerOptions{
					Mode: usdt.ModeMulti, MaxSpecs: modelSpecs})
				qt.Assert(t, qt.IsNil(err))
				mgr.Assume(program)
				// Programs keep the map.
				specs, err := mgr.CollectionOptions().MapReplacements[usdt.SpecMapName].Clone()
				qt.Assert(t, qt.IsNil(err))
				defer specs.Close()
				b := &bubble{T: t, Manager: mgr, program: program, sel: sel, random: random, specs: specs,
					attached: map[*bubbleLink]bool{}, refused: map[uint64]bool{},
					links: map[*usdt.Link]map[string]bool{}, isTimed: random.IntN(2) == 0}
				sel.AttachBy(b.attachMulti)
				b.live(rounds, steps/rounds)
			})
		})
		qt.Check(t, qt.IsNil(sel.Close()))
	}
}

func (b *bubble) choose(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.IntN(n)
}

// pause lets others go on. In a bubble where time passes, it takes some if
// nothing else waits for the caller with a mutex.
func (b *bubble) pause(takesTime bool) {
	n := b.choose(8)
	switch {
	case !takesTime || !b.isTimed:
		for range n {
			runtime.Gosched()
		}
	case b.choose(50) == 0:
		b.mu.Lock()
		b.isLate = true
		b.mu.Unlock()
		time.Sleep(time.Minute)
	default:
		time.Sleep(time.Duration(n*n) * time.Millisecond)
	}
}

// attachMulti makes a uprobe_multi link.
func (b *bubble) attachMulti(
	_ *link.Executable, _ []string, prog *ebpf.Program, opts *link.UprobeMultiOptions,
) (link.Link, error) {
	b.pause(true)
	l := &bubbleLink{bubble: b, specs: map[uint64]string{}}
	err := func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case slices.ContainsFunc(opts.Addresses, func(at uint64) bool { return b.refused[at] }):
			return unix.EINVAL
		case b.random.IntN(100) < b.trouble:
			return unix.ENOMEM
		}
		if prog == b.program {
			qt.Check(b, qt.HasLen(opts.Cookies, len(opts.Addresses)))
			l.cookies = slices.Clone(opts.Cookies)
			for _, cookie := range opts.Cookies {
				l.specs[cookie] = l.spec(cookie)
			}
		}
		b.attached[l] = true
		return nil
	}()
	b.pause(true) // it is attached, and Attach does not know yet
	return l, err
}

// spec is what a program finds at a hit.
func (b *bubble) spec(cookie uint64) string {
	spec := make([]byte, b.specs.ValueSize())
	qt.Check(b, qt.IsNil(b.specs.Lookup(uint32(cookie), spec)))
	return string(spec)
}

// hit runs the program of a link. The lock must be held.
func (l *bubbleLink) hit() {
	for cookie, want := range l.specs {
		if got := l.spec(cookie); got != want {
			l.Errorf("a hit with the BPF cookie %d finds another spec", cookie)
		}
	}
}

func (l *bubbleLink) Unpin() error { return ebpf.ErrNotSupported }

func (l *bubbleLink) Close() error {
	l.pause(false)
	l.mu.Lock()
	l.hit()
	qt.Check(l, qt.IsTrue(l.attached[l]))
	delete(l.attached, l)
	l.mu.Unlock()
	l.pause(false)
	return nil
}

func (b *bubble) live(rounds, steps int) {
	for range rounds {
		b.mu.Lock()
		b.trouble = b.random.IntN(2) * 20
		clear(b.refused)
		if sites := b.sel.Sites(); b.random.IntN(2) == 0 {
			site := sites[b.random.IntN(len(sites))]
			b.refused[site.Offset+site.Instruction-site.Location] = true
		}
		b.mu.Unlock()
		b.together(steps, nil)
		b.check()
	}
	b.trouble, b.isLate = 0, false
	b.together(steps, b.close)
	for l := range b.links {
		<-l.Done()
		qt.Check(b, qt.IsNotNil(l.Err()))
	}
	clear(b.links) // Close has closed them
	b.check()
	_, err := b.Attach(b.program, usdt.Target{Selection: b.sel}, nil)
	qt.Check(b, qt.ErrorIs(err, os.ErrClosed))
	qt.Check(b, qt.Equals(len(b.attached), 0))
}

// together does steps on several goroutines, and something else besides.
func (b *bubble) together(steps int, besides func()) {
	var running sync.WaitGroup
	workers := 1 + b.choose(4)
	for range workers {
		running.Go(func() {
			for range steps / workers {
				if b.isTimed {
					time.Sleep(time.Duration(b.choose(100)) * time.Millisecond)
				}
				b.step(workers == 1)
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

func (b *bubble) step(isAlone bool) {
	switch n := b.choose(100); {
	case n < 50:
		b.attach(isAlone)
	case n < 80:
		b.mu.Lock()
		var some *usdt.Link
		for l := range b.links { // others may close it, too
			some = l
			break
		}
		b.mu.Unlock()
		if some != nil {
			qt.Check(b, qt.IsNil(some.Close()))
			<-some.Done()
			qt.Check(b, qt.IsNotNil(some.Err()))
			b.mu.Lock()
			delete(b.links, some)
			b.mu.Unlock()
		}
	case n < 97:
		b.mu.Lock()
		defer b.mu.Unlock()
		for l := range b.attached {
			l.hit()
		}
	case n < 98 && b.choose(8) == 0:
		b.mu.Lock()
		b.frozen = true
		b.mu.Unlock()
		_ = b.specs.Freeze() // it may be frozen
	case n == 99 && !b.isTimed && b.choose(8) == 0:
		b.mu.Lock()
		isWritten := b.written
		b.written = true
		b.mu.Unlock()
		if !isWritten {
			b.sel.IsWritten()
			b.mu.Lock()
			defer b.mu.Unlock()
			qt.Check(b, qt.Equals(len(b.attached), 0))
		}
	}
}

// attach attaches some probes, by one cookie or one for each site.
func (b *bubble) attach(isAlone bool) {
	var patterns []elfnote.Pattern
	for probe := range modelProbes {
		if b.choose(2) == 0 {
			patterns = append(patterns, elfnote.Exact(provider, probe))
		}
	}
	opts := usdt.AttachOptions{Cookie: uint64(b.choose(3))}
	if b.choose(2) == 0 {
		opts.SiteCookie = func(site usdt.Site) uint64 { return site.Offset & 1 }
	}
	var l *usdt.Link
	var err error
	if b.choose(2) == 0 {
		l, err = b.AttachRest(b.program, b.sel, &opts, patterns...)
	} else {
		l, err = b.Attach(b.program, usdt.Target{Selection: b.sel}, &opts, patterns...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var full *usdt.LimitError
	var site *usdt.SiteError
	switch {
	case err == nil:
		specs := map[string]bool{}
		kernel, err := l.Links()
		qt.Assert(b, qt.IsNil(err))
		of := kernel[0].(*bubbleLink)
		for i, site := range l.Selection().Sites() {
			cookie := opts.Cookie
			if opts.SiteCookie != nil {
				cookie = opts.SiteCookie(site)
			}
			spec := []byte(of.specs[of.cookies[i]])
			qt.Check(b, qt.Equals(binary.NativeEndian.Uint64(spec[192:]), cookie))
			qt.Check(b, qt.Equals(int(binary.NativeEndian.Uint16(spec[200:])), len(site.Args)))
			specs[fmt.Sprintf("%d %p", cookie, firstOf(site.Args))] = true
		}
		b.links[l] = specs
		if b.closed { // before it was known here: it is closed
			qt.Check(b, qt.IsNotNil(l.Err()))
		}
	case errors.As(err, &full):
		if used, _ := b.SpecsInUse(); isAlone {
			qt.Check(b, qt.Equals(full.InUse, used))
		}
		qt.Check(b, qt.IsTrue(full.InUse+full.Needed > full.Capacity))
	case errors.As(err, &site):
		qt.Check(b, qt.IsTrue(len(b.refused) > 0))
	case errors.Is(err, os.ErrClosed):
		qt.Check(b, qt.IsTrue(b.closing))
	case errors.Is(err, usdt.ErrWritten):
		qt.Check(b, qt.IsTrue(b.written))
	case errors.Is(err, os.ErrPermission):
		qt.Check(b, qt.IsTrue(b.frozen))
	default:
		qt.Check(b, qt.ErrorIs(err, unix.ENOMEM))
		qt.Check(b, qt.IsTrue(b.trouble > 0))
	}
}

func firstOf(args []argspec.Arg) *argspec.Arg {
	if len(args) == 0 {
		return nil
	}
	return &args[0]
}

func (b *bubble) close() {
	if b.isTimed {
		time.Sleep(time.Duration(b.choose(200)) * time.Millisecond)
	}
	b.pause(false)
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	began := time.Now()
	err := b.Manager.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	qt.Check(b, qt.IsTrue(time.Since(began) <= 2*time.Second))
	switch {
	case err == nil:
		qt.Check(b, qt.Equals(len(b.attached), 0))
	default:
		qt.Check(b, qt.ErrorIs(err, proc.ErrBlocked))
		qt.Check(b, qt.IsTrue(b.isLate))
	}
	used, _ := b.SpecsInUse()
	qt.Check(b, qt.IsTrue(used == 0 || b.isLate))
}

// check compares the Manager with the model while nothing is done.
func (b *bubble) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	specs := map[string]bool{}
	for l, of := range b.links {
		if l.Err() != nil {
			qt.Check(b, qt.ErrorIs(l.Err(), usdt.ErrWritten))
			delete(b.links, l)
			continue
		}
		maps.Copy(specs, of)
	}
	used, _ := b.SpecsInUse()
	qt.Check(b, qt.Equals(used, len(specs)))
	qt.Check(b, qt.Equals(len(b.Links()), len(b.links)))
	qt.Check(b, qt.Equals(len(b.attached), len(b.links)))
	for l := range b.attached {
		l.hit()
	}
}
