// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/sys"
)

// argumentsPerSite is how many arguments there may be for each site of
// [Target].MaxSites.
const argumentsPerSite = 4

// weight is the number of sites that the selection counts for.
func (s *Selection) weight() int {
	if !s.semaphores {
		return s.Len()
	}
	weight := 0
	for i := range s.sites {
		weight += weightOf(&s.sites[i].Site)
	}
	return weight
}

func weightOf(site *elfnote.Site) int {
	if site.SemaphoreOffset != 0 {
		return follow.SemaphoreSites
	}
	return 1
}

// checkPerfEvents returns an error if the sites need too many perf events. It
// applies to files of other users, which have a [Target].MaxSites. The kernel
// takes a tenth of a second to close each event, one after the other.
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
