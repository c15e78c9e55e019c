// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/usdt"
)

// A Site is one of the places in a file where a probe is, as a session watches
// it.
type Site struct {
	usdt.Site

	// File is the path of the file, as the process sees it if the file was
	// found through a process.
	File string
	// Cookie is what AttachOptions gave the site.
	Cookie uint64

	id     uint32
	probe  string  // PROVIDER:NAME
	events *events // nil if none are sent
	starts *events // of calls, which their ends send; nil if they send none

	// repeat has the event that is used again, if events are and one has come.
	// It belongs to the iteration over events.
	repeat *repeat

	definition *providers.Probe // nil if there is none
	done       *elfnote.Probe   // what usually ends a call that may fail, and starts here; else nil
}

// Definition returns what [SessionOptions.Definitions] know of the probe and
// its arguments, or nil.
func (s *Site) Definition() *providers.Probe { return s.definition }

// ArgumentName returns the name of an argument: what
// [SessionOptions.Definitions] call it, else "arg0", "arg1" and so on.
func (s *Site) ArgumentName(i int) string {
	if s.definition != nil && i < len(s.definition.Arguments) {
		if name := s.definition.Arguments[i].Name; name != "" {
			return name
		}
	}
	return "arg" + strconv.Itoa(i)
}

// siteTable numbers sites. The generated programs send these numbers. Finding a
// site takes no lock, because it is done for each event while sites come and
// go.
type siteTable struct {
	pages atomic.Pointer[[]*sitePage]

	mu   sync.Mutex
	next uint32
	free []uint32
}

const sitesPerPage = 1024

type sitePage [sitesPerPage]atomic.Pointer[Site]

// get returns the site with a number, nil if there is none.
func (t *siteTable) get(id uint32) *Site {
	pages := t.pages.Load()
	if pages == nil || int(id/sitesPerPage) >= len(*pages) {
		return nil
	}
	return (*pages)[id/sitesPerPage][id%sitesPerPage].Load()
}

// add gives the site a number.
func (t *siteTable) add(s *Site) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.free); {
	case n > 0:
		s.id, t.free = t.free[n-1], t.free[:n-1]
	case t.next == math.MaxUint32:
		return errors.New("the session has more sites than it can number")
	default:
		s.id = t.next
		t.next++
	}
	var pages []*sitePage
	if p := t.pages.Load(); p != nil {
		pages = *p
	}
	if int(s.id/sitesPerPage) == len(pages) {
		// A new slice: somebody may be reading the old one.
		pages = append(pages[:len(pages):len(pages)], new(sitePage))
		t.pages.Store(&pages)
	}
	pages[s.id/sitesPerPage][s.id%sitesPerPage].Store(s)
	return nil
}

// remove frees the numbers of sites, of which no event can come any more.
func (t *siteTable) remove(sites []*Site) {
	if len(sites) == 0 {
		return // there may be no page yet
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pages := *t.pages.Load()
	for _, s := range sites {
		pages[s.id/sitesPerPage][s.id%sitesPerPage].Store(nil)
		t.free = append(t.free, s.id)
	}
	if len(t.free) == int(t.next) {
		// Nothing is attached: one large file is not to cost memory for good.
		t.pages.Store(nil)
		t.next, t.free = 0, nil
	}
}

// valueOf returns what is known of an argument before any hit.
func valueOf(arg *argspec.Arg) Value {
	v := Value{valueForm: valueForm{kind: kindOf(arg)}}
	if arg.Size <= math.MaxUint8 {
		v.size = uint8(arg.Size)
	}
	if arg.Kind == argspec.Constant {
		v.bits, v.state = arg.Constant, valuePresent
	}
	return v
}

func kindOf(arg *argspec.Arg) Kind {
	switch {
	case arg.Float:
		return Float
	case arg.Signed:
		return Signed
	default:
		return Unsigned
	}
}
