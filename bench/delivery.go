// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// delivery is a session whose events are delivered, to itself or to others that
// read its ring buffer.
type delivery struct {
	of      delivered
	session *trace.Session
	ring    ebpf.MapID
	target  *peer.Process
	probe   string
	sum     uint64 // of what is in eventsAtATime, the same for all readers
}

// startTarget starts a copy of peers/target.c: another run's hits of the same
// file would be seen here.
func (e *env) startTarget() (path string, target *peer.Process, err error) {
	if runtime.GOARCH != "amd64" {
		return "", nil, &unableError{"the sites in peers/target.c are written for x86-64"}
	}
	built, err := peer.Build("target")
	if err != nil {
		return "", nil, &notHereError{reason: err.Error()}
	}
	if path, err = e.copyOf(built); err != nil {
		return "", nil, err
	}
	target, err = e.untilClosed(peer.StartCommand(exec.Command(path)))
	return path, target, err
}

// deliver opens a session for one of the target's twins.
func (e *env) deliver(
	d delivered, path string, target *peer.Process, twin int, opts trace.SessionOptions,
) (*delivery, error) {
	if d.text > 0 {
		opts.Captures = []trace.Capture{{Arg: "arg0", Max: d.text}}
	}
	opts.ArgumentsOnly = !d.header
	before, err := ringBuffers()
	if err != nil {
		return nil, err
	}
	session, err := trace.New(&opts)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { session.Close() })
	after, err := ringBuffers()
	if err != nil {
		return nil, err
	}
	v := &delivery{of: d, session: session, target: target,
		probe: fmt.Sprintf("%s_%d", d.probe, twin)}
	for id := range after {
		if !before[id] {
			v.ring = id
		}
	}
	return v, v.attach(path)
}

func (v *delivery) attach(path string) error {
	_, err := v.session.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("bench", v.probe))
	return err
}

// also has the session send events of another target, too.
func (v *delivery) also(path string, target *peer.Process, twin int) (*delivery, error) {
	other := &delivery{of: v.of, session: v.session, target: target,
		probe: fmt.Sprintf("%s_%d", v.of.probe, twin)}
	return other, other.attach(path)
}

// ringBuffers returns the IDs of the ring buffers that this process has open. A
// session does not say which is its own.
func ringBuffers() (map[ebpf.MapID]bool, error) {
	found := make(map[ebpf.MapID]bool)
	descriptors, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return nil, err
	}
	for _, name := range descriptors {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it was the one of reading the folder
		}
		kind, id := 0, ebpf.MapID(0)
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "map_type:\t%d", &kind)
			fmt.Sscanf(line, "map_id:\t%d", &id)
		}
		if ebpf.MapType(kind) == ebpf.RingBuf {
			found[id] = true
		}
	}
	return found, nil
}

// send has events sent, with nobody waiting for them.
func (v *delivery) send(count int) error {
	_, err := v.target.Ask("run", v.probe, count)
	return err
}

// clock measures the processor time that some work takes, in nanoseconds.
type clock func(work func() error) (float64, error)

// receive returns the time of so many events, by a clock of processor time, and
// the sum of what was in them. None may be lost.
func (v *delivery) receive(count int, time clock) (spent float64, sum uint64, err error) {
	before, err := v.session.Losses()
	if err != nil {
		return 0, 0, err
	}
	// With a context that can end, as programs have it.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	came := 0
	spent, err = time(func() (err error) {
		sum, came, err = v.take(ctx, count)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("%d of %d events came: %w", came, count, err)
	}
	after, err := v.session.Losses()
	if err == nil && after.Events != before.Events {
		err = fmt.Errorf("%d events were lost", after.Events-before.Events)
	}
	return spent, sum, err
}

// take is a loop over events as a program has it: until so many came, or the
// context is done. It returns the sum of what was in the arguments.
func (v *delivery) take(ctx context.Context, most int) (sum uint64, came int, err error) {
	hasText := v.of.text > 0
	for event, err := range v.session.Events(ctx) {
		if err != nil {
			if lost := (*trace.LostError)(nil); errors.As(err, &lost) {
				continue
			}
			return sum, came, err
		}
		// In the loop's body, as it is in libbpf's program.
		of := uint64(0)
		for i := range event.Args {
			of += event.Args[i].Uint()
		}
		if hasText {
			text, _ := event.Args[0].Data()
			of += uint64(len(text))
		}
		sum += of
		if came++; came == most {
			break
		}
	}
	return sum, came, nil
}
