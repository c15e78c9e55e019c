// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// The support maps, as bpf/usdt.bpf.h names them.
const (
	specMap    = "__bpf_usdt_specs"
	addressMap = "__bpf_usdt_ip_to_spec_id"
)

func memoryRows() []row {
	return []row{{
		name:   "memory/maps",
		title:  "memory of the support maps of one collection, of the default size",
		unit:   compare.Bytes,
		rounds: 1,
		prepare: func(e *env) ([]compare.Contestant, error) {
			t, err := e.tracer(ownObject, usdt.ManagerOptions{}, 0)
			if err != nil {
				return nil, err
			}
			contestants := []compare.Contestant{{Name: ours, Once: true, Measure: func(int) (float64, error) {
				specs, err := mapBytes(t.memory[specMap])
				addresses, addressErr := mapBytes(t.memory[addressMap])
				return specs + addresses, errors.Join(err, addressErr)
			}}}
			p, _, err := e.libbpf()
			if err != nil {
				return append(contestants, missing(byLibbpf, err)), nil
			}
			byPeer := func(int) (float64, error) { return p.Number("memory") }
			return append(contestants,
				compare.Contestant{Name: byLibbpf, Once: true, Measure: byPeer}), nil
		},
	}}
}

func memoryTables() []table {
	return []table{{
		name:  "memory/files",
		title: "memory that a Go program holds",
		head: []string{"file", "sites", "bytes of notes", "opened", "and all sites read",
			"and listed by probe", "a link to all sites"},
		note:    "An opened file holds its notes once they have been asked for. A link does not hold the file, but its sites, and through their strings its notes.",
		measure: (*env).holdFiles,
	}}
}

// mapBytes returns what the kernel charges for a map.
func mapBytes(m *ebpf.Map) (float64, error) {
	info, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	if err != nil {
		return 0, err
	}
	defer info.Close()
	lines := bufio.NewScanner(info)
	for lines.Scan() {
		var bytes float64
		if _, err := fmt.Sscanf(lines.Text(), "memlock: %f", &bytes); err == nil {
			return bytes, nil
		}
	}
	return 0, errors.New("the kernel does not tell how large a map is")
}

func (e *env) holdFiles() ([][]string, error) {
	t, err := e.tracer(ownObject, usdt.ManagerOptions{}, 0)
	if err != nil {
		return nil, err
	}
	large, err := e.synthetic(synth.File{Sites: e.pick(manySites, manySites, 100),
		Probes: 100, Specs: attachedSpecs})
	if err != nil {
		return nil, err
	}
	paths := map[string]string{"synthetic": large}
	names := []string{"synthetic"}
	finders := map[string]func() (string, error){"postgres": postgres, "libjvm": libjvm}
	for name, find := range finders {
		if path, err := find(); err == nil {
			paths[name] = path
			names = append(names, name)
		}
	}
	var lines [][]string
	for _, name := range names {
		line, err := e.holdFile(t, paths[name])
		if err != nil {
			return nil, err
		}
		lines = append(lines, append([]string{name}, line...))
	}
	return lines, nil
}

func (e *env) holdFile(t *tracer, path string) ([]string, error) {
	var (
		file    *elfnote.File
		listing *elfnote.Listing
		lnk     *usdt.Link
		sites   int
		notes   uint64
	)
	opened, err := heldBy(func() (err error) {
		file, err = elfnote.Open(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	read, err := heldBy(func() error {
		for _, err := range file.Sites() {
			if err != nil {
				return err
			}
			sites++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	listed, err := heldBy(func() (err error) {
		listing, err = file.Probes()
		return err
	})
	if err != nil {
		return nil, err
	}
	linked, err := heldBy(func() (err error) {
		lnk, err = t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	runtime.KeepAlive(listing)
	if notes, err = noteBytes(path); err != nil {
		return nil, err
	}
	format := compare.Bytes.Format
	return []string{
		fmt.Sprint(sites), format(float64(notes)),
		format(opened), format(opened + read), format(opened + read + listed), format(linked),
	}, lnk.Close()
}

// heldBy returns how much more memory is in use after something was done.
func heldBy(work func() error) (float64, error) {
	before := heap()
	err := work()
	return heap() - before, err
}

func heap() float64 {
	// The first one may leave what a finalizer or a pool still holds.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
