// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
)

const (
	// detachedLinks is how many attachments are closed together.
	detachedLinks = 100

	oursTogether = "gousdt, together"
	rawTogether  = "raw links, together"
)

func detachRows() []row {
	return []row{{
		name:    "detach/together",
		title:   fmt.Sprintf("close %d attachments (uprobe_multi links)", detachedLinks),
		rounds:  15,
		goals:   []goal{{Of: oursTogether, Than: rawTogether, Times: 1.5}},
		prepare: (*env).closeLinks,
	}}
}

func (e *env) closeLinks() ([]contestant, error) {
	count := e.pick(detachedLinks, detachedLinks, 3)
	path, err := e.synthetic(syntheticFile{Sites: count, Probes: count})
	if err != nil {
		return nil, err
	}
	t, err := e.tracer(ownObject, usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(path)
	if err != nil {
		return nil, err
	}
	program := t.programs["add3"]
	// closed attaches to each probe, and returns how long closing takes.
	closed := func(attach func(i int) (io.Closer, error)) func() (float64, error) {
		return func() (float64, error) {
			var all []io.Closer
			for i := range count {
				c, err := attach(i)
				if err != nil {
					return 0, errors.Join(err, sys.CloseTogether(all))
				}
				all = append(all, c)
			}
			return timed(func() error { return sys.CloseTogether(all) })
		}
	}
	return []contestant{
		once(oursTogether, closed(func(i int) (io.Closer, error) {
			return t.Attach(program, usdt.Target{Path: path}, nil,
				elfnote.Exact(syntheticProvider, syntheticProbe(i)))
		})),
		once(rawTogether, closed(func(i int) (io.Closer, error) {
			one := &rawSites{path: raw.path, offsets: raw.offsets[i : i+1], cookies: raw.cookies[i : i+1]}
			return one.attach(program)
		})),
	}, nil
}
