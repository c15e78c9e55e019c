// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Site is a place to generate code for.
type Site struct {
	Provider, Name string
	Cookie         uint64 // of the attachment, as expressions see it
	Args           []argspec.Arg
	Names          []string // of the arguments, as far as they are known
	Lengths        []int    // for each text: the argument with its length, or -1

	// Fixed: the code is for this site alone and knows its ID. Otherwise the ID
	// is in the BPF cookie, and equal sites can share the code.
	Fixed bool
	ID    uint32
}

// Plan is what a session wants to be done at each hit.
type Plan struct {
	Kernel   Kernel
	Family   int        // descriptor of the map of processes that count, 0 for all
	Filter   *expr.Node // nil: every hit. Of a latency it is about the start
	Events   *Events    // nil: none are sent
	Counters int        // descriptor of the map of counters

	// PageIn: the program may sleep, and memory that is not there is paged in
	// (Linux 6.0).
	PageIn bool

	Aggregations []*Aggregation
	Latencies    []*Latency // all that aggregations have, each once
}

// Counter is an index into the map of counters, a per-processor array of u64.
type Counter uint32

// The counters.
const (
	CounterEvents     Counter = iota // events that found no room in the ring buffer
	CounterUnreadable                // hits not aggregated since a value or key could not be read
	CounterStarts                    // hits of a latency's start that found no room
	CounterUnmatched                 // hits of a latency's end without a start
	CounterCount                     // how many there are
)

// Block is the code for one kind of site.
type Block struct {
	Instructions asm.Instructions
	Record       *Record // how its events look, nil where it sends none
	UsesID       bool    // it takes the site's ID from the BPF cookie
}

// builder emits a block.
type builder struct {
	*fetcher
	plan   *Plan
	site   *Site
	usesID bool

	// While a record is filled for the first time, in a program that may sleep:
	// where to go if something cannot be read without sleeping.
	retrying bool
	missing  argcode.Label

	chosen *sampled // nil where every hit becomes an event
}

// Block generates the code for a site. It returns nil where nothing ever is to
// be done there.
func (p *Plan) Block(site *Site) (*Block, error) {
	p = p.bind(site)
	block, err := p.block(site, false)
	if errors.Is(err, argcode.ErrStack) {
		return p.block(site, true) // what is between neighbours takes room too
	}
	return block, err
}

func (p *Plan) block(site *Site, alone bool) (*Block, error) {
	b := &builder{fetcher: newFetcher(p.Kernel, site.Args), plan: p, site: site}
	b.PageIn, b.alone = p.PageIn, alone
	record, something, err := b.hit()
	if err != nil {
		return nil, fmt.Errorf("probe %s:%s: %w", site.Provider, site.Name, err)
	}
	if !something {
		return nil, nil
	}
	b.Leave()
	instructions, err := b.Finish()
	if err != nil {
		return nil, fmt.Errorf("probe %s:%s: %w", site.Provider, site.Name, err)
	}
	return &Block{Instructions: instructions, Record: record, UsesID: b.usesID}, nil
}

// hit emits all that is to be done at a hit, and reports whether there is
// something.
func (b *builder) hit() (record *Record, something bool, err error) {
	outside := b.Label()
	if b.plan.Family != 0 {
		b.ofFamily(b.plan.Family, outside)
	}
	// Ends come first, so that a probe can be the end of one interval and the
	// start of the next.
	for _, l := range b.plan.Latencies {
		if !l.IsDone(b.site) {
			continue
		}
		var ended bool
		b.apart(func() { ended, err = b.ended(l) })
		if err != nil {
			return nil, false, err
		}
		something = something || ended
	}

	end := b.Label()
	if b.plan.Filter != nil {
		c, err := b.site.resolve(b.plan.Kernel, b.plan.Filter, false)
		if err != nil || c.kind == never {
			return nil, something, err
		}
		b.together(c.arguments(nil), func() { b.condition(&c, end) })
	}
	for _, a := range b.plan.Aggregations {
		if a.Latency != nil {
			continue
		}
		r, err := a.role(b.plan.Kernel, b.site)
		if err == nil && r != unconcerned {
			something = true
			b.apart(func() { err = b.aggregate(a, r, 0) })
		}
		if err != nil {
			return nil, false, err
		}
	}
	for _, l := range b.plan.Latencies {
		if l.IsStart(b.site) && b.matches(&l.Start) != unconcerned {
			something = true
			b.apart(func() { b.start(l) })
		}
	}
	if b.plan.Events != nil {
		something = true
		record = b.event(b.plan.Events)
	}
	b.Place(end)
	b.Place(outside)
	return record, something, nil
}

// ended emits all aggregations of a latency that ends here.
func (b *builder) ended(l *Latency) (something bool, err error) {
	if b.matches(&l.Done) == unreadable {
		b.count(CounterUnreadable)
		return true, nil
	}
	none := b.Label()
	at := 0
	for _, a := range b.plan.Aggregations {
		if a.Latency != l {
			continue
		}
		r, err := a.role(b.plan.Kernel, b.site)
		if err != nil {
			return false, err
		}
		if r == unconcerned {
			continue
		}
		if !something {
			something = true
			at = b.done(l, none)
		}
		b.apart(func() { err = b.aggregate(a, r, at) })
		if err != nil {
			return false, err
		}
	}
	b.Place(none)
	return something, nil
}

// siteID emits the ID of the site.
func (b *builder) siteID(dst asm.Register) {
	if b.site.Fixed {
		b.Emit(asm.Mov.Imm32(dst, int32(b.site.ID)))
		return
	}
	b.usesID = true
	b.Emit(asm.Mov.Reg(dst, asm.R8), asm.RSh.Imm(dst, 32))
}

// count adds one to a counter.
func (b *builder) count(c Counter) {
	key := b.Temporary(4)
	none := b.Label()
	b.Emit(asm.StoreImm(asm.R10, int16(key), int64(c), asm.Word))
	b.AddressOf(asm.R2, asm.R10, key)
	b.Emit(asm.LoadMapPtr(asm.R1, b.plan.Counters))
	b.Call(asm.FnMapLookupElem)
	b.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
	b.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0))
	b.Place(none)
}
