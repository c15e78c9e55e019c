// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/usdt"
)

func checked(b *budget, owner string, more amounts) *usdt.LimitError {
	full, _ := b.check(owner, more)
	return full
}

func TestBudgetHasALimitForOwnersAndForAll(t *testing.T) {
	b := newBudget(Limits{OwnerSites: 100, Sites: 150})
	qt.Assert(t, qt.IsNil(checked(b, "a", amounts{sites: 100})))
	b.take("a", amounts{sites: 60}, 1)
	b.take("a", amounts{sites: 40}, 1)
	qt.Assert(t, qt.Equals(*checked(b, "a", amounts{sites: 1}),
		usdt.LimitError{Limit: "sites of a", Option: "Limits.OwnerSites",
			Capacity: 100, InUse: 100, Needed: 1}))
	qt.Assert(t, qt.IsNil(checked(b, "b", amounts{sites: 50})))
	qt.Assert(t, qt.Equals(*checked(b, "b", amounts{sites: 51}),
		usdt.LimitError{Limit: "sites", Option: "Limits.Sites", Capacity: 150, InUse: 100, Needed: 51}))
	b.take("a", amounts{sites: 60}, -1)
	b.take("a", amounts{sites: 40}, -1)
	qt.Assert(t, qt.IsNil(checked(b, "a", amounts{sites: 100})))
	qt.Assert(t, qt.Equals(b.total, amounts{}))
	qt.Assert(t, qt.HasLen(b.owners, 0), qt.Commentf("owners without anything are forgotten"))
}

func TestBudgetHasDefaultsAndCanBeWithoutLimits(t *testing.T) {
	qt.Assert(t, qt.Equals(newBudget(Limits{}).ofOwner[sites], defaultOwnerSites))
	b := newBudget(Limits{OwnerSites: -1, Sites: -1, OwnerDescriptors: -1, Descriptors: -1})
	qt.Assert(t, qt.IsNil(checked(b, "a", amounts{1 << 30, 1 << 30})))
}

// An owner takes from the one that has the most, unless it has as much then.
func TestBudgetKnowsTheHeaviest(t *testing.T) {
	b := newBudget(Limits{OwnerSites: -1, Sites: 1000})
	b.take("greedy", amounts{sites: 1000}, 1)
	qt.Assert(t, qt.IsNotNil(checked(b, "modest", amounts{sites: 10})))
	owner, ok := b.heaviest(sites, "modest", 10)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(owner, "greedy"))
	b.take("greedy", amounts{sites: 500}, -1)
	qt.Assert(t, qt.IsNil(checked(b, "modest", amounts{sites: 500})))
	b.take("modest", amounts{sites: 500}, 1)
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

	// An owner does not wait long where there are no others.
	now = now.Add(time.Minute)
	for range 30 {
		b.spend("greedy", now, 100*time.Millisecond)
		now = now.Add(100 * time.Millisecond)
	}
	qt.Assert(t, qt.Equals(b.wait("greedy", now), 0))
}
