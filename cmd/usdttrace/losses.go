// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"slices"

	"github.com/gousdt/gousdt/trace"
)

// losses is what was lost up to a moment.
type losses struct {
	trace.Losses
	owners []trace.OwnerLoss // whose events were lost, the most first
	err    error             // why it is not known
}

// askLosses asks what has been lost so far.
func (t *tracer) askLosses() losses {
	l, err := t.session.Losses()
	if err != nil {
		return losses{err: err}
	}
	owners, err := t.session.LossesByOwner()
	return losses{l, owners, err}
}

// since returns what was lost after an earlier moment. What comes while sites
// are attached, or detached, is not measured, and so nothing of it is lost.
func (l losses) since(before losses) losses {
	less := func(n *uint64, by uint64) { *n -= min(*n, by) }
	less(&l.Events, before.Events)
	less(&l.Unreadable, before.Unreadable)
	less(&l.Starts, before.Starts)
	less(&l.NotSampled, before.NotSampled)
	less(&l.Replaced, before.Replaced)
	less(&l.Unmatched, before.Unmatched)

	earlier := make(map[trace.OwnerLoss]uint64, len(before.owners))
	for _, loss := range before.owners {
		earlier[ownerOf(loss)] = loss.Events
	}
	var owners []trace.OwnerLoss
	for _, loss := range l.owners {
		if less(&loss.Events, earlier[ownerOf(loss)]); loss.Events > 0 {
			owners = append(owners, loss)
		}
	}
	slices.SortStableFunc(owners,
		func(a, b trace.OwnerLoss) int { return cmp.Compare(b.Events, a.Events) })
	l.owners = owners
	return l
}

func ownerOf(loss trace.OwnerLoss) trace.OwnerLoss {
	loss.Events = 0
	return loss
}
