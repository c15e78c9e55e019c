// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

const (
	byNewFile   = "Session.Watch, a file that nobody has run"
	byKnownFile = "Session.Watch, a file that another process runs"
	byNobody    = "the process alone, until it has passed a probe"

	// execQuiet is how long it takes until the last file has been detached,
	// which lingers for a second, and the kernel has forgotten that.
	execQuiet = 1500 * time.Millisecond

	// execPatience is how long a watch may take to see a process.
	execPatience = 10 * time.Second
)

func execRows() []row {
	return []row{{
		name:    "watch/exec",
		title:   "from starting a process that passes a probe again and again to the first hit that is seen",
		rounds:  20,
		prepare: func(e *env) ([]compare.Contestant, error) { return e.execWatchers() },
	}, {
		name:    "watch/exec-quiet",
		title:   "the same, nothing having been attached or detached for a while, and what the kernel takes of that",
		rounds:  10,
		prepare: func(e *env) ([]compare.Contestant, error) { return e.quietExec() },
	}}
}

// execWatch starts processes and waits until a watch has seen them.
type execWatch struct {
	*env
	built string // the program
	hits  chan *trace.Event
}

// execProbe is what the processes pass.
const execProbe = "registers3_0"

func (e *env) execWatch() (*execWatch, error) {
	if runtime.GOARCH != "amd64" {
		return nil, &unableError{"the sites in peers/target.c are written for x86-64"}
	}
	built, err := peer.Build("target")
	if err != nil {
		return nil, &notHereError{reason: err.Error()}
	}
	session, err := trace.New(nil)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { session.Close() })
	watch, err := session.Watch(nil, elfnote.Exact("bench", execProbe))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cleanup(cancel)
	go watch.Run(ctx, watchInterval)
	hits := make(chan *trace.Event, 1)
	go func() {
		for event, err := range session.Events(ctx) {
			if err == nil {
				select {
				case hits <- event:
				default: // a later one of a process that has been seen
				}
			}
		}
	}()
	return &execWatch{e, built, hits}, nil
}

// begin starts a process and returns when it was seen.
func (w *execWatch) begin(path string, isWatched bool) (float64, error) {
	start := time.Now()
	target, err := peer.StartCommand(exec.Command(path))
	if err != nil {
		return 0, err
	}
	defer target.Close()
	for {
		if _, err := target.Ask("run", execProbe, 1); err != nil {
			return 0, err
		}
		if !isWatched {
			return since(start), nil
		}
		select {
		case hit := <-w.hits:
			if hit.PID == target.PID() {
				return float64(hit.Time.Sub(start).Nanoseconds()), nil
			}
		default:
		}
		if time.Since(start) > execPatience {
			return 0, errors.New("no hit was seen")
		}
	}
}

// beginNew is begin with a file that nobody has run.
func (w *execWatch) beginNew() (float64, error) {
	path, err := w.copyOf(w.built)
	if err != nil {
		return 0, err
	}
	return w.begin(path, true)
}

func (e *env) execWatchers() ([]compare.Contestant, error) {
	w, err := e.execWatch()
	if err != nil {
		return nil, err
	}
	known, err := e.copyOf(w.built)
	if err != nil {
		return nil, err
	}
	other, err := e.untilClosed(peer.StartCommand(exec.Command(known)))
	if err != nil {
		return nil, err
	}
	for first := time.Now(); len(w.hits) == 0; time.Sleep(time.Millisecond) {
		if _, err := other.Ask("run", execProbe, 1); err != nil {
			return nil, err
		}
		if time.Since(first) > execPatience {
			return nil, errors.New("the watch sees no process")
		}
	}
	return []compare.Contestant{
		{Name: byNewFile, Once: true, Measure: func(int) (float64, error) { return w.beginNew() }},
		{Name: byKnownFile, Once: true,
			Measure: func(int) (float64, error) { return w.begin(known, true) }},
		{Name: byNobody, Once: true,
			Measure: func(int) (float64, error) { return w.begin(w.built, false) }},
	}, nil
}

func (e *env) quietExec() ([]compare.Contestant, error) {
	w, err := e.execWatch()
	if err != nil {
		return nil, err
	}
	a, err := e.attacher(usdt.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	raw, err := prepareRaw(a.other)
	if err != nil {
		return nil, err
	}
	return []compare.Contestant{
		{Name: byNewFile, Once: true, Measure: func(int) (float64, error) {
			time.Sleep(execQuiet)
			return w.beginNew()
		}},
		{Name: byRawLink, Once: true, Measure: func(int) (float64, error) {
			time.Sleep(execQuiet)
			start := time.Now()
			fd, err := raw.linkMulti(a.programs["add3"])
			spent := since(start)
			return spent, errors.Join(err, closeTogether([]int{fd}, 1))
		}},
		{Name: byNobody, Once: true, Measure: func(int) (float64, error) {
			time.Sleep(execQuiet)
			return w.begin(w.built, false)
		}},
	}, nil
}
