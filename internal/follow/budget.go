// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/sys"
)

// Limits bound what a [Follower] attaches: usdt.WatchOptions say how.
type Limits struct {
	FileSites, OwnerSites, Sites  int
	OwnerDescriptors, Descriptors int
}

// OfFile returns the limit on the sites of one file, 0 if there is none.
func (l Limits) OfFile() int { return orDefault(l.FileSites, defaultFileSites) }

// The defaults. libjvm, which has the most of real files, has 750 sites: these
// are for 66 containers of one owner that have one each, and for 266
// altogether. A site takes 350 bytes of the kernel, and 6 us to attach and
// detach.
const (
	defaultFileSites  = 10_000
	defaultOwnerSites = 50_000
	defaultSites      = 200_000
)

// Which parts of this process's limit on descriptors are for what is attached:
// one of these altogether, and of one owner. A quarter is for the files
// themselves, and the rest for the program.
const (
	descriptorsPart      = 2
	ownerDescriptorsPart = 4
)

// A resource is what there is a limit on.
type resource int

const (
	sites resource = iota
	descriptors
	resources // how many there are
)

// amounts are how much there is of each resource.
type amounts [resources]int

func (a *amounts) add(more amounts, times int) {
	for r := range a {
		a[r] += times * more[r]
	}
}

// SemaphoreSites is the number of sites that one with a semaphore counts for.
// Where a process maps the code and not the semaphores, the kernel searches a
// list of all such semaphores for each of them.
const SemaphoreSites = 8

// orDefault returns a limit, none being 0 then.
func orDefault(limit, usual int) int {
	switch {
	case limit == 0:
		return usual
	case limit < 0:
		return 0
	}
	return limit
}

// limitsOption begins the names of the options that limit resources.
const limitsOption = "Limits."

// names of resources, and how options are called that limit them.
var names = [resources]limitName{{"sites", "Sites"},
	{"descriptors", "Descriptors"}}

type limitName struct{ name, option string }

// What the attaching of one owner may take of the time.
const (
	// attachTime is how long it may take at once.
	attachTime = time.Second

	// sharedRefill is the share of the time that it may take in the long run
	// where something was attached for others lately, and aloneRefill where
	// not: then what it has taken counts against those that come.
	sharedRefill = 1. / 4
	aloneRefill  = 4

	// lately is for how long an owner counts for which something was attached.
	lately = 10 * time.Second

	// maxAccounts bounds the memory of owners that have nothing attached.
	maxAccounts = 4096
)

// budget shares out what can be attached. Its zero value has no limits.
type budget struct {
	ofOwner, ofAll amounts // 0 is no limit
	total          amounts
	owners         map[string]*account
	places         map[Place]*share
	turn           uint64

	atOnce    time.Duration // attachTime
	lastOwner string        // for which something was attached
	shared    time.Time     // when that was another one than before
}

// account is what an owner has.
type account struct {
	has  amounts
	time fairness.Allowance
}

// share is what a place has.
type share struct {
	owner string
	has   amounts
	turn  uint64 // later ones are greater
}

func newBudget(limits Limits) *budget {
	open := sys.MaxDescriptors()
	return &budget{
		ofOwner: amounts{
			sites:       orDefault(limits.OwnerSites, defaultOwnerSites),
			descriptors: orDefault(limits.OwnerDescriptors, open/ownerDescriptorsPart),
		},
		ofAll: amounts{
			sites:       orDefault(limits.Sites, defaultSites),
			descriptors: orDefault(limits.Descriptors, open/descriptorsPart),
		},
		owners: make(map[string]*account), places: make(map[Place]*share), atOnce: attachTime,
	}
}

func (b *budget) account(owner string) *account {
	a := b.owners[owner]
	if a == nil {
		if len(b.owners) >= maxAccounts {
			maps.DeleteFunc(b.owners, func(_ string, a *account) bool { return a.has == amounts{} })
		}
		a = &account{}
		b.owners[owner] = a
	}
	return a
}

// check returns an error if an owner may not have so much more.
func (b *budget) check(owner string, more amounts) *LimitError {
	has := b.account(owner).has
	for r := range resources {
		if limit := b.ofOwner[r]; limit > 0 && has[r]+more[r] > limit {
			return &LimitError{Limit: names[r].name + " of " + owner,
				Option: limitsOption + "Owner" + names[r].option, Capacity: limit, InUse: has[r],
				Needed: more[r]}
		}
	}
	for r := range resources {
		if limit := b.ofAll[r]; limit > 0 && b.total[r]+more[r] > limit {
			return &LimitError{Limit: names[r].name, Option: limitsOption + names[r].option,
				Capacity: limit, InUse: b.total[r], Needed: more[r]}
		}
	}
	return nil
}

// take notes what a place has got.
func (b *budget) take(place Place, owner string, more amounts) {
	s := b.places[place]
	if s == nil {
		b.turn++
		s = &share{owner: owner, turn: b.turn}
		b.places[place] = s
	}
	s.has.add(more, 1)
	b.account(s.owner).has.add(more, 1)
	b.total.add(more, 1)
}

// give notes that nothing is attached at a place any more.
func (b *budget) give(place Place) {
	s := b.places[place]
	if s == nil {
		return
	}
	delete(b.places, place)
	b.account(s.owner).has.add(s.has, -1)
	b.total.add(s.has, -1)
}

// reserve notes that a call goes on that will take these, or with -1 that it
// has ended.
func (b *budget) reserve(owner string, needs amounts, times int) {
	b.account(owner).has.add(needs, times)
	b.total.add(needs, times)
}

// heaviest returns the owner that has the most of a resource, if it has more
// than another one would have with so much more. Then it is fair that it gives
// some of it up.
func (b *budget) heaviest(r resource, other string, more int) (owner string, ok bool) {
	most := b.account(other).has[r] + more
	for name, a := range b.owners {
		if name != other && a.has[r] > most {
			owner, most, ok = name, a.has[r], true
		}
	}
	return owner, ok
}

// half returns the places that an owner got last, with half of what it has of a
// resource.
func (b *budget) half(r resource, owner string) []Place {
	var places []Place
	for place, s := range b.places {
		if s.owner == owner {
			places = append(places, place)
		}
	}
	slices.SortFunc(places,
		func(x, y Place) int { return cmp.Compare(b.places[y].turn, b.places[x].turn) })
	half := 0
	for i, place := range places {
		if half += b.places[place].has[r]; 2*half >= b.account(owner).has[r] {
			return places[:i+1]
		}
	}
	return places
}

// spend notes that attaching for an owner took some time.
func (b *budget) spend(owner string, now time.Time, took time.Duration) {
	b.account(owner).time.Take(b.rate(now), now, took)
	if b.lastOwner != owner {
		if b.lastOwner != "" {
			b.shared = now
		}
		b.lastOwner = owner
	}
}

// rate returns how much of the time an owner may take.
func (b *budget) rate(now time.Time) fairness.Rate {
	if now.Sub(b.shared) < lately {
		return fairness.Rate{Full: b.atOnce, Refill: sharedRefill}
	}
	return fairness.Rate{Full: b.atOnce, Refill: aloneRefill}
}

// wait returns how long it is until something may be attached for an owner.
func (b *budget) wait(owner string, now time.Time) time.Duration {
	if a := b.owners[owner]; a != nil {
		return a.time.Wait(b.rate(now), now)
	}
	return 0
}
