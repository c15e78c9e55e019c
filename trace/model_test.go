// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
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

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// modelProcess is a traced process. Its program is one of two files: the second
// is watched.
type modelProcess struct {
	*traced
	file int
}

// modelAttachment is what a session must know of an attachment.
type modelAttachment struct {
	real    *trace.Attachment
	file    int
	process *modelProcess // nil for every process of the file
	open    map[*modelProcess]modelCalls
}

// modelCalls are the calls of a process that have started and not ended.
type modelCalls struct {
	open   int
	execed int // before the process ran another program
}

// model is what a session must report after what was done to it. Attachments
// are told apart by their cookies.
type model struct {
	t           *testing.T
	log         []string
	random      *rand.Rand
	mode        usdt.Mode
	session     *trace.Session
	hits, calls *trace.Aggregation
	watch       *watch.Watch
	watched     [2]string // the paths of the files

	mu          sync.Mutex // of what follows, which changes while a batch runs
	cookie      uint64
	processes   []*modelProcess
	attachments map[uint64]*modelAttachment
	hit, ended  map[uint64]uint64 // by the cookie: of all that was taken and will be
	taken       map[string]uint64 // by the aggregator and the cookie
	events      map[uint64]uint64
	lost        trace.Losses
}

var modelPatterns = []elfnote.Pattern{elfnote.MustParsePattern("gousdt_test:t*"),
	elfnote.MustParsePattern("gousdt_test:counted")}

// deepest is the number of calls inside each other that the kernel keeps.
const deepest = 64

// A session is what a model of it says after anything that can be done to it,
// in any order and at the same time. GOUSDT_MODEL_SEED repeats a run.
func TestSessionIsAsItsModel(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		seed := uint64(time.Now().UnixNano())
		if text := os.Getenv("GOUSDT_MODEL_SEED"); text != "" {
			_, err := fmt.Sscan(text, &seed)
			qt.Assert(t, qt.IsNil(err))
		}
		paths := [2]string{copyOf(t, "target-pie"), copyOf(t, "target-pie")}
		until := time.Now().Add(testprog.Soak(5*time.Second, 10*time.Minute))
		for ; time.Now().Before(until) && !t.Failed(); seed++ {
			t.Run("a life", func(t *testing.T) {
				m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), mode: mode, watched: paths,
					attachments: map[uint64]*modelAttachment{}, hit: map[uint64]uint64{},
					ended: map[uint64]uint64{}, taken: map[string]uint64{}, events: map[uint64]uint64{}}
				defer func() {
					if t.Failed() {
						t.Logf("GOUSDT_MODEL_SEED=%d\n%s", seed, strings.Join(m.log, "\n"))
					}
				}()
				m.live()
			})
		}
	})
}

// live is the life of one session.
func (m *model) live() {
	t := m.t
	m.hits = &trace.Aggregation{By: []string{"cookie"}}
	m.calls = &trace.Aggregation{By: []string{"cookie"}, Latency: &trace.Latency{
		Pair: "gousdt_test:three..gousdt_test:twelve"}}
	for range 3 {
		m.begin()
	}
	m.session = newSession(t, &trace.SessionOptions{Mode: m.mode, Events: &trace.EventOptions{},
		Aggregations: []*trace.Aggregation{m.hits, m.calls}})
	var err error
	options := func(*proc.ProcessFile) usdt.AttachOptions { return usdt.AttachOptions{Cookie: m.next()} }
	part := m.session.Part(modelPatterns...)
	part.OptionsFor = options
	m.watch, err = watch.New(&watch.Options{PerProcess: true, Filter: only(m.watched[1])},
		m.changed, part)
	qt.Assert(t, qt.IsNil(err))
	var reading sync.WaitGroup
	reading.Go(m.read)
	for range 3 + m.random.IntN(8) {
		m.batch(false)
		m.check(false)
	}
	if m.random.IntN(2) == 0 {
		m.batch(true)
		m.check(true)
		reading.Wait()
		qt.Check(t, qt.DeepEquals(m.events, m.hit))
	}
	m.close()
	reading.Wait()
}

func (m *model) next() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cookie++
	return m.cookie
}

func (m *model) begin() {
	file := m.random.IntN(2)
	m.processes = append(m.processes, &modelProcess{startFile(m.t, m.watched[file]), file})
}

func (m *model) read() {
	for e, err := range m.session.Events(context.Background()) {
		if qt.Check(m.t, qt.IsNil(err)) {
			m.events[e.Site.Cookie]++
			time.Sleep(200 * time.Microsecond) // sites go before their events are read
		}
	}
}

