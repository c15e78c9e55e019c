// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
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
	nextScan    = "look again, nothing has changed"
	keyedHit    = "a hit"
	keysRead    = "read all"

	// linear is what ten times the work may take: the rest is the spread.
	linear = 12.5
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
			r.goals = append(r.goals, goal{Of: sized(work, largest), Than: sized(work, largest/10), Times: linear})
		}
		r.prepare = func(e *env) ([]contestant, error) {
			all, err := prepare(e, r.sizes[:e.pick(len(r.sizes), len(r.sizes), 2)])
			if err != nil {
				return nil, err
			}
			// In a short run the largest are those that it has.
			var every []contestant
			for c := range slices.Chunk(all, e.pick(len(r.sizes), len(r.sizes), 2)) {
				every = append(every, c...)
				for _, size := range r.sizes[len(c):] {
					name := c[0].Name[:len(c[0].Name)-len(ofSize)-1]
					every = append(every, missing(sized(name, size), &unableError{"too large to see that it works"}))
				}
			}
			return every, nil
		}
		return r
	}
	return []row{
		grow("sites", "sites of a probe", 5, manySites, []string{listing, attaching, detaching}, (*env).growSites),
		grow("files", "files with 10 sites each", 3, 1000, []string{attaching, detaching}, (*env).growFiles),
		grow("processes", "processes that run a file with 10 sites", 3, 10_000,
			[]string{attaching, detaching}, (*env).growProcesses),
		grow("scan", "processes with 20 mappings each: processor time", 2, 10_000,
			[]string{firstScan, nextScan}, (*env).growScans),
		grow("keys", "keys of a table: time of a hit, and of reading the table", 3, 1_000_000,
			[]string{keyedHit, keysRead}, (*env).growKeys),
	}
}

func sized(work string, size int) string { return fmt.Sprint(work, ofSize, size) }

// A part of the sizes' work is one contestant for each size.
func eachSize(work string, sizes []int, measure func(i int) (float64, error)) (all []contestant) {
	for i, size := range sizes {
		all = append(all, once(sized(work, size), func() (float64, error) { return measure(i) }))
	}
	return all
}

// attachments are contestants that attach to files, several for each size, and
// that close what they have attached.
func (e *env) attachments(sizes []int, files [][]string) ([]contestant, error) {
	t, err := e.tracer()
	if err != nil {
		return nil, err
	}
	program := t.programs["add3"]
	raw := make(map[string]*rawSites)
	for _, path := range slices.Concat(files...) {
		if raw[path] == nil {
			if raw[path], err = prepareRaw(path); err != nil {
				return nil, err
			}
		}
	}
	measure := func(attach func(*ebpf.Program, string) (io.Closer, error), closing bool) func(i int) (float64, error) {
		return func(i int) (float64, error) {
			var all []io.Closer
			attached, err := timed(func() error {
				for _, path := range files[i] {
					c, err := attach(program, path)
					if err != nil {
						return err
					}
					all = append(all, c)
				}
				return nil
			})
			detached, closeErr := timed(func() error { return sys.CloseTogether(all) })
			if closing {
				return detached, errors.Join(err, closeErr)
			}
			return attached, errors.Join(err, closeErr)
		}
	}
	byOurs := func(p *ebpf.Program, path string) (io.Closer, error) {
		return t.Attach(p, usdt.Target{Path: path}, nil)
	}
	byKernel := func(p *ebpf.Program, path string) (io.Closer, error) { return raw[path].attach(p) }
	return slices.Concat(
		eachSize(attaching, sizes, measure(byOurs, false)), eachSize(attachedRaw, sizes, measure(byKernel, false)),
		eachSize(detaching, sizes, measure(byOurs, true)), eachSize(detachedRaw, sizes, measure(byKernel, true)),
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
			sync := func() error { return w.SyncAll(context.Background()) }
			took, err := processorTime(sync)
			if again && err == nil {
				took, err = processorTime(sync)
			}
			return took, errors.Join(err, p.Close())
		}
	}
	return append(eachSize(firstScan, sizes, scan(false)), eachSize(nextScan, sizes, scan(true))...), nil
}

// growKeys are tables whose keys are known when they are measured: each hit of a
// run has another one.
func (e *env) growKeys(sizes []int) ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	var tables []*trace.Aggregation
	var sessions []*trace.Session
	probe := func(i int) string { return fmt.Sprint("registers12_", i) }
	pass := func(i int) (float64, error) {
		spent, err := target.Number("run", probe(i), sizes[i])
		return spent / float64(sizes[i]), err
	}
	for i, size := range sizes {
		table := &trace.Aggregation{By: []string{"arg5"}, MaxKeys: max(2*size, 100)} // counts down
		session, err := e.session(trace.SessionOptions{Aggregations: []*trace.Aggregation{table}})
		if err != nil {
			return nil, err
		}
		if _, err := session.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("bench", probe(i))); err != nil {
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
		if err == nil && len(snapshot.Rows) != sizes[i] {
			err = fmt.Errorf("%d of %d keys were read, and %d hits without room", len(snapshot.Rows), sizes[i],
				snapshot.Overflow)
		}
		return took, err
	})...), nil
}
