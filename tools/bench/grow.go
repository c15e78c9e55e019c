// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

const (
	// ofSize stands between what a contestant does and the size.
	ofSize = ", "

	listing     = "list"
	attaching   = "attach"
	attachedRaw = "attach by raw links"
	detaching   = "detach together"
	detachedRaw = "detach raw links together"
	firstScan   = "find the probes of all processes"
	nextScan    = "look again without a change"
	keyedHit    = "a hit"
	keysRead    = "read all"

	// linear is what a hundred times the work may take: the rest is the spread.
	linear = 140

	// besideRaw is what may be taken of what the kernel takes.
	besideRaw = 1.2
)

// growRows show how costs grow. The kernel's part is a contestant, too.
func growRows() []row {
	grow := func(
		name, title string, rounds, largest int, bounded []string,
		prepare func(e *env, sizes []int) ([]contestant, error),
	) row {
		r := row{name: "grow/" + name, title: title, rounds: rounds}
		for size := 1; size <= largest; size *= 10 {
			r.sizes = append(r.sizes, size)
		}
		for _, work := range bounded {
			r.goals = append(r.goals,
				goal{Of: sized(work, largest), Than: sized(work, largest/100), Times: linear})
		}
		r.prepare = func(e *env) ([]contestant, error) {
			sizes := r.sizes[:e.pick(len(r.sizes), len(r.sizes), 2)]
			all, err := prepare(e, sizes)
			if err != nil {
				return nil, err
			}
			var every []contestant
			for c := range slices.Chunk(all, len(sizes)) {
				every = append(every, c...)
				name, _, _ := strings.Cut(c[0].Name, ofSize)
				for _, size := range r.sizes[len(c):] {
					every = append(every, missing(sized(name, size), &unableError{"a short run"}))
				}
			}
			return every, nil
		}
		return r
	}
	// The kernel's part grows faster than the number of processes.
	processes := grow("processes", "processes that run a file with 10 sites", 3, 10_000, nil,
		(*env).growProcesses)
	for ours, raw := range map[string]string{attaching: attachedRaw, detaching: detachedRaw} {
		processes.goals = append(processes.goals,
			goal{Of: sized(ours, 10_000), Than: sized(raw, 10_000), Times: besideRaw})
	}
	slices.SortFunc(processes.goals, func(a, b goal) int { return strings.Compare(a.Of, b.Of) })
	return []row{
		grow("sites", "sites of a probe", 5, manySites,
			[]string{listing, attaching, detaching}, (*env).growSites),
		grow("files", "files with 10 sites each", 3, 1000,
			[]string{attaching, detaching}, (*env).growFiles),
		processes,
		grow("scan", "processes with 20 mappings each: processor time", 2, 10_000,
			[]string{firstScan, nextScan}, (*env).growScans),
		grow("keys", "keys of a table: time of a hit, and of reading the table", 3, 1_000_000,
			[]string{keysRead}, (*env).growKeys),
	}
}

func sized(work string, size int) string { return fmt.Sprint(work, ofSize, size) }

// eachSize makes a contestant of each size of some work.
func eachSize(work string, sizes []int, measure func(i int) (float64, error)) (all []contestant) {
	for i, size := range sizes {
		all = append(all, once(sized(work, size), func() (float64, error) { return measure(i) }))
	}
	return all
}

// attachments are contestants that attach to files, several for each size, and
// that close what they have attached.
func (e *env) attachments(sizes []int, files [][]string) ([]contestant, error) {
	other, err := e.synthetic(syntheticFile{Sites: 10})
	if err != nil {
		return nil, err
	}
	a, err := e.attachersTo(append(slices.Concat(files...), other)...)
	if err != nil {
		return nil, err
	}
	attaches := func(attach attacher) func(i int) (float64, error) {
		return func(i int) (float64, error) { return attach.primed(other, files[i]...) }
	}
	detaches := func(attach attacher) func(i int) (float64, error) {
		return func(i int) (float64, error) {
			_, all, err := attach.all(files[i])
			if err != nil {
				return 0, err
			}
			return timed(all.Close)
		}
	}
	return slices.Concat(
		eachSize(attaching, sizes, attaches(a.ours)), eachSize(attachedRaw, sizes, attaches(a.raw)),
		eachSize(detaching, sizes, detaches(a.ours)), eachSize(detachedRaw, sizes, detaches(a.raw)),
	), nil
}

