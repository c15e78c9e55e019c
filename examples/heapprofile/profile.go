// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gousdt/gousdt/stack"
)

// newProfile turns what the kernel has added up into a profile of the kinds of
// value that Go's heap profiles have.
func newProfile(t *tracer, symbolizer *stack.Symbolizer) (*stack.Profile, error) {
	p := stack.NewProfile(symbolizer,
		stack.ValueType{Type: "alloc_objects", Unit: "count"},
		stack.ValueType{Type: "alloc_space", Unit: "bytes"},
		stack.ValueType{Type: "inuse_objects", Unit: "count"},
		stack.ValueType{Type: "inuse_space", Unit: "bytes"},
	)
	p.ByProcess = true
	p.PeriodType = stack.ValueType{Type: "space", Unit: "bytes"}
	var site heapSite
	var totals heapTotals
	var addresses [127]uint64 // MAX_FRAMES
	sites := t.Sites.Iterate()
	for sites.Next(&site, &totals) {
		if err := t.Stacks.Lookup(site.Stack, &addresses); err != nil {
			return nil, fmt.Errorf("stack %d: %w", site.Stack, err)
		}
		p.Add(context.Background(), int(site.Pid), callers(addresses[:]), []int64{
			int64(totals.Allocs), int64(totals.AllocBytes),
			int64(totals.Allocs - totals.Frees), int64(totals.AllocBytes - totals.FreeBytes),
		}, nil)
	}
	if err := sites.Err(); err != nil {
		return nil, err
	}
	var lost uint64
	if err := t.Lost.Get(&lost); err != nil {
		return nil, err
	}
	if lost > 0 {
		log.Printf("%d samples left out: no stack (it takes -fno-omit-frame-pointer), or no room (raise the period)", lost)
	}
	counts := symbolizer.Counts()
	if unnamed := counts.NoFile + counts.NoFunction; unnamed > 0 {
		log.Printf("%d of %d functions have no name", unnamed, counts.Frames)
	}
	return p, nil
}

// callers returns a stack of callers only: the allocator itself is left out.
func callers(addresses []uint64) []uint64 {
	for i, address := range addresses {
		if address == 0 {
			addresses = addresses[:i]
			break
		}
	}
	if len(addresses) > 0 {
		addresses[0]-- // a return address, too
	}
	return addresses
}