// changed follows the attachments of the watch.
func (m *model) changed(c *watch.Changes[*trace.Attachment]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, err := range failures(c) {
		m.isClosed(err)
	}
	for _, a := range c.Attached {
		i := slices.IndexFunc(m.processes, func(p *modelProcess) bool { return p.PID == a.Process().PID })
		if qt.Check(m.t, qt.IsTrue(i >= 0)) {
			m.attachments[a.Sites()[0].Cookie] = &modelAttachment{real: a, file: 1, process: m.processes[i],
				open: map[*modelProcess]modelCalls{}}
		}
	}
	for _, a := range c.Detached {
		m.gone(a.Sites()[0].Cookie)
	}
}

func (m *model) isClosed(err error) {
	if !errors.Is(err, os.ErrClosed) {
		m.t.Errorf("not closed: %v", err)
	}
}

// gone is the end of an attachment. The calls that it has seen start are
// forgotten, but not those of processes or programs that have ended.
func (m *model) gone(cookie uint64) {
	if a := m.attachments[cookie]; a != nil { // else it is closed twice
		for _, calls := range a.open {
			m.lost.Replaced += uint64(calls.execed)
		}
	}
	delete(m.attachments, cookie)
}

// An action of the model is done to a session while others are.
type action struct {
	name string
	file int // that no other action of the batch is about; -1 if it is about none
	do   func() error
}

// batch does some things at once: no two of them to the same file.
func (m *model) batch(last bool) {
	busy := map[int]bool{}
	var all []action
	for range 1 + m.random.IntN(4) {
		one := m.action(last)
		if one.file >= 0 && busy[one.file] {
			continue
		}
		busy[one.file] = true
		all = append(all, one)
	}
	isDetached := last && !slices.ContainsFunc(all, func(a action) bool { return a.name == "Detach" })
	if isDetached {
		all = append(all, action{"Detach", -1, m.session.Detach})
	}
	var names []string
	var running sync.WaitGroup
	for _, one := range all {
		names = append(names, fmt.Sprintf("%s %d", one.name, one.file))
		delay := time.Duration(m.random.IntN(3000)) * time.Microsecond
		running.Go(func() {
			time.Sleep(delay)
			if err := one.do(); err != nil && !(last && errors.Is(err, os.ErrClosed)) {
				m.t.Errorf("%s: %v", one.name, err)
			}
		})
	}
	m.log = append(m.log, strings.Join(names, ", "))
	running.Wait()
}

func (m *model) action(last bool) action {
	p, count := m.processes[m.random.IntN(len(m.processes))], 1+m.random.IntN(40)
	switch n := m.random.IntN(20); {
	case n < 4:
		return action{"Attach", p.file, func() error { return m.attach(p) }}
	case n < 6:
		for cookie, a := range m.attachments {
			if a.process == nil || a.file == 0 { // else it is the watch's
				return action{fmt.Sprint("Close ", cookie), a.file, func() error {
					err := a.real.Close()
					m.mu.Lock()
					defer m.mu.Unlock()
					m.gone(cookie)
					return err
				}}
			}
		}
		fallthrough
	case n < 8:
		return action{"Take", -1, m.take}
	case n < 10:
		return action{"Sync", 1, func() error { return m.watch.Sync(m.t.Context(), 0) }}
	case n < 11:
		return action{"look", -1, m.look}
	case last: // what the processes do now may count or not
		return action{"Detach", -1, m.session.Detach}
	case n < 15:
		return action{fmt.Sprint("start in ", p.PID), p.file,
			func() error { return m.fire(p, "three", count) }}
	case n < 18:
		return action{fmt.Sprint("end in ", p.PID), p.file,
			func() error { return m.fire(p, "twelve", count) }}
	case n < 19:
		return action{fmt.Sprintf("exec of %d", p.PID), p.file, func() error { return m.exec(p) }}
	default:
		return action{fmt.Sprintf("exit of %d", p.PID), p.file, func() error { return m.exit(p) }}
	}
}

func (m *model) attach(p *modelProcess) error {
	cookie := m.next()
	added := &modelAttachment{file: p.file, open: map[*modelProcess]modelCalls{}}
	target := usdt.Target{Path: p.path}
	m.mu.Lock()
	// Attachments to one process share the numbers of pairs.
	if !slices.ContainsFunc(slices.Collect(maps.Values(m.attachments)),
		func(a *modelAttachment) bool { return a.process == p }) && cookie%2 == 0 && p.file == 0 {
		added.process, target.PID = p, p.PID
	}
	m.mu.Unlock()
	a, err := m.session.Attach(target, &usdt.AttachOptions{Cookie: cookie}, modelPatterns...)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		added.real = a
		m.attachments[cookie] = added
	}
	return err
}

// look calls what only reads.
func (m *model) look() error {
	before, err := m.session.Losses()
	_, cost := m.session.Stats()
	_, open := m.session.OpenCalls(0)
	after, again := m.session.Losses()
	if err == nil && again == nil &&
		(after.Replaced < before.Replaced || after.Unmatched < before.Unmatched) {
		m.t.Errorf("%+v after %+v", after, before)
	}
	return errors.Join(err, cost, open, again)
}

