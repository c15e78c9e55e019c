// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
)

// family is a process and its descendants.
type family struct {
	mu      sync.Mutex
	members map[int]bool
}

func (f *family) add(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[pid] = true
}

// has reports whether a process is one of them.
func (f *family) has(p proc.Process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[p.Parent] {
		f.members[p.PID] = true
	}
	return f.members[p.PID]
}

// beginCommand starts the command. Its programs, and the libraries that they
// are linked with, are attached before they run. What it loads later, and what
// its descendants run, is attached when the follower finds it.
func (t *tracer) beginCommand() error {
	descendants := &family{members: make(map[int]bool)}
	f, err := newFollower(t, descendants.has)
	if err != nil {
		return err
	}
	t.follower = f
	c := &command{argv: t.options.command, stdout: 1}
	if t.options.printsOnStdout() {
		c.stdout = 2 // the two must not be mixed
	}
	first := true
	c.execed = func(pid int) error {
		descendants.add(pid)
		err := t.attachProgram(pid, first)
		if err != nil && !first {
			t.warnFailed(err)
		}
		if first && err == nil && len(t.options.files) == 0 {
			f.stopAtEnd()
			f.run(f.watch.Run)
		}
		if first {
			t.start = time.Now() // it goes on now, and may have ended before start returns
		}
		first = false
		return err
	}
	c.exits = func(pid int) {
		if t.stacks != nil {
			t.stacks.Remember(pid)
		}
	}
	if err := c.start(); err != nil {
		return err
	}
	t.command = c
	f.running.Go(func() {
		select {
		case <-c.done:
			if t.ctx.Err() == nil {
				t.status = c.exitStatus()
			}
			if failure := c.failure(); failure != "" && t.ctx.Err() == nil {
				t.messages.Warn("%s", failure)
			}
			t.end()
		case <-t.ctx.Done():
		}
	})
	return nil
}

// attachProgram attaches to the program that a process is about to run.
func (t *tracer) attachProgram(pid int, first bool) error {
	if len(t.options.files) > 0 {
		if !first {
			return nil // the files stay attached
		}
		if err := t.targets.find(t.options.files, pid); err != nil {
			return err
		}
		return t.attachFiles()
	}
	process, err := proc.NewFS("").Process(pid)
	if err != nil {
		return err
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	done := t.messages.During("attaching to %s and its libraries", program)
	defer done()
	files := ldso.Linked(program, fmt.Sprintf("/proc/%d", pid))
	for _, path := range files {
		if err := t.follower.attachPath(path, process); err != nil {
			return err
		}
	}
	return nil
}

// attachPath attaches to a file that a process has not mapped yet.
func (f *follower) attachPath(path string, process proc.Process) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	err = f.watch.AttachAhead(process, file)
	var filtered *trace.FilteredError
	var unpaired *trace.PairError
	switch {
	case errors.As(err, &unpaired):
		f.tracer.targets.setFiltered(&nothingError{unpaired})
		return nil
	case errors.As(err, &filtered):
		f.tracer.targets.setFiltered(filtered)
		return nil
	case isNothing(err):
		f.tracer.targets.near(err)
		return nil
	case errors.Is(err, os.ErrClosed): // the tracing has ended meanwhile
		return nil
	}
	return err
}
