// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"slices"
	"unsafe"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// A siteTable holds sites. Ten thousand of them, each a Site, would take 1.2 MB
// that the garbage collector looks through again and again, as long as they are
// attached. A row takes 48 bytes, without a pointer.
type siteTable struct {
	rows   []siteRow
	probes []siteProbe    // that rows share
	lists  []argumentList // that rows share

	semaphores bool // some site has one
}

// siteRow is what a site has of its own.
type siteRow struct {
	location, offset           uint64
	semaphore, semaphoreOffset uint64

	probe, list int32 // numbers of what is shared
	skip        uint8 // bytes from the location to the instruction to attach to
	skipped     bool  // it cannot be attached: only until the selection has been made
}

type siteProbe struct {
	provider, name string
	base           uint64
}

// argumentList is the arguments of sites.
type argumentList struct {
	text     string
	args     []argspec.Arg
	decoded  bool
	relative bool // an argument depends on where the site is
}

// site returns a site.
func (t *siteTable) site(i int) Site {
	row := &t.rows[i]
	probe, list := &t.probes[row.probe], &t.lists[row.list]
	return Site{
		Site: elfnote.Site{
			Provider: probe.provider, Name: probe.name, Arguments: list.text,
			Location: row.location, Offset: row.offset, Base: probe.base,
			Semaphore: row.semaphore, SemaphoreOffset: row.semaphoreOffset,
		},
		Instruction: row.instruction(),
		Args:        list.args,
	}
}

// instruction is the address of the instruction to attach to.
func (r *siteRow) instruction() uint64 { return r.location + uint64(r.skip) }

// uprobeOffset is the file offset of the instruction to attach to.
func (r *siteRow) uprobeOffset() uint64 { return r.offset + uint64(r.skip) }

// siteCollector makes a table of the sites of a file.
type siteCollector struct {
	siteTable
	file  *elfnote.File
	seen  int              // bytes of notes
	known map[string]int32 // numbers of lists, by their text

	// Lists and probes by where their text or name is in memory: package
	// elfnote has most equal ones in one place.
	recentLists, recentProbes [1 << recentBits]int32
}

func newSiteCollector(file *elfnote.File) *siteCollector {
	return &siteCollector{file: file, known: make(map[string]int32)}
}

// add takes each site of the file, and keeps those that are wanted.
func (c *siteCollector) add(site *elfnote.Site, wanted bool) {
	if wanted {
		if len(c.rows) == cap(c.rows) {
			c.grow()
		}
		c.rows = append(c.rows, siteRow{
			location:        site.Location,
			offset:          site.Offset,
			semaphore:       site.Semaphore,
			semaphoreOffset: site.SemaphoreOffset,
			probe:           c.probe(site), list: c.list(site.Arguments),
		})
		c.semaphores = c.semaphores || site.SemaphoreOffset != 0
	}
	c.seen += noteSize + len(site.Provider) + len(site.Name) + len(site.Arguments)
}

// probe returns the number of a site's probe, or makes one: it does no harm if
// a probe has several.
func (c *siteCollector) probe(site *elfnote.Site) int32 {
	recent := &c.recentProbes[hashOfPlace(site.Name)]
	if n := int(*recent); n < len(c.probes) {
		if p := &c.probes[n]; p.name == site.Name && p.provider == site.Provider &&
			p.base == site.Base {
			return *recent
		}
	}
	*recent = int32(len(c.probes))
	c.probes = append(c.probes, siteProbe{site.Provider, site.Name, site.Base})
	return *recent
}

// list returns the number of the list with a text.
func (c *siteCollector) list(text string) int32 {
	recent := &c.recentLists[hashOfPlace(text)]
	if n := int(*recent); n < len(c.lists) && c.lists[n].text == text {
		return *recent
	}
	list, known := c.known[text]
	if !known {
		list = int32(len(c.lists))
		c.lists = append(c.lists, argumentList{text: text})
		c.known[text] = list
	}
	*recent = list
	return list
}

// hashOfPlace returns a hash of where in memory a text is, of recentBits.
func hashOfPlace(text string) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(text)))) * 0x9e3779b1 >> (32 - recentBits)
}

const (
	// recentBits makes a hit likely for hundreds of lists. libjvm has 128.
	recentBits = 10

	// noteSize is the size of a note without its strings, of which nearly all
	// have some padding.
	noteSize = 12 + 8 + 3*8 + 3

	// manySites is from when on the sites found so far say how many there will
	// be. A slice that grew without that would move them again and again, which
	// takes longer than to find them.
	manySites = 16

	// mostGrowth bounds what a note section that is not what it seems can make
	// of a few sites.
	mostGrowth = 100
)

// grow makes room for as many sites as there may be, by the notes that have
// been seen.
func (c *siteCollector) grow() {
	found := len(c.rows)
	room := max(4, 4*found)
	if found >= manySites {
		likely := uint64(found) * uint64(c.file.NoteSize()) / uint64(c.seen)
		room = min(max(found+found/4, int(likely+likely/16)), mostGrowth*found)
	}
	c.rows = append(make([]siteRow, 0, room), c.rows...)
}

// table returns the table, which links hold for long.
func (c *siteCollector) table() siteTable {
	if cap(c.rows) > 2*len(c.rows)+manySites {
		c.rows = slices.Clone(c.rows)
	}
	return c.siteTable
}
