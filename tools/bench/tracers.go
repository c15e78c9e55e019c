// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The tracers that goals are about. Each is attached to twins of its own in
// peers/target.c.
const (
	headerAdds       = "bpf/usdt.bpf.h"
	libbpfAdds       = "libbpf's header"
	emptyByLink      = "empty program"
	generatedByLink  = "generated"
	generatedByEvent = "generated, perf event"
	bccAdds          = "bcc"
	bpftraceAdds     = "bpftrace"
	libbpfSends      = "libbpf's header, to the ring buffer"
	generatedSends   = "generated, to the ring buffer"
)

// neverThere is a value that no argument has: a sum is compared with it, and
// then nothing is done.
const neverThere = "0x7eadbeef"

// ringSize has room for eventsAtATime events of twelve arguments, twice over.
const ringSize = 16 << 20

// tracers are attached all together, to the twins of peers/target.c, and stay
// attached until the end of the run.
type tracers struct {
	env    *env
	path   string // of the target
	target *peer  // that passes the sites
	all    []*attachedTracer
}

// attachedTracer is one of them.
type attachedTracer struct {
	name    string
	missing error                // why it is not attached
	drain   func(sent int) error // reads the events that it has sent
}

func newTracers(e *env) (*tracers, error) {
	t := &tracers{env: e}
	var err error
	if t.path, t.target, err = e.startTarget(); err != nil {
		return nil, err
	}
	libbpf, libbpfErr := e.libbpf()
	byLibbpf := func(program string) func(shape, string) error {
		return func(s shape, probe string) error {
			if libbpfErr != nil {
				return libbpfErr
			}
			_, err := libbpf.Ask("attach", fmt.Sprint(program, s.count), t.path, "bench", probe)
			return err
		}
	}
	var errs []error
	own := func(name string, attach func(shape, string) error) *attachedTracer {
		a := t.add(name, attach)
		errs = append(errs, a.missing)
		return a
	}
	// The one that the others are compared with comes first.
	own(headerAdds, t.byHeader("add"))
	t.add(libbpfAdds, byLibbpf("add"))
	own(emptyByLink, t.byHeader(""))
	own(generatedByLink, t.byGenerated(usdt.ModeAuto))
	own(generatedByEvent, t.byGenerated(usdt.ModeSingle))
	t.addByScript(bccAdds, t.startBcc)
	t.addByScript(bpftraceAdds, t.startBpftrace)
	t.add(libbpfSends, byLibbpf("send")).drain = func(sent int) error {
		drained, err := libbpf.Number("drain")
		if err == nil && int(drained) != sent {
			err = fmt.Errorf("%.0f of %d events came", drained, sent)
		}
		return err
	}
	var sender *trace.Session
	own(generatedSends, func(_ shape, probe string) error {
		// As libbpf's it sends the arguments alone and wakes nobody for each.
		if sender == nil {
			var err error
			if sender, err = e.session(trace.SessionOptions{Events: &trace.EventOptions{
				ArgumentsOnly: true, RingSize: 4 * ringSize, ReuseEvents: true}}); err != nil {
				return err
			}
		}
		_, err := sender.Attach(usdt.Target{Path: t.path}, nil, elfnote.Exact("bench", probe))
		return err
	}).drain = func(sent int) error {
		_, came, err := take(context.Background(), sender, sent, false)
		if err != nil {
			err = fmt.Errorf("%d of %d events came: %w", came, sent, err)
		}
		return err
	}
	return t, errors.Join(errs...)
}

// add attaches a tracer to its twin of each shape.
func (t *tracers) add(name string, attach func(s shape, probe string) error) *attachedTracer {
	a := &attachedTracer{name: name}
	for _, s := range shapes {
		if a.missing == nil {
			a.missing = attach(s, s.probe(len(t.all)))
		}
	}
	t.all = append(t.all, a)
	return a
}

// addByScript attaches a tracer that is started with all its probes.
func (t *tracers) addByScript(name string, start func(map[string]shape) error) {
	probes := make(map[string]shape)
	a := t.add(name, func(s shape, probe string) error {
		probes[probe] = s
		return nil
	})
	a.missing = start(probes)
}

// byHeader attaches programs that are compiled with bpf/usdt.bpf.h, named by
// what they do.
func (t *tracers) byHeader(name string) func(shape, string) error {
	load := sync.OnceValues(t.env.tracer)
	return func(s shape, probe string) error {
		tr, err := load()
		if err != nil {
			return err
		}
		program := "empty"
		if name != "" {
			program = fmt.Sprint(name, s.count)
		}
		_, err = tr.Attach(tr.programs[program], usdt.Target{Path: t.path}, nil,
			elfnote.Exact("bench", probe))
		return err
	}
}

// byGenerated attaches programs of package trace that look at all arguments
// and find that there is nothing to do.
func (t *tracers) byGenerated(mode usdt.Mode) func(shape, string) error {
	return func(s shape, probe string) error {
		var terms []string
		for i := range s.count {
			terms = append(terms, fmt.Sprintf("arg%d == %s", i, neverThere))
		}
		session, err := t.env.session(trace.SessionOptions{
			Mode: mode, Filter: strings.Join(terms, " || "),
			Events: &trace.EventOptions{RingSize: 64 << 10},
		})
		if err != nil {
			return err
		}
		_, err = session.Attach(usdt.Target{Path: t.path}, nil, elfnote.Exact("bench", probe))
		return err
	}
}

func (e *env) session(opts trace.SessionOptions) (*trace.Session, error) {
	session, err := trace.New(&opts)
	if err == nil {
		e.cleanup(func() { session.Close() })
	}
	return session, err
}

// ready is what peers print that need a while to attach.
const ready = "ready"

func (t *tracers) startBcc(probes map[string]shape) error {
	python, _ := bccPython()
	if python == "" {
		return errors.New("not installed")
	}
	words := []string{"peers/add_by_bcc.py", t.path}
	for probe, s := range probes {
		words = append(words, fmt.Sprintf("%s:%d", probe, s.count))
	}
	p, err := t.env.untilClosed(startCommand(exec.Command(python, words...)))
	if err != nil {
		return err
	}
	if line, err := p.Line(); err != nil || line != ready {
		return &unableError{"it cannot compile its program (the system's wants the kernel's headers in /lib/modules)"}
	}
	return nil
}

func (t *tracers) startBpftrace(probes map[string]shape) error {
	var script strings.Builder
	fmt.Fprintf(&script, `BEGIN { printf("%s\n"); }`, ready)
	for probe, s := range probes {
		var terms []string
		for i := range s.count {
			terms = append(terms, fmt.Sprint("arg", i))
		}
		fmt.Fprintf(&script, " usdt:%s:bench:%s /%s == %s/ { @ = 1; }",
			t.path, probe, strings.Join(terms, " + "), neverThere)
	}
	return t.env.startBpftrace(script.String())
}

// startBpftrace returns when a script that begins with printing "ready" has
// attached.
func (e *env) startBpftrace(script string) error {
	p, err := startCommand(exec.Command("bpftrace", "-e", script))
	if err != nil {
		return err
	}
	e.cleanup(func() { p.Interrupt() })
	for {
		line, err := p.Line()
		if err != nil {
			return fmt.Errorf("it cannot attach: %w", err)
		}
		if line == ready {
			return nil
		}
	}
}
