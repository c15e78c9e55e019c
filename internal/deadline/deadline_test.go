// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

const patience = 20 * time.Millisecond

// In a bubble of synctest, time passes when nothing can go on: a call that
// waits for a processor is not abandoned, however busy the machine is.

// made is the outcome of calls.
type made struct {
	mu                sync.Mutex
	begun, left, late []int
}

func (m *made) note(list *[]int, i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*list = append(*list, i)
}

func TestCallsGoOnWithoutThoseThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &made{}
		unblock := make(chan struct{})
		var late sync.WaitGroup
		late.Add(2)
		calls := Calls{
			N: 6, Patience: patience,
			Call: func(i int) {
				m.note(&m.begun, i)
				if i == 1 || i == 5 {
					<-unblock
				}
			},
			Left: func(i int) { m.note(&m.left, i) },
			Late: func(i int) { m.note(&m.late, i); late.Done() },
		}
		qt.Assert(t, qt.Equals(calls.Make(t.Context()), 6))
		qt.Check(t, qt.DeepEquals(m.begun, []int{0, 1, 2, 3, 4, 5}))
		qt.Check(t, qt.DeepEquals(m.left, []int{1, 5}))
		close(unblock)
		late.Wait()
		slices.Sort(m.late)
		qt.Check(t, qt.DeepEquals(m.late, []int{1, 5}))
	})
}

func TestManyCallsThatBlockAreLeftSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		defer close(unblock)
		const patience, n = 500 * time.Millisecond, 4
		began := time.Now()
		calls := Calls{N: n, Patience: patience, Call: func(int) { <-unblock }}
		qt.Check(t, qt.Equals(calls.Make(t.Context()), n))
		took := time.Since(began)
		qt.Check(t, qt.IsTrue(took < n*patience), qt.Commentf("%v", took))
	})
}

func TestNoCallIsLeftThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := Calls{N: 10_000, Patience: time.Minute, Call: func(int) {},
			Left: func(int) { t.Error("left") }}
		qt.Check(t, qt.Equals(calls.Make(t.Context()), 10_000))
	})
}

func TestCallsEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := Calls{N: math.MaxInt, Patience: time.Minute, Call: func(i int) {
		if i == 1 {
			cancel()
		}
	}}
	begun := calls.Make(ctx) // or it would go on for hours
	qt.Check(t, qt.IsTrue(begun >= 2), qt.Commentf("%d", begun))
	qt.Check(t, qt.Equals(calls.Make(ctx), 0))
}

func TestOne(t *testing.T) {
	qt.Check(t, qt.IsTrue(One(t.Context(), time.Minute, func() {}, nil)))
	unblock, late := make(chan struct{}), make(chan struct{})
	qt.Check(t,
		qt.IsFalse(One(t.Context(), patience, func() { <-unblock }, func() { close(late) })))
	close(unblock)
	<-late
}

func TestUnansweredCallsOfAnOwner(t *testing.T) {
	u := Unanswered{Most: 3}
	u.add("a", 1)
	qt.Check(t, qt.IsFalse(u.IsFull("a")))
	u.add("a", 1)
	qt.Check(t, qt.IsTrue(u.IsFull("a")))
	qt.Check(t, qt.IsFalse(u.IsFull("b")))
	u.add("b", 1)
	qt.Check(t, qt.IsTrue(u.IsFull("c")))
	u.add("a", -1)
	qt.Check(t, qt.IsFalse(u.IsFull("a")))
	calls, owners := u.Count()
	qt.Check(t, qt.Equals(calls, 2))
	qt.Check(t, qt.Equals(owners, 2))
}

// An owner of calls that do not return has no more made, and the others wait
// for less. When a call has returned, another one may be made.
func TestAskingAnOwnerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &made{}
		var u Unanswered
		unblock := make(chan struct{})
		block := func(i int) {
			if m.note(&m.begun, i); i != 1 {
				<-unblock
			}
		}
		late := func(i int) {
			calls, _ := u.Count()
			qt.Check(t, qt.IsTrue(calls > 0)) // it still holds a thread
			m.note(&m.late, i)
		}
		qt.Check(t, qt.DeepEquals(u.Ask("bad", patience, 4, block, late), []int{1}))
		synctest.Wait()
		qt.Check(t, qt.DeepEquals(m.begun, []int{0, 1, 2}))
		qt.Check(t, qt.HasLen(u.Ask("bad", patience, 1, block, late), 0))
		qt.Check(t, qt.DeepEquals(u.Ask("good", patience, 1, func(int) {}, nil), []int{0}))

		began := time.Now()
		going := u.Begin("good", Halved(patience, 1), func() { <-unblock })
		<-going.Over
		qt.Check(t, qt.IsFalse(going.IsReturned))
		qt.Check(t, qt.Equals(going.Took, time.Since(began)))
		qt.Check(t, qt.IsTrue(going.Took < patience))

		close(unblock)
		<-going.Answered
		synctest.Wait()
		calls, _ := u.Count()
		qt.Check(t, qt.Equals(calls, 0))
		qt.Check(t, qt.HasLen(m.late, 2))
		again := u.Begin("bad", patience, func() {})
		<-again.Over
		qt.Check(t, qt.IsTrue(again.IsReturned))
	})
}
