// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"sync"
	"time"

	"github.com/gousdt/gousdt/bench/internal/synth"
	"github.com/gousdt/gousdt/usdt"
)

// attachFunc attaches something and returns how to undo it.
type attachFunc func() (undo func() error, err error)

// A primer measures how long it takes to attach and to detach, just after
// something else was attached in the same way. The first attachment after a
// while waits for 8 ms, whoever makes it, and finds all caches cold: it would
// hide all else.
type primer struct {
	other attachFunc // its undo may be nil
}

// prime attaches the other twice, and returns how to undo that. The first time
// mostly waits, and while the processor rests its caches become cold again. The
// second time warms them.
func (p *primer) prime() (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		errs := make([]error, len(undos))
		var wait sync.WaitGroup
		for i, undo := range undos {
			wait.Go(func() { errs[i] = undo() })
		}
		wait.Wait()
		return errors.Join(errs...)
	}
	for range 2 {
		undoOther, err := p.other()
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		if undoOther != nil {
			undos = append(undos, undoOther)
		}
	}
	return undo, nil
}

// measure takes the times of attach and of what it returns.
func (p *primer) measure(attach attachFunc) (attached, detached float64, err error) {
	undoOther, err := p.prime()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	undo, err := attach()
	attached = since(start)

	// It would take as long to detach the other before or after.
	other := make(chan error, 1)
	go func() { other <- undoOther() }()
	if err == nil {
		start = time.Now()
		err = undo()
		detached = since(start)
	}
	if otherErr := <-other; err == nil {
		err = otherErr
	}
	return attached, detached, err
}

// attaching makes a contestant's Measure of the first of the two times,
// detaching of the second.
func (p *primer) attaching(attach attachFunc) func(int) (float64, error) {
	return func(int) (float64, error) {
		attached, _, err := p.measure(attach)
		return attached, err
	}
}

func (p *primer) detaching(attach attachFunc) func(int) (float64, error) {
	return func(int) (float64, error) {
		_, detached, err := p.measure(attach)
		return detached, err
	}
}

// attacher is a tracer with primers for its own way to attach and for raw
// links.
type attacher struct {
	*tracer
	ours, raw *primer
	other     string // the file that primers attach to, all probes of it
}

func (e *env) attacher(opts usdt.ManagerOptions) (*attacher, error) {
	t, err := e.tracer(ownObject, opts, 0)
	if err != nil {
		return nil, err
	}
	if t.Mode() != usdt.ModeMulti {
		return nil, &notHereError{reason: "the kernel has no uprobe_multi links (Linux 6.6)"}
	}
	other, err := e.synthetic(synth.File{Sites: 10})
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(other)
	if err != nil {
		return nil, err
	}
	return &attacher{
		tracer: t,
		ours:   &primer{other: t.attaching(other)},
		raw:    &primer{other: raw.attaching(t.programs["add3"])},
		other:  other,
	}, nil
}
