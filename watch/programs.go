// SPDX-License-Identifier: BSD-2-Clause

package watch

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// A Program is a BPF program that a Watch keeps attached, and the probes that
// it is for.
type Program struct {
	// Program belongs to the Manager's collection.
	Program *ebpf.Program

	// Patterns pick the probes: those that match any of them, or all probes if
	// there is no pattern.
	Patterns []elfnote.Pattern

	// OptionsFor, if set, returns the options of each attachment. With a Cookie
	// or SiteCookie for each file or process, the program tells them apart.
	// Each cookie takes specs of its own, see [usdt.ManagerOptions].MaxSpecs.
	//
	// The argument is the file and the process to be attached. For an
	// attachment to every process, it has the first process found with the
	// file. OptionsFor is called before each attempt to attach. It must not
	// call the Watch.
	OptionsFor func(*proc.ProcessFile) usdt.AttachOptions
}

// An Attachment is a program that a Watch has attached to the probes of a file.
type Attachment struct {
	// Link is closed by the Watch.
	Link *usdt.Link
	// ProcessFile has the process that is attached, or the zero value if that
	// is every process. The Path is then as the first process found with the
	// file sees it.
	proc.ProcessFile
}

// String is that of the Link, with the Path.
func (a *Attachment) String() string {
	if a.Link == nil {
		return a.Path
	}
	return a.Path + strings.TrimPrefix(a.Link.String(), a.Link.Selection().Name())
}

// New attaches programs to the probes that match their patterns, wherever a
// process maps a file that has such probes. The processes are scanned once for
// all programs, and files are read once. Sites that cannot be attached are
// skipped, see [usdt.Selection.Skipped]. A Watch begins with the first Sync,
// SyncAll or Run. It ends with Close. When the Manager is closed, Run returns
// and Sync fails with an error that wraps [os.ErrClosed].
//
// The files that a scan finds are attached program by program, in the order of
// the programs, so that a program can count on those before it. A program that
// cannot be attached to a file does not affect the others.
//
// If the maps of the Manager, or the system's limits on open files or memory,
// leave no room, the Watch first detaches files that no process maps any more.
// A file that still fails is tried again before each scan of all processes, by
// SyncAll and Run, unless the file or the program is to blame. A file that
// lacked room is also tried again as soon as the Watch has detached something.
// Retries take no more than about 100 ms at a time: the rest is tried next
// time.
//
// changed, if not nil, gets what was attached and detached, and what went
// wrong. One goroutine at a time calls it: one that calls Sync, SyncAll, Run or
// Close, or one of the Watch's own when a file has lingered or something is
// tried again. It must not call these methods.
//
// The error wraps [os.ErrClosed] after Manager.Close. Other errors say that
// there is no program, or one that was not loaded for this Manager, or that
// processes of this proc file system cannot be attached to.
func New(
	mgr *usdt.Manager, opts *Options, changed func(*Changes[*Attachment]), programs ...Program,
) (*Watch, error) {
	if mgr == nil {
		return nil, errors.New("there is no Manager to attach with: see usdt.NewManager")
	}
	if len(programs) == 0 {
		return nil, errors.New("there is no program to watch with: give one watch.Program or more")
	}
	select {
	case <-mgr.Done():
		return nil, sys.ClosedError("manager")
	default:
	}
	a := &programAttacher{manager: mgr, programs: slices.Clone(programs)}
	var patterns [][]elfnote.Pattern
	for _, program := range programs {
		if err := mgr.Check(program.Program); err != nil {
			return nil, err
		}
		name := program.Program.String()
		if info, err := program.Program.Info(); err == nil && info.Name != "" {
			name = info.Name
		}
		a.names, patterns = append(a.names, name), append(patterns, program.Patterns)
	}
	now := &attachments{all: make(map[*Attachment]bool)}
	w, err := newWatch(opts, func(c *Changes[*Attachment]) {
		now.change(c)
		if changed != nil {
			changed(c)
		}
	}, a, patterns)
	if err != nil {
		return nil, err
	}
	w.attachments = now.snapshot
	go func() {
		select {
		case <-mgr.Done():
			w.mu.Lock()
			w.reason = sys.ClosedError("manager")
			w.mu.Unlock()
			w.Stop()
		case <-w.closed:
		}
	}()
	return w, nil
}

type programAttacher struct {
	manager  *usdt.Manager
	programs []Program
	names    []string // of the programs, which a closed program does not say
}

// attachments are those that a watch has reported.
type attachments struct {
	mu  sync.Mutex
	all map[*Attachment]bool
}

func (a *attachments) change(c *Changes[*Attachment]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, attached := range c.Attached {
		a.all[attached] = true
	}
	for _, detached := range c.Detached {
		delete(a.all, detached)
	}
}

func (a *attachments) snapshot() []*Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.all))
}

func (a *programAttacher) AttachPart(
	n int, sel *usdt.Selection, found *proc.ProcessFile, process proc.Process,
) (*Attachment, error) {
	var options usdt.AttachOptions
	if a.programs[n].OptionsFor != nil {
		options = a.programs[n].OptionsFor(found)
	}
	for {
		lnk, err := a.manager.Attach(a.programs[n].Program, usdt.Target{Selection: sel}, &options)
		if err == nil {
			return &Attachment{lnk, proc.ProcessFile{Process: process, Path: found.Path}}, nil
		}
		rest, ok := sel.WithoutRefused(err)
		if !ok {
			return nil, err
		}
		sel = rest
	}
}

func (a *programAttacher) Descriptors(attached *Attachment) int {
	links, _ := attached.Link.Links() // none of perf events, which take two each with their BPF links
	n := len(links) + 2*attached.Link.PerfEvents()
	if a.manager.Mode() == usdt.ModeSingleIPMap {
		n++ // the array by which the program is called
	}
	return n
}

func (a *programAttacher) Detach(all []*Attachment) error {
	links := make([]*usdt.Link, len(all))
	for i, attached := range all {
		links[i] = attached.Link
	}
	return sys.CloseTogether(links)
}

func (a *programAttacher) Explain(n int, err *Error) error {
	err.program = a.names[n]
	return err
}

func (a *programAttacher) Closed() {}
