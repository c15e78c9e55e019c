// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"

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
	var each []*rawSites
	for i := range raw.offsets {
		each = append(each,
			&rawSites{path: raw.path, offsets: raw.offsets[i : i+1], cookies: raw.cookies[i : i+1]})
	}
	program := t.programs["add3"]
	return []contestant{
		{Name: oursTogether, Once: true, Measure: func(int) (float64, error) {
			var links []*usdt.Link
			for i := range count {
				lnk, err := t.Attach(program, usdt.Target{Path: path}, nil,
					elfnote.Exact(syntheticProvider, syntheticProbe(i)))
				if err != nil {
					return 0, errors.Join(err, sys.CloseTogether(links))
				}
				links = append(links, lnk)
			}
			return timed(func() error { return sys.CloseTogether(links) })
		}},
		{Name: rawTogether, Once: true, Measure: func(int) (float64, error) {
			var fds []int
			for _, site := range each {
				fd, err := site.linkMulti(program)
				if err != nil {
					return 0, errors.Join(err, closeTogether(fds))
				}
				fds = append(fds, fd)
			}
			return timed(func() error { return closeTogether(fds) })
		}},
	}, nil
}
