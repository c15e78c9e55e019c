// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/sys"
)

// Limits bound what a Watch attaches. A user who may start processes could have
// a host watch files with any number of probes, so each limit has a default. 0
// means the default, and a negative number no limit.
//
// A site with a semaphore counts as eight, because the kernel takes longer for
// it, and so does each perf event where attaching is by these. What is over a
// limit is not attached. It is an error of [WatchChanges], and
// is tried again when there is room.
//
// An owner is a container, or else a user: see [proc.Process.Owner]. No owner
// keeps the others from being attached: if there is no room for one that would
// still have less than the owner with the most, the latter gives up half of
// what it has. While Run runs, the time that attaching takes is shared out,
// too: an owner for which it takes more than a quarter of the time waits while
// there are others.
type Limits struct {
	// FileSites is for the sites of one file. The default is 10,000. Of real
	// files libjvm has the most, 750. The file may have four times as many
	// different arguments.
	FileSites int
	// OwnerSites is for all files of one owner. The default is 50,000.
	OwnerSites int
	// Sites is for all files that the Watch attaches. The default is 200,000,
	// which take 70 MB of kernel memory.
	Sites int

	// OwnerDescriptors is for the descriptors of all that is attached for one
	// owner: a uprobe_multi link has one, and a perf event up to two. The
	// default is a quarter of RLIMIT_NOFILE.
	OwnerDescriptors int
	// Descriptors is for those of all that the Watch attaches. The default is
	// half of RLIMIT_NOFILE. The files take up to a quarter besides.
	Descriptors int
}

// argumentsPerSite is how many arguments there may be for each site of
// [Target].MaxSites.
const argumentsPerSite = 4

// weight is the number of sites that the selection counts for.
func (s *Selection) weight() int {
	sites := s.Len()
	if s.sites.semaphores {
		for i := range s.sites.rows {
			if s.sites.rows[i].semaphoreOffset != 0 {
				sites += follow.SemaphoreSites - 1
			}
		}
	}
	return sites
}

// checkPerfEvents returns an error if the sites need too many perf events. It
// applies to files of other users, those with [Target].MaxSites. The
// kernel takes a tenth of a second to close each, one after the other.
func (s *Selection) checkPerfEvents(events int) error {
	if s.maxSites <= 0 {
		return nil
	}
	if weight := perfEventSites * events; events > 1 && weight > s.maxSites {
		return follow.TooMany(s.opened.name, "sites (a perf event counts as 8)", s.maxSites, weight)
	}
	if open := sys.MaxDescriptors(); descriptorsPerPerfEvent*events > open/fileDescriptorsPart {
		return fmt.Errorf("%s: %w: its sites need %d perf events, which take more than one in %d of the descriptors "+
			"that this process may have, %d (raise RLIMIT_NOFILE)", s.opened.name,
			elffile.ErrTooLarge, events, fileDescriptorsPart, open)
	}
	return nil
}

const (
	// perfEventSites is the number of sites that a perf event counts for.
	perfEventSites = 8
	// descriptorsPerPerfEvent counts that of its BPF link, too.
	descriptorsPerPerfEvent = 2
	// fileDescriptorsPart says what share of the descriptors one file of
	// another owner may take: one part of this many.
	fileDescriptorsPart = 8
)
