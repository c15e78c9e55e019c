// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

func jvmRows() []row {
	return []row{
		{
			name:   "jvm/attach",
			title:  "attach one program to all probes of libjvm",
			rounds: 20,
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.jvm((*primer).attaching)
			},
		},
		{
			name:   "jvm/close",
			title:  "close that: one link",
			rounds: 20,
			goals: []compare.Goal{{Text: "close one program attached to all probes of libjvm",
				Of: ours, Than: byRawLink, Times: 1.5}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.jvm((*primer).detaching)
			},
		},
		{
			name:   "jvm/specs",
			title:  "spec IDs for all probes of libjvm (the default map has 256)",
			unit:   compare.Count,
			rounds: 1,
			goals:  []compare.Goal{{Of: ours, More: 130}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				path, err := libjvm()
				if err != nil {
					return nil, err
				}
				t, err := e.tracer(ownObject, usdt.ManagerOptions{}, 0)
				if err != nil {
					return nil, err
				}
				return []compare.Contestant{{Name: ours, Once: true, Measure: func(int) (float64, error) {
					lnk, err := t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil)
					if err != nil {
						return 0, err
					}
					used, _ := t.SpecsInUse()
					return float64(used), lnk.Close()
				}}}, nil
			},
		},
	}
}

// jvm returns who attaches to all probes of libjvm by one link. measure is a
// method of a primer.
func (e *env) jvm(
	measure func(*primer, attachFunc) func(int) (float64, error),
) ([]compare.Contestant, error) {
	path, err := libjvm()
	if err != nil {
		return nil, err
	}
	a, raw, err := e.prepare(path)
	if err != nil {
		return nil, err
	}
	return []compare.Contestant{
		{Name: ours, Once: true, Measure: measure(a.ours, a.attaching(path))},
		{Name: byRawLink, Once: true, Measure: measure(a.raw, raw.attaching(a.programs["add3"]))},
	}, nil
}

// jvmTables have libbpf attach to one probe after the other, as it can, until
// one fails.
func jvmTables() []table {
	return []table{{
		name:    "jvm/libbpf",
		title:   "all probes of libjvm, as far as each comes",
		head:    []string{"", "probes attached", "attached by", "spec IDs", "attach", "close"},
		measure: (*env).attachJVM,
	}}
}

func (e *env) attachJVM() ([][]string, error) {
	path, err := libjvm()
	if err != nil {
		return nil, err
	}
	f, err := elfnote.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	listing, err := f.Probes()
	if err != nil {
		return nil, err
	}
	all := len(listing.Probes)

	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	var used int
	attached, closed, err := a.ours.measure(func() (func() error, error) {
		others, _ := a.SpecsInUse()
		undo, err := a.attaching(path)()
		used, _ = a.SpecsInUse()
		used -= others
		return undo, err
	})
	if err != nil {
		return nil, err
	}
	format := compare.Nanoseconds.Format
	result := [][]string{{ours, fmt.Sprintf("%d of %d", all, all), "1 link", fmt.Sprint(used),
		format(attached), format(closed)}}

	p, mode, err := e.libbpf()
	if err != nil {
		return append(result, []string{byLibbpf, "not run: " + err.Error(), "", "", "", ""}), nil
	}
	// A full run waits for half a minute for libbpf to detach.
	probes := listing.Probes[:e.pick(all, min(all, 20), min(all, 2))]
	var sum float64
	sites, done := 0, 0
	for _, probe := range probes {
		spent, err := p.Number("attach", "add3", path, probe.Provider, probe.Name)
		if err != nil {
			break
		}
		sum += spent
		sites += len(probe.Sites)
		done++
	}
	by := fmt.Sprintf("%d links", done)
	if mode == modePerf {
		by = fmt.Sprintf("%d perf events", sites)
	}
	count := fmt.Sprintf("%d, then it fails", done)
	if done == len(probes) {
		count = fmt.Sprintf("%d of %d", done, all)
	}
	closed, err = p.Number("close")
	if err != nil {
		return nil, err
	}
	return append(result, []string{byLibbpf, count, by, "", format(sum), format(closed)}), nil
}
