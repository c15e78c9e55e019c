// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/usdt"
)

const (
	byRawLink = "raw link"
	byLibbpf  = "libbpf"
)

// attachedSpecs bounds how many specs the sites of a synthetic file share.
const attachedSpecs = 100

// specsFor returns how many specs the sites of a probe have: more than most
// real ones, which have one.
func specsFor(sites int) int { return max(1, min(attachedSpecs, sites/10)) }

func attachRows() []row {
	attach := func(name, title string, file synth.File, times float64) row {
		file.Specs = specsFor(file.Sites)
		r := row{
			name:    "attach/" + name,
			title:   title,
			rounds:  25,
			prepare: func(e *env) ([]compare.Contestant, error) { return e.attachers(file) },
		}
		if times > 0 {
			r.goals = []compare.Goal{{Of: ours, Than: byRawLink, Times: times}}
		}
		return r
	}
	return []row{
		attach("1", "attach 1 site", synth.File{Sites: 1}, 4),
		attach("100", "attach 100 sites", synth.File{Sites: 100}, 2.5),
		attach("1000", "attach 1,000 sites", synth.File{Sites: 1000}, 1.8),
		attach("10000", "attach 10,000 sites", synth.File{Sites: 10_000}, 1.4),
		attach("1000-apart", "attach 1,000 sites that are 32 kB apart: one read each",
			synth.File{Sites: 1000, Distance: 32 << 10}, 0),
	}
}

// attachers returns who attaches a program to all sites of the first probe of a
// file.
func (e *env) attachers(file synth.File) ([]compare.Contestant, error) {
	path, err := e.synthetic(file)
	if err != nil {
		return nil, err
	}
	a, raw, err := e.prepare(path)
	if err != nil {
		return nil, err
	}
	return []compare.Contestant{
		{Name: ours, Once: true, Measure: a.ours.attaching(a.attaching(path))},
		{Name: byRawLink, Once: true, Measure: a.raw.attaching(raw.attaching(a.programs["add3"]))},
		e.attachByLibbpf(path, a.other, len(raw.offsets)),
	}, nil
}

// prepare returns what attaches to all sites of a file, and the sites as the
// kernel wants them.
func (e *env) prepare(path string) (*attacher, *rawSites, error) {
	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, nil, err
	}
	raw, err := prepareRaw(path)
	return a, raw, err
}

// Attaching by perf events is fast, but it takes a tenth of a second for each
// to detach.
const (
	maxPerfSites  = 100
	manyPerfSites = 10
)

// attachByLibbpf attaches to the first probe of a file, primed by that of
// another one.
func (e *env) attachByLibbpf(path, other string, sites int) compare.Contestant {
	p, mode, err := e.libbpf()
	if err != nil {
		return missing(byLibbpf, err)
	}
	attach := func(path string) (float64, error) {
		return p.Number("attach", "add3", path, synth.Provider, synth.Probe(0))
	}
	primed := &primer{other: func() (func() error, error) {
		_, err := attach(other)
		return nil, err // it is closed with the rest
	}}
	c := compare.Contestant{Name: byLibbpf, Once: true, Measure: func(int) (spent float64, err error) {
		_, _, err = primed.measure(func() (func() error, error) {
			// The time that libbpf takes is without that of asking it.
			spent, err = attach(path)
			return func() error {
				_, err := p.Ask("close")
				return err
			}, err
		})
		return spent, err
	}}
	if mode == modePerf {
		// A few rounds, each of which takes a second or more to detach.
		c.MaxRounds = 3
		if sites > manyPerfSites {
			c.MaxRounds = 1
			if sites > maxPerfSites || e.scale != full {
				c.Missing = &unableError{fmt.Sprintf("would take minutes to detach %d perf events",
					sites)}
			}
		}
	}
	return c
}
