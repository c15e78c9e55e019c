// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
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
