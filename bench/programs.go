// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// tracer is a Manager with the programs of peers/hit.bpf.c.
type tracer struct {
	*usdt.Manager
	programs map[string]*ebpf.Program
	events   *ebpf.Map
	memory   map[string]*ebpf.Map // the support maps
}

// The programs of peers/hit.bpf.c, by the header that they are compiled with.
const (
	ownObject    = "gousdt.bpf.o"
	libbpfObject = "libbpf.bpf.o"
)

// tracer loads the programs of an object. ring is the size of the ring buffer,
// 0 if nothing will be sent.
func (e *env) tracer(name string, opts usdt.ManagerOptions, ring uint32) (*tracer, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	object, err := peer.Build(name)
	if err != nil {
		return nil, &notHereError{reason: err.Error()}
	}
	spec, err := usdt.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = max(ring, 64<<10)
	manager, err := usdt.NewManager(spec, &opts)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { manager.Close() })
	options := manager.CollectionOptions()
	collection, err := ebpf.NewCollectionWithOptions(spec, *options)
	if err != nil {
		return nil, err
	}
	e.cleanup(collection.Close)
	return &tracer{
		Manager:  manager,
		programs: collection.Programs,
		events:   collection.Maps["events"],
		memory:   options.MapReplacements,
	}, nil
}

// attaching returns what attaches one program to the probes that match.
func (t *tracer) attaching(path string, patterns ...elfnote.Pattern) attachFunc {
	return func() (func() error, error) {
		lnk, err := t.Attach(t.programs["add3"], usdt.Target{Path: path}, nil, patterns...)
		if err != nil {
			return nil, err
		}
		return lnk.Close, nil
	}
}

// How libbpf attaches, which depends on its version.
const (
	modePerf  = "perf"
	modeMulti = "multi"
)

// libbpf starts libbpf with its programs loaded, and tells how it attaches.
func (e *env) libbpf() (p *peer.Process, mode string, err error) {
	object, err := peer.Build(libbpfObject)
	if err != nil {
		return nil, "", err
	}
	if p, err = e.start("libbpf"); err != nil {
		return nil, "", err
	}
	answer, err := p.Ask("load", object)
	if err != nil {
		return nil, "", err
	}
	return p, answer[0], nil
}
