// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"io"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/gousdt/gousdt/internal/uprobeevent"
)

// removeEnded removes what processes that were killed have left in tracefs. It
// is not the caller's business if that fails.
var removeEnded = sync.OnceFunc(func() { _, _ = uprobeevent.Remove() })

// group is sites that one perf event can stand for: they have one cookie, and
// are at different instructions.
type group struct {
	cookie uint64
	sites  []int // indices into the selection, in order
}

// groups returns the sites in groups, in the order of their first sites.
func (s *Selection) groups(cookies []uint64) []group {
	type place struct{ cookie, offset uint64 }
	type key struct {
		cookie uint64
		round  int // how many sites before it have the same place
	}
	var groups []group
	rounds, known := make(map[place]int, s.Len()), make(map[key]int)
	for i := range s.sites.rows {
		var cookie uint64
		if cookies != nil {
			cookie = cookies[i]
		}
		at := place{cookie, s.sites.rows[i].uprobeOffset()}
		k := key{cookie, rounds[at]}
		rounds[at]++
		n, ok := known[k]
		if !ok {
			n = len(groups)
			known[k] = n
			groups = append(groups, group{cookie: cookie})
		}
		groups[n].sites = append(groups[n].sites, i)
	}
	return groups
}

// attachGroups attaches by one perf event for each group of sites. It returns
// the sites that are left: groups of one, which need no name in tracefs, and
// all that follow the first that fails. What cannot be attached in this way may
// be in another, and that one says best what is wrong.
func (s *Selection) attachGroups(
	groups []group, prog *ebpf.Program,
) (attached []io.Closer, left []int) {
	hasLink := features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
	for n, g := range groups {
		if len(g.sites) == 1 {
			left = append(left, g.sites...)
			continue
		}
		places := make([]uprobeevent.Place, len(g.sites))
		for j, i := range g.sites {
			row := &s.sites.rows[i]
			places[j] = uprobeevent.Place{Offset: row.uprobeOffset(),
				Semaphore: row.semaphoreOffset}
		}
		event, err := uprobeevent.Attach(s.opened.path(), places, prog, uprobeevent.Options{
			PID: s.pid, HasLink: hasLink, Cookie: g.cookie,
		})
		if err != nil {
			for _, g := range groups[n:] {
				left = append(left, g.sites...)
			}
			break
		}
		attached = append(attached, event)
	}
	return attached, left
}
