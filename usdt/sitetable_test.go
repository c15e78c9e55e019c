// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
)

// randomSite returns a site with few different strings, some of which are at
// the same place in memory, or empty.
func randomSite(random *rand.Rand) elfnote.Site {
	text := func(different int) string {
		if n := random.IntN(different); n > 0 {
			return strings.Clone(fmt.Sprint("text ", n))
		}
		return ""
	}
	number := func() uint64 { return uint64(random.IntN(3)) }
	return elfnote.Site{
		Provider: text(2), Name: text(4), Arguments: text(40),
		Location:        number(),
		Offset:          number(),
		Base:            number() / 2,
		Semaphore:       number(),
		SemaphoreOffset: number() / 2,
	}
}

func TestSiteTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, sites := range []int{0, 1, 5000} {
		found := newSiteCollector()
		var want []Site
		semaphores := false
		last := randomSite(random)
		for range sites {
			site := last // as another site of the probe
			if random.IntN(3) == 0 {
				site = randomSite(random)
			}
			last = site
			found.add(&site)
			want = append(want, Site{Site: site, Instruction: site.Location})
			semaphores = semaphores || site.SemaphoreOffset != 0
		}
		table := found.siteTable
		qt.Assert(t, qt.HasLen(table.rows, len(want)))
		for i := range want {
			qt.Assert(t, qt.DeepEquals(table.site(i), want[i]))
		}
		qt.Assert(t, qt.Equals(table.semaphores, semaphores))

		texts := make(map[string]bool)
		for _, list := range table.lists {
			qt.Assert(t, qt.IsFalse(texts[list.text]), qt.Commentf("two lists for %q", list.text))
			texts[list.text] = true
		}
	}
}
