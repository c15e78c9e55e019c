// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

func placeOf(n int) Place { return Place{Process: procfs.ID{PID: n + 1}} }

func TestBudgetHasALimitForOwnersAndForAll(t *testing.T) {
	b := newBudget(Limits{OwnerSites: 100, Sites: 150})
	qt.Assert(t, qt.IsNil(b.check("a", amounts{sites: 100})))
	b.take(placeOf(1), "a", amounts{sites: 60})
	b.take(placeOf(1), "a", amounts{sites: 40}) // another part of the same place
	qt.Assert(t, qt.Equals(*b.check("a", amounts{sites: 1}),
		LimitError{Limit: "sites of a", Option: "Limits.OwnerSites", Capacity: 100, InUse: 100, Needed: 1}))
	qt.Assert(t, qt.IsNil(b.check("b", amounts{sites: 50})))
	qt.Assert(t, qt.Equals(*b.check("b", amounts{sites: 51}),
		LimitError{Limit: "sites", Option: "Limits.Sites", Capacity: 150, InUse: 100, Needed: 51}))
	b.give(placeOf(1))
	b.give(placeOf(1))
	qt.Assert(t, qt.IsNil(b.check("a", amounts{sites: 100})))
	qt.Assert(t, qt.Equals(b.total, amounts{}))
}

func TestBudgetHasDefaultsAndCanBeWithoutLimits(t *testing.T) {
	qt.Assert(t, qt.Equals(newBudget(Limits{}).ofOwner[sites], defaultOwnerSites))
	b := newBudget(Limits{OwnerSites: -1, Sites: -1, OwnerDescriptors: -1, Descriptors: -1})
	qt.Assert(t, qt.IsNil(b.check("a", amounts{1 << 30, 1 << 30})))
}

// Who has more than another one would have gives half of it up, what came last
// first. So each owner comes to the share that all can have.
func TestBudgetIsSharedOutFairly(t *testing.T) {
	b := newBudget(Limits{OwnerSites: -1, Sites: 1000})
	for n := range 100 {
		b.take(placeOf(n), "greedy", amounts{sites: 10})
	}
	full := b.check("modest", amounts{sites: 10})
	qt.Assert(t, qt.IsNotNil(full))
	owner, ok := b.heaviest(sites, "modest", 10)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(owner, "greedy"))
	half := b.half(sites, owner)
	qt.Assert(t, qt.HasLen(half, 50))
	qt.Assert(t, qt.Equals(half[0], placeOf(99)))
	for _, place := range half {
		b.give(place)
	}
	qt.Assert(t, qt.IsNil(b.check("modest", amounts{sites: 500})))
	b.take(placeOf(200), "modest", amounts{sites: 500})

	// Who has as much as the others takes nothing from them.
	_, ok = b.heaviest(sites, "modest", 10)
	qt.Assert(t, qt.IsFalse(ok))
	_, ok = b.heaviest(sites, "greedy", 1)
	qt.Assert(t, qt.IsFalse(ok))
	_, ok = b.heaviest(sites, "third", 499)
	qt.Assert(t, qt.IsTrue(ok))
}

func TestBudgetOfTimeMakesOnlyTheGreedyWait(t *testing.T) {
	b := newBudget(Limits{})
	now := time.Unix(1000, 0)
	qt.Assert(t, qt.Equals(b.wait("greedy", now), 0))
	b.spend("modest", now, time.Millisecond)
	for range 30 {
		b.spend("greedy", now, 100*time.Millisecond)
		now = now.Add(100 * time.Millisecond)
	}
	qt.Assert(t, qt.IsTrue(b.wait("greedy", now) > 0))
	qt.Assert(t, qt.Equals(b.wait("modest", now), 0))
	qt.Assert(t, qt.Equals(b.wait("greedy", now.Add(b.wait("greedy", now))), 0))

	// Nobody waits long where there are no others.
	now = now.Add(time.Minute)
	for range 30 {
		b.spend("greedy", now, 100*time.Millisecond)
		now = now.Add(100 * time.Millisecond)
	}
	qt.Assert(t, qt.Equals(b.wait("greedy", now), 0))
}

func TestBudgetForgetsOwnersWithoutAnything(t *testing.T) {
	b := newBudget(Limits{})
	b.take(placeOf(1), "stays", amounts{sites: 5})
	for n := range 3 * maxAccounts {
		b.spend(fmt.Sprint(n), time.Unix(1, 0), time.Second)
	}
	qt.Assert(t, qt.IsTrue(len(b.owners) <= maxAccounts))
	qt.Assert(t, qt.Equals(b.owners["stays"].has[sites], 5))
}