func (m *model) take() error {
	snapshots, err := m.session.Take()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range snapshots {
		for _, row := range s.Rows {
			m.taken[fmt.Sprintf("%d %d", i, row.Keys[0].Uint())] += row.Count
		}
		qt.Check(m.t, qt.Equals(s.Other.Count, 0))
	}
	return nil
}

// fire has a process start or end calls.
func (m *model) fire(p *modelProcess, group string, n int) error {
	p.Fire(group, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	for cookie, a := range m.attachments {
		if a.file != p.file || a.process != nil && a.process != p {
			continue
		}
		m.hit[cookie] += uint64(n)
		calls := a.open[p]
		if group == "twelve" {
			// The kernel drops those of another program first.
			m.lost.Replaced += uint64(calls.execed)
			matched := min(n, calls.open)
			if m.ended[cookie] += uint64(matched); m.ended[cookie] == 0 {
				delete(m.ended, cookie)
			}
			m.lost.Unmatched += uint64(n - matched)
			a.open[p] = modelCalls{open: calls.open - matched}
			continue
		}
		calls.open += n
		if over := calls.open + calls.execed - deepest; over > 0 {
			m.lost.Replaced += uint64(over)
			old := min(over, calls.execed)
			calls.execed -= old
			calls.open -= over - old
		}
		a.open[p] = calls
	}
	return nil
}

func (m *model) exec(p *modelProcess) error {
	p.Exec()
	warm(m.t, p.PID)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.attachments {
		a.open[p] = modelCalls{execed: a.open[p].execed + a.open[p].open}
	}
	return nil
}

// exit ends a process, and another one begins.
func (m *model) exit(p *modelProcess) error {
	p.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.attachments {
		m.lost.Exited += uint64(a.open[p].open)
		m.lost.Replaced += uint64(a.open[p].execed)
		delete(a.open, p)
	}
	m.processes = slices.DeleteFunc(m.processes, func(other *modelProcess) bool { return other == p })
	m.processes = append(m.processes, &modelProcess{startFile(m.t, p.path), p.file})
	return nil
}

// check compares the session with the model while nothing is done.
func (m *model) check(isDetached bool) {
	t := m.t
	qt.Assert(t, qt.IsNil(m.take()))
	want := map[string]uint64{}
	for i, of := range []map[uint64]uint64{m.hit, m.ended} {
		for cookie, n := range of {
			want[fmt.Sprintf("%d %d", i, cookie)] = n
		}
	}
	qt.Assert(t, qt.DeepEquals(m.taken, want))
	if isDetached {
		qt.Assert(t, qt.HasLen(m.session.Attachments(), 0))
		before, err := m.session.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(before.Replaced+before.Unfinished >= m.lost.Replaced, true))
		for _, p := range m.processes {
			p.Fire("three", 1)
			p.Fire("twelve", 2)
		}
		qt.Assert(t, qt.IsNil(m.take()))
		qt.Assert(t, qt.DeepEquals(m.taken, want))
		after, err := m.session.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(after, before))
		return
	}
	all := m.lost
	for _, a := range m.attachments {
		for _, calls := range a.open {
			all.Unfinished += uint64(calls.open)
			all.Replaced += uint64(calls.execed)
		}
	}
	// A process that has ended may be about to.
	testneeds.Await(t, patience, "the losses of the model", func() bool {
		losses, err := m.session.Losses()
		qt.Assert(t, qt.IsNil(err))
		losses.Mismatch, losses.Match = "", "" // starts come without ends
		if losses != all {
			t.Logf("%+v is not %+v", losses, all)
		}
		return losses == all
	})
	// The watch does not wait for the kernel to detach.
	testneeds.Await(t, patience, "the attachments of the model", func() bool {
		cookies := map[uint64]bool{}
		for _, a := range m.session.Attachments() {
			cookies[a.Sites()[0].Cookie] = true
		}
		return maps.EqualFunc(cookies, m.attachments, func(bool, *modelAttachment) bool { return true })
	})
}

// close closes the session while other things are done to it.
func (m *model) close() {
	var running sync.WaitGroup
	var all []action // chosen before any of them changes the model
	for range m.random.IntN(4) {
		all = append(all, m.action(true))
	}
	for _, one := range all {
		delay := time.Duration(m.random.IntN(3000)) * time.Microsecond
		running.Go(func() {
			time.Sleep(delay)
			if err := one.do(); err != nil {
				m.isClosed(err)
			}
		})
	}
	time.Sleep(time.Duration(m.random.IntN(3000)) * time.Microsecond)
	qt.Check(m.t, qt.IsNil(m.session.Close()))
	running.Wait()
	qt.Check(m.t, qt.HasLen(m.session.Attachments(), 0))
	_, err := m.session.Take()
	m.isClosed(err)
	for _, p := range m.processes {
		p.Stop()
	}
}
