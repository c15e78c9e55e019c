// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/elfnote"
)

const (
	byDebugELF = "debug/elf"
	byPread    = "preads in C"
	byLibelf   = "libelf"
)

// manySites is the largest file that is listed.
const manySites = 100_000

func listRows() []row {
	real := func(name string, find func() (string, error)) row {
		return row{
			name:   "list/" + name,
			title:  "list the probes of " + name + ", one open to close, in process",
			rounds: 60,
			sample: 4 * time.Millisecond,
			goals: []compare.Goal{
				{Of: ours, Than: byDebugELF, Times: 1.1,
					Note: "debug/elf opens, and reads the notes by one pread, but does not look into them"},
				{Of: ours, Than: byPread, Times: 2.5, Note: "if there is a way",
					Floor: &compare.Floor{Name: withoutStrings, Of: []string{withoutStrings}}},
			},
			prepare: func(e *env) ([]compare.Contestant, error) {
				path, err := find()
				if err != nil {
					return nil, err
				}
				return append(e.listers(path), stringlessLister(path)), nil
			},
		}
	}
	return []row{
		real("postgres", postgres),
		real("libjvm", libjvm),
		{
			name:   "list/100000",
			title:  fmt.Sprintf("list a file of %d sites", manySites),
			rounds: 30,
			sample: 10 * time.Millisecond,
			goals:  []compare.Goal{{Of: ours, Than: byLibelf, Times: 1.5}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.syntheticListers(manySites)
			},
		},
		{
			name: "list/100000/memory",
			title: fmt.Sprintf("list a file of %d sites: bytes allocated beyond the note section",
				manySites),
			unit:   compare.Bytes,
			rounds: 5,
			goals:  []compare.Goal{{Of: ours, More: 1 << 20}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				path, err := e.synthetic(synth.File{Sites: manySites, Probes: 1000, Specs: 200})
				if err != nil {
					return nil, err
				}
				return []compare.Contestant{
					{Name: ours, Once: true, Measure: allocatedBeyondNotes(path, listByElfnote)},
					{Name: byDebugELF, Once: true,
						Measure: allocatedBeyondNotes(path, listByDebugELF)},
				}, nil
			},
		},
	}
}

func (e *env) syntheticListers(sites int) ([]compare.Contestant, error) {
	path, err := e.synthetic(synth.File{Sites: sites, Probes: max(1, sites/100), Specs: 200})
	if err != nil {
		return nil, err
	}
	return e.listers(path), nil
}

func (e *env) listers(path string) []compare.Contestant {
	contestants := []compare.Contestant{
		{Name: ours, Measure: repeated(func() error { return listByElfnote(path) })},
		{Name: byDebugELF, Measure: repeated(func() error { return listByDebugELF(path) })},
	}
	for _, c := range []struct{ name, program string }{{byLibelf, "libelf"}, {byPread, "floor"}} {
		p, err := e.start(c.program)
		if err != nil {
			contestants = append(contestants, missing(c.name, err))
			continue
		}
		contestants = append(contestants,
			compare.Contestant{Name: c.name, Measure: ask(p, "list", path)})
	}
	return contestants
}

func listByElfnote(path string) error {
	f, err := elfnote.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sites := 0
	for _, err := range f.Sites() {
		if err != nil {
			return err
		}
		sites++
	}
	if sites == 0 {
		return errors.New("no sites")
	}
	return nil
}

// listByDebugELF does not even look at what it has read.
func listByDebugELF(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	section := f.Section(".note.stapsdt")
	if section == nil {
		return errors.New("no notes")
	}
	_, err = section.ReadAt(make([]byte, section.FileSize), 0)
	return err
}

// allocatedBeyondNotes returns a Measure of what some work allocates, without
// the notes themselves.
func allocatedBeyondNotes(path string, work func(string) error) func(int) (float64, error) {
	return func(int) (float64, error) {
		notes, err := noteBytes(path)
		if err != nil {
			return 0, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = work(path)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) - float64(notes), err
	}
}

// noteBytes returns the size of the note section.
func noteBytes(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	section := f.Section(".note.stapsdt")
	if section == nil {
		return 0, fmt.Errorf("%s: no notes", path)
	}
	return section.FileSize, nil
}
