// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// sizes returns powers of ten. A smoke run stops early.
func (e *env) sizes(to int) []int {
	var all []int
	for n := 1; n <= e.pick(to, to, 10); n *= 10 {
		all = append(all, n)
	}
	return all
}

func growthTables() []table {
	return []table{
		{
			name:  "growth/sites",
			title: "sites of one probe, sharing 100 specs or fewer",
			head: []string{"sites", "list", "select", "attach", "raw link", "close",
				"close raw link"},
			note:    "To select is to list, to check that each site holds a nop, and to parse the arguments; to attach includes it.",
			measure: (*env).growSites,
		},
		{
			name:    "growth/specs",
			title:   "different specs, of 10,000 sites of one probe",
			head:    []string{"specs", "attach", "close", "bytes of the spec map"},
			measure: (*env).growSpecs,
		},
		{
			name:  "growth/probes",
			title: "probes of one site each, attached by one call or one by one",
			head: []string{"probes", "attach, one link", "close", "attach, a link each",
				"close together"},
			measure: (*env).growProbes,
		},
		{
			name:    "growth/files",
			title:   "files with ten probes of ten sites, each attached by one link",
			head:    []string{"files", "attach", "raw links", "close together", "close raw links"},
			measure: (*env).growFiles,
		},
		{
			name:    "growth/processes",
			title:   "processes watched: processor time of one pass, nothing having changed",
			head:    []string{"processes", "pass"},
			measure: (*env).growProcesses,
		},
	}
}

// medians measures several costs at once, some times, and returns the median of
// each in words.
func (e *env) medians(measure func() ([]float64, error)) ([]string, error) {
	var columns [][]float64
	for range e.pick(7, 3, 1) {
		costs, err := measure()
		if err != nil {
			return nil, err
		}
		if columns == nil {
			columns = make([][]float64, len(costs))
		}
		for i, cost := range costs {
			columns[i] = append(columns[i], cost)
		}
	}
	var words []string
	for _, column := range columns {
		words = append(words, compare.Nanoseconds.Format(compare.Summarize(column).Median))
	}
	return words, nil
}

func (e *env) growSites() ([][]string, error) {
	var lines [][]string
	for _, sites := range e.sizes(100_000) {
		path, err := e.synthetic(synth.File{Sites: sites, Specs: specsFor(sites)})
		if err != nil {
			return nil, err
		}
		a, raw, err := e.prepare(path)
		if err != nil {
			return nil, err
		}
		words, err := e.medians(func() ([]float64, error) {
			listed, err := timed(func() error { return listByElfnote(path) })
			if err != nil {
				return nil, err
			}
			selected, err := timed(func() error {
				selection, err := usdt.Select(usdt.Target{Path: path}, nil)
				if err != nil {
					return err
				}
				return selection.Close()
			})
			if err != nil {
				return nil, err
			}
			attached, detached, err := a.ours.measure(a.attaching(path))
			if err != nil {
				return nil, err
			}
			rawAttached, rawDetached, err := a.raw.measure(raw.attaching(a.programs["add3"]))
			return []float64{listed, selected, attached, rawAttached, detached, rawDetached}, err
		})
		if err != nil {
			return nil, err
		}
		lines = append(lines, append([]string{fmt.Sprint(sites)}, words...))
	}
	return lines, nil
}

// each returns what attaches to several selections of probes, by a link each,
// and closes them together.
func (a *attacher) each(links int, attach func(i int) (*usdt.Link, error)) attachFunc {
	return func() (func() error, error) {
		var all []*usdt.Link
		for i := range links {
			lnk, err := attach(i)
			if err != nil {
				return nil, errors.Join(err, usdt.CloseAll(all...))
			}
			all = append(all, lnk)
		}
		return func() error { return usdt.CloseAll(all...) }, nil
	}
}

func (e *env) growSpecs() ([][]string, error) {
	const sites = 10_000
	var lines [][]string
	for _, specs := range e.sizes(sites) {
		path, err := e.synthetic(synth.File{Sites: e.pick(sites, sites, 100), Specs: specs})
		if err != nil {
			return nil, err
		}
		a, err := e.attacher(usdt.ManagerOptions{MaxSpecs: uint32(specs)})
		if err != nil {
			return nil, err
		}
		words, err := e.medians(func() ([]float64, error) {
			attached, detached, err := a.ours.measure(a.attaching(path))
			return []float64{attached, detached}, err
		})
		if err != nil {
			return nil, err
		}
		bytes, err := mapBytes(a.memory[specMap])
		if err != nil {
			return nil, err
		}
		lines = append(lines,
			append(append([]string{fmt.Sprint(specs)}, words...), compare.Bytes.Format(bytes)))
	}
	return lines, nil
}

func (e *env) growProbes() ([][]string, error) {
	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for _, probes := range e.sizes(1000) {
		path, err := e.synthetic(synth.File{Sites: probes, Probes: probes})
		if err != nil {
			return nil, err
		}
		words, err := e.medians(func() ([]float64, error) {
			attached, detached, err := a.ours.measure(a.attaching(path))
			if err != nil {
				return nil, err
			}
			attachedEach, detachedEach, err := a.ours.measure(a.each(probes, func(i int) (*usdt.Link, error) {
				return a.Attach(a.programs["add3"], usdt.Target{Path: path}, nil,
					elfnote.Exact(synth.Provider, synth.Probe(i)))
			}))
			return []float64{attached, detached, attachedEach, detachedEach}, err
		})
		if err != nil {
			return nil, err
		}
		lines = append(lines, append([]string{fmt.Sprint(probes)}, words...))
	}
	return lines, nil
}

func (e *env) growFiles() ([][]string, error) {
	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	var lines [][]string
	var paths []string
	var sites []*rawSites
	for _, files := range e.sizes(1000) {
		for len(paths) < files {
			path, err := e.synthetic(synth.File{Sites: 100, Probes: 10, Specs: 10})
			if err != nil {
				return nil, err
			}
			raw, err := prepareRaw(path)
			if err != nil {
				return nil, err
			}
			paths, sites = append(paths, path), append(sites, raw)
		}
		words, err := e.medians(func() ([]float64, error) {
			attached, detached, err := a.ours.measure(a.each(files, func(i int) (*usdt.Link, error) {
				return a.Attach(a.programs["add3"], usdt.Target{Path: paths[i]}, nil)
			}))
			if err != nil {
				return nil, err
			}
			rawAttached, rawDetached, err := a.raw.measure(rawLinks(a.programs["add3"],
				sites[:files]))
			return []float64{attached, rawAttached, detached, rawDetached}, err
		})
		if err != nil {
			return nil, err
		}
		lines = append(lines, append([]string{fmt.Sprint(files)}, words...))
	}
	return lines, nil
}

func (e *env) growProcesses() ([][]string, error) {
	var lines [][]string
	there := 0
	for _, processes := range []int{e.pick(100, 100, 1), e.pick(500, 500, 2),
		e.pick(watchedProcesses, watchedProcesses, 3)} {
		if err := e.crowd(processes - there); err != nil {
			return nil, err
		}
		there = processes
		spent, err := passTime(e.pick(passesForAll, passesForAll, 2))
		if err != nil {
			return nil, err
		}
		lines = append(lines, []string{fmt.Sprint(processes), compare.Nanoseconds.Format(spent)})
	}
	return lines, nil
}
