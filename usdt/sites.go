// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/sys"
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
	knownProbes map[siteProbe]int32 // their numbers
	knownLists  map[string]int32    // by their text

	// Most sites have a probe and a list that others have, too. To look for
	// these here first takes a quarter of the time of a map.
	recentProbes, recentLists [1 << recentBits]int32
}

// recentBits makes a hit likely for hundreds of probes and lists.
const recentBits = 10

func newSiteCollector() *siteCollector {
	return &siteCollector{knownProbes: make(map[siteProbe]int32),
		knownLists: make(map[string]int32)}
}

func (c *siteCollector) add(site *elfnote.Site) {
	if n := len(c.rows); n == cap(c.rows) {
		// By itself a long slice grows by a quarter, and is moved each time,
		// which takes longer than to find the sites.
		c.rows = slices.Grow(c.rows, max(4, 3*n))
	}
	c.rows = append(c.rows, siteRow{
		location:        site.Location,
		offset:          site.Offset,
		semaphore:       site.Semaphore,
		semaphoreOffset: site.SemaphoreOffset,
		probe:           c.probe(site),
		list:            c.list(site.Arguments),
	})
	c.semaphores = c.semaphores || site.SemaphoreOffset != 0
}

// probe returns the number of a site's probe.
func (c *siteCollector) probe(site *elfnote.Site) int32 {
	probe := siteProbe{site.Provider, site.Name, site.Base}
	recent := &c.recentProbes[endOf(site.Name)]
	if n := int(*recent); n < len(c.probes) && c.probes[n] == probe {
		return *recent
	}
	number, known := c.knownProbes[probe]
	if !known {
		number = int32(len(c.probes))
		c.probes = append(c.probes, probe)
		c.knownProbes[probe] = number
	}
	*recent = number
	return number
}

// list returns the number of the list with a text.
func (c *siteCollector) list(text string) int32 {
	recent := &c.recentLists[endOf(text)]
	if n := int(*recent); n < len(c.lists) && c.lists[n].text == text {
		return *recent
	}
	number, known := c.knownLists[text]
	if !known {
		number = int32(len(c.lists))
		c.lists = append(c.lists, argumentList{text: text})
		c.knownLists[text] = number
	}
	*recent = number
	return number
}

// endOf returns a hash of the end of a text, in which those of a file differ.
func endOf(text string) (hash uint32) {
	const characters = 6
	for i := max(0, len(text)-characters); i < len(text); i++ {
		hash = hash*31 + uint32(text[i])
	}
	return (hash + uint32(len(text))) * 0x9e3779b1 >> (32 - recentBits)
}

// maxArguments is how many arguments the sites of a Selection may have. Sites
// with equal arguments count once. A file is untrusted, and an argument of a
// few bytes in it takes some 170 in memory: this many take 90 MB, or 240 MB if
// each names another symbol. Of real files libjvm has the most, 750 sites with
// 2,000 arguments. The error for more of them wraps elffile.ErrTooLarge.
const maxArguments = 1 << 19

// decodeArguments decodes the arguments of sites whose instruction to attach to
// is known. Most sites of a file share few strings. A string that means the
// same at each site is decoded once.
//
// maxSites is Target.MaxSites.
func decodeArguments(file *elfnote.File, sites *siteTable, maxSites int) error {
	count := 0
	for i := range sites.rows {
		row := &sites.rows[i]
		list := &sites.lists[row.list]
		if list.decoded && !list.relative {
			continue
		}
		if list.decoded {
			row.list = int32(len(sites.lists))
			sites.lists = append(sites.lists, argumentList{text: list.text})
			list = &sites.lists[row.list]
		}
		list.args = argspec.Decode(nil, file, row.instruction(), list.text)
		list.relative = slices.ContainsFunc(list.args, isRelative)
		list.decoded = true
		count += len(list.args)
		if limit := argumentsPerSite * maxSites; limit > 0 && count > limit {
			return follow.TooMany(file.OSFile().Name(), "different arguments", limit, count)
		}
		if count > maxArguments {
			return fmt.Errorf("%s: more than %d arguments of probes: %w", file.OSFile().Name(), maxArguments,
				elffile.ErrTooLarge)
		}
	}
	return nil
}

// isRelative reports whether an argument depends on the address of its site.
func isRelative(a argspec.Arg) bool {
	return a.Base.Name == "rip" || a.Base.Name == "eip" || a.Base.Name == "pc"
}

// Sites closer together than nearSites are read by one call: copying that much
// costs less than another call. No read is longer than the buffer, which stays
// in the processor's second-level cache.
const nearSites = 4 << 10

// readCode calls found with the index of each site and the machine code there,
// up to n bytes: fewer where the file ends, and then err may say why. It reads
// neighbouring sites together, so it calls in the order of their offsets. The
// bytes are valid during the call.
func readCode(
	file *elfnote.File, sites []siteRow, n uint64, found func(i int, code []byte, err error),
) {
	order := inOrder(sites)
	index := func(i int) int {
		if order == nil {
			return i
		}
		return int(order[i])
	}
	buffer := elffile.NewBuffer()
	defer buffer.Free()
	for from, to := 0, 0; from < len(sites); from = to {
		first := sites[index(from)].offset
		end := first + n
		for to = from + 1; to < len(sites); to++ {
			next := sites[index(to)].offset
			if next > end+nearSites || next+n-first > uint64(len(buffer)) {
				break
			}
			end = next + n
		}

		code := buffer[:end-first]
		read, err := file.OSFile().ReadAt(code, int64(first))
		for i := from; i < to; i++ {
			site := index(i)
			at := min(int(sites[site].offset-first), read)
			found(site, code[at:min(at+int(n), read)], err)
		}
	}
}

// inOrder returns the indices of sites in the order of their offsets. It
// returns nil if they are in that order already, as nearly always.
func inOrder(sites []siteRow) []int32 {
	byOffset := func(a, b siteRow) int { return cmp.Compare(a.offset, b.offset) }
	if slices.IsSortedFunc(sites, byOffset) {
		return nil
	}
	order := make([]int32, len(sites))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return byOffset(sites[a], sites[b]) })
	return order
}

// attachable returns an error if the running kernel could not run a file at
// all.
func attachable(file *elfnote.File) error {
	switch {
	case file.IsDebugFile():
		return errors.New("this is a separate debug file, without the machine code: attach to the file it belongs to")
	case file.Header().Type == elf.ET_REL:
		return errors.New("this is an object file that is not linked yet: attach to the program or library made of it")
	}
	kernel, err := sys.KernelMachine()
	if err != nil {
		return err
	}
	header := file.Header()
	isLittle, wantLittle := header.Data == elf.ELFDATA2LSB,
		binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if !attaches(kernel, header.Machine) || isLittle != wantLittle {
		return fmt.Errorf("the file is for %s (%s), this kernel attaches to programs for %s",
			header.Machine, header.ByteOrder, kernel)
	}
	return nil
}

// attaches reports whether a kernel of one machine takes uprobes in programs
// for another. A kernel for arm64 runs 32-bit programs, but takes no uprobes in
// them (arch_uprobe_analyze_insn).
func attaches(kernel, program elf.Machine) bool {
	return kernel == program || kernel == elf.EM_X86_64 && program == elf.EM_386
}