func (e *env) growSites(sizes []int) ([]contestant, error) {
	var files [][]string
	for _, size := range sizes {
		path, err := e.synthetic(syntheticFile{Sites: size, Specs: max(1, min(100, size/10))})
		if err != nil {
			return nil, err
		}
		files = append(files, []string{path})
	}
	all, err := e.attachments(sizes, files)
	return append(eachSize(listing, sizes, func(i int) (float64, error) {
		return timed(func() error { return listByElfnote(files[i][0]) })
	}), all...), err
}

func (e *env) growFiles(sizes []int) ([]contestant, error) {
	var files [][]string
	var paths []string
	for _, size := range sizes {
		for len(paths) < size {
			path, err := e.synthetic(syntheticFile{Sites: 10})
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
		files = append(files, paths[:size])
	}
	return e.attachments(sizes, files)
}

// crowd starts processes that map a new file.
func (e *env) crowd(processes, mappings int) (path string, p *peer, err error) {
	if path, err = e.synthetic(syntheticFile{Sites: 10}); err != nil {
		return "", nil, err
	}
	if p, err = startPeer("crowd"); err != nil {
		return "", nil, err
	}
	if _, err = p.Ask("start", processes, mappings, path); err != nil {
		return "", nil, errors.Join(err, p.Close())
	}
	return path, p, nil
}

func (e *env) growProcesses(sizes []int) ([]contestant, error) {
	var files [][]string
	for _, size := range sizes {
		path, p, err := e.crowd(size, 1)
		if _, err = e.untilClosed(p, err); err != nil {
			return nil, err
		}
		files = append(files, []string{path})
	}
	return e.attachments(sizes, files)
}

// growScans are watchers of all processes, so there is one crowd at a time.
func (e *env) growScans(sizes []int) ([]contestant, error) {
	scan := func(again bool) func(i int) (float64, error) {
		return func(i int) (float64, error) {
			_, p, err := e.crowd(sizes[i], 20)
			if err != nil {
				return 0, err
			}
			w := procwatch.NewWatcher(nil)
			defer w.Close()
			sync := func() error { return w.Sync(context.Background(), 0) }
			took, err := processorTime(sync)
			if again && err == nil {
				took, err = processorTime(sync)
			}
			return took, errors.Join(err, p.Close())
		}
	}
	return append(eachSize(firstScan, sizes, scan(false)), eachSize(nextScan, sizes, scan(true))...), nil
}

// growKeys are tables whose keys are known when they are measured: each hit of
// a run has another one.
func (e *env) growKeys(sizes []int) ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	var tables []*trace.Aggregation
	var sessions []*trace.Session
	probe := func(i int) string { return fmt.Sprint("registers12_", i) }
	pass := func(i int) (float64, error) { return ask(target, "run", probe(i))(sizes[i]) }
	for i, size := range sizes {
		table := &trace.Aggregation{By: []string{"arg5"}, MaxKeys: max(2*size, 100)} // counts down
		session, err := e.session(trace.SessionOptions{Aggregations: []*trace.Aggregation{table}})
		if err != nil {
			return nil, err
		}
		_, err = session.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("bench", probe(i)))
		if err != nil {
			return nil, err
		}
		tables, sessions = append(tables, table), append(sessions, session)
		if _, err := pass(i); err != nil {
			return nil, err
		}
	}
	return append(eachSize(keyedHit, sizes, pass), eachSize(keysRead, sizes, func(i int) (float64, error) {
		var snapshot *trace.Snapshot
		took, err := timed(func() (err error) {
			snapshot, err = sessions[i].Snapshot(tables[i])
			return err
		})
		if err != nil {
			return 0, err
		}
		// A million new keys in a second are more than are taken from the
		// kernel in that time: the rest come with the next hits.
		if len(snapshot.Rows) < sizes[i]*3/4 {
			return 0, fmt.Errorf("%d of %d keys were read", len(snapshot.Rows), sizes[i])
		}
		return took * float64(sizes[i]) / float64(len(snapshot.Rows)), nil
	})...), nil
}
