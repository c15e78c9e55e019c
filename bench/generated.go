// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

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
