// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A tracerID is who is attached to a site. Each has a twin of its own in
// peers/target.c.
type tracerID int

const (
	emptyByEvent tracerID = iota
	emptyByLink
	libbpfAdds
	headerAdds
	specialisedHeader
	specialisedOnes
	specialisedLibbpf
	generatedByLink
	generatedByEvent
	bccAdds
	bpftraceAdds
	libbpfSends
	generatedSends
	emptySends
	tracerCount
)

// String says what the tracer does at a hit.
func (id tracerID) String() string {
	return [...]string{
		emptyByEvent:      "empty program, perf event",
		emptyByLink:       "empty program, uprobe_multi link",
		libbpfAdds:        "libbpf's header",
		headerAdds:        "bpf/usdt.bpf.h, attached as libbpf does it",
		specialisedHeader: "bpf/usdt.bpf.h, specialised, uprobe_multi link",
		specialisedOnes:   "bpf_usdt_arg of bpf/usdt.bpf.h, specialised, uprobe_multi link",
		specialisedLibbpf: "libbpf's header, specialised, uprobe_multi link",
		generatedByLink:   "generated, uprobe_multi link",
		generatedByEvent:  "generated, perf event",
		bccAdds:           "bcc",
		bpftraceAdds:      "bpftrace",
		libbpfSends:       "libbpf's header, to the ring buffer",
		generatedSends:    "generated, to the ring buffer",
		emptySends:        "empty event, to the ring buffer",
	}[id]
}

// bpftraceArguments is how many arguments bpftrace can name on x86-64.
const bpftraceArguments = 6

// neverThere is a value that no argument has, so that a sum can be looked at
// and nothing be done.
const neverThere = "0x7eadbeef"

// ringSize has room for maxHits events of twelve arguments, twice over.
const ringSize = 16 << 20

// tracers are attached all at a time, to the twins of peers/target.c, and stay
// so until the end of the run.
type tracers struct {
	env     *env
	shapes  []shape // that they are attached to
	path    string  // of the target
	target  *peer   // that passes the sites
	missing [tracerCount]error
	drain   [tracerCount]func(sent int) error // for those that send events

	asLibbpf usdt.Mode // how libbpf attaches
}

func newTracers(e *env) (*tracers, error) {
	t := &tracers{env: e, shapes: shapes, asLibbpf: usdt.ModeSingle}
	if e.scale == smoke {
		t.shapes = slices.DeleteFunc(slices.Clone(shapes), func(s shape) bool { return !s.smoke })
	}
	var err error
	if t.path, t.target, err = e.startTarget(); err != nil {
		return nil, err
	}
	// libbpf first, because it says how.
	for _, attach := range []struct {
		with func() error
		ids  []tracerID
	}{
		{t.attachLibbpf, []tracerID{libbpfAdds, libbpfSends}},
		{t.attachBcc, []tracerID{bccAdds}},
		{t.attachBpftrace, []tracerID{bpftraceAdds}},
	} {
		if err := attach.with(); err != nil {
			for _, id := range attach.ids {
				t.missing[id] = err
			}
		}
	}
	return t, errors.Join(
		t.attachObject(t.asLibbpf, map[tracerID]string{headerAdds: "add"}),
		t.attachObject(t.asLibbpf, map[tracerID]string{emptySends: "reserve"}),
		t.attachObject(usdt.ModeSingle, map[tracerID]string{emptyByEvent: ""}),
		t.attachObject(usdt.ModeMulti, map[tracerID]string{emptyByLink: ""}),
		t.attachSpecialised(ownObject,
			map[tracerID]string{specialisedHeader: "add", specialisedOnes: "one"}),
		t.attachSpecialised(libbpfObject, map[tracerID]string{specialisedLibbpf: "add"}),
		t.attachGenerated(usdt.ModeMulti, generatedByLink),
		t.attachGenerated(usdt.ModeSingle, generatedByEvent),
		t.attachGeneratedSender(generatedSends),
	)
}

func (t *tracers) attachLibbpf() error {
	p, mode, err := t.env.libbpf()
	if err != nil {
		return err
	}
	if mode == modeMulti {
		t.asLibbpf = usdt.ModeMulti
	}
	for _, s := range t.shapes {
		for id, program := range map[tracerID]string{libbpfAdds: "add", libbpfSends: "send"} {
			if _, err := p.Ask("attach", fmt.Sprint(program, s.count), t.path, "bench",
				s.probe(id)); err != nil {
				return err
			}
		}
	}
	t.drain[libbpfSends] = func(sent int) error {
		drained, err := p.Number("drain")
		if err == nil && int(drained) != sent {
			err = fmt.Errorf("%.0f of %d events came", drained, sent)
		}
		return err
	}
	return nil
}

// attachObject attaches programs of our own object, named by what they do.
// Those that send share a ring buffer, so there may be only one of them.
func (t *tracers) attachObject(mode usdt.Mode, names map[tracerID]string) error {
	tr, err := t.env.tracer(ownObject, usdt.ManagerOptions{Mode: mode}, ringSize)
	if err != nil {
		return err
	}
	for id, name := range names {
		for _, s := range t.shapes {
			program := "empty"
			if name != "" {
				program = fmt.Sprint(name, s.count)
			}
			if _, err := tr.Attach(tr.programs[program], usdt.Target{Path: t.path}, nil,
				elfnote.Exact("bench", s.probe(id))); err != nil {
				return err
			}
		}
		if name == "reserve" {
			if t.drain[id], err = t.env.drainRing(tr.events); err != nil {
				return err
			}
		}
	}
	return nil
}

// attachSpecialised attaches programs that are made for their sites.
func (t *tracers) attachSpecialised(object string, names map[tracerID]string) error {
	tr, err := t.env.tracer(object, usdt.ManagerOptions{Mode: usdt.ModeMulti, Specialise: true}, 0)
	if err != nil {
		return err
	}
	for id, name := range names {
		for _, s := range t.shapes {
			program := tr.programs[fmt.Sprint(name, s.count)]
			lnk, err := tr.Attach(program, usdt.Target{Path: t.path}, nil,
				elfnote.Exact("bench", s.probe(id)))
			if err != nil {
				return err
			}
			if specialised, reason := lnk.Specialised(); !specialised {
				return fmt.Errorf("%s is not specialised: %s", program, reason)
			}
		}
	}
	return nil
}

// drainRing returns a function that reads the events that have been sent.
func (e *env) drainRing(events *ebpf.Map) (func(sent int) error, error) {
	reader, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { reader.Close() })
	// The program sends without waking anybody up: with a deadline in the past
	// the reader looks for itself.
	reader.SetDeadline(time.Unix(1, 0))
	var record ringbuf.Record
	return func(sent int) error {
		sum := uint64(0)
		for i := range sent {
			if err := reader.ReadInto(&record); err != nil {
				return fmt.Errorf("%d of %d events came: %w", i, sent, err)
			}
			for at := 0; at < len(record.RawSample); at += 8 {
				sum += binary.NativeEndian.Uint64(record.RawSample[at:])
			}
		}
		runtime.KeepAlive(sum) // so that reading cannot be left out
		return nil
	}, nil
}

// ready is what peers print that need a while to attach.
const ready = "ready"

func (t *tracers) attachBcc() error {
	python, ok := bccPython()
	if !ok {
		return errors.New("not installed")
	}
	folder, err := benchFolder()
	if err != nil {
		return err
	}
	words := []string{filepath.Join(folder, "peers", "add_by_bcc.py"), t.path}
	for _, s := range t.shapes {
		words = append(words, fmt.Sprintf("%s:%d", s.probe(bccAdds), s.count))
	}
	p, err := t.env.untilClosed(startCommand(exec.Command(python, words...)))
	if err != nil {
		return err
	}
	if line, err := p.Line(); err != nil || line != ready {
		return &unableError{"it cannot compile its program (it needs the kernel's headers in /lib/modules)"}
	}
	return nil
}

func (t *tracers) attachBpftrace() error {
	var script strings.Builder
	fmt.Fprintf(&script, `BEGIN { printf("%s\n"); }`, ready)
	for _, s := range t.shapes {
		var terms []string
		for i := range min(s.count, bpftraceArguments) {
			terms = append(terms, fmt.Sprint("arg", i))
		}
		fmt.Fprintf(&script, " usdt:%s:bench:%s /%s == %s/ { @ = 1; }",
			t.path, s.probe(bpftraceAdds), strings.Join(terms, " + "), neverThere)
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

// attachGenerated attaches programs of package trace that look at all arguments
// and find that there is nothing to do.
func (t *tracers) attachGenerated(mode usdt.Mode, id tracerID) error {
	sessions := make(map[int]*trace.Session)
	for _, s := range t.shapes {
		if unable(id, s) != nil {
			continue
		}
		session := sessions[s.count]
		if session == nil {
			var terms []string
			for i := range s.count {
				terms = append(terms, fmt.Sprintf("arg%d == %s", i, neverThere))
			}
			var err error
			if session, err = t.session(trace.SessionOptions{
				Mode: mode, Filter: strings.Join(terms, " || "), RingSize: 64 << 10,
			}); err != nil {
				return err
			}
			sessions[s.count] = session
		}
		if _, err := session.Attach(usdt.Target{Path: t.path}, nil,
			elfnote.Exact("bench", s.probe(id))); err != nil {
			return err
		}
	}
	return nil
}

// attachGeneratedSender attaches programs of package trace that send the
// arguments, as libbpf's do: nothing else, and without waking anybody up for
// each event.
func (t *tracers) attachGeneratedSender(id tracerID) error {
	session, err := t.session(trace.SessionOptions{
		Mode:          t.asLibbpf,
		ArgumentsOnly: true,
		RingSize:      4 * ringSize, ReuseEvents: true,
	})
	if err != nil {
		return err
	}
	for _, s := range t.shapes {
		if _, err := session.Attach(usdt.Target{Path: t.path}, nil,
			elfnote.Exact("bench", s.probe(id))); err != nil {
			return err
		}
	}
	t.drain[id] = func(sent int) error {
		came, sum := 0, uint64(0)
		for event, err := range session.Events(context.Background()) {
			if err != nil {
				return fmt.Errorf("%d of %d events came: %w", came, sent, err)
			}
			for i := range event.Args {
				sum += event.Args[i].Uint()
			}
			if came++; came == sent {
				break
			}
		}
		runtime.KeepAlive(sum) // so that reading cannot be left out
		return nil
	}
	return nil
}

func (t *tracers) session(opts trace.SessionOptions) (*trace.Session, error) {
	session, err := trace.New(&opts)
	if err != nil {
		return nil, err
	}
	t.env.cleanup(func() { session.Close() })
	return session, nil
}
