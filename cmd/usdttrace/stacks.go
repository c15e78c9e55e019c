// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/unwind"
	"github.com/gousdt/gousdt/trace"
)

const (
	// maxStack is how deep the kernel walks stacks: as deep as it does by
	// default (kernel.perf_event_max_stack).
	maxStack = 127

	// stackCopy is how many bytes of a stack are copied by default: a hundred
	// functions of usual size. maxStackCopy is the most that --unwind takes.
	stackCopy    = 16 << 10
	maxStackCopy = 64 << 10

	// unwindBuffer is the default size of the ring buffer if each event has
	// such a copy: for 1500 events with 16 kB.
	unwindBuffer = 32 << 20
)

// The ways to find the callers of a function.
const (
	unwindDWARF = "dwarf" // here, from a copy of the stack
	unwindFP    = "fp"    // in the kernel, by frame pointers
)

// parseUnwind decides how stacks are found.
func (o *options) parseUnwind(way string) error {
	asked := o.eventStacks() || o.profiles() || o.byStack()
	possible := slices.Contains([]string{"amd64", "arm64", "riscv64", "s390x"}, runtime.GOARCH)
	method, size, sized := strings.Cut(way, ":")
	switch {
	case way == "":
		if asked && possible && o.needsKernel() == "" {
			o.unwind = stackCopy
		}
		return nil
	case way == unwindFP:
		return nil
	case method != unwindDWARF:
		return fmt.Errorf("--unwind %q: want %s, %s:SIZE or %s", way, unwindDWARF, unwindDWARF,
			unwindFP)
	case !asked:
		return fmt.Errorf("--unwind %s goes with --stack, --start-stack, --by stack, --pprof, --folded and --flamegraph", way)
	case !possible:
		return fmt.Errorf("--unwind %s: not on %s", way, runtime.GOARCH)
	}
	if reason := o.needsKernel(); reason != "" {
		return fmt.Errorf("--unwind %s: what is asked for with %s is counted in the kernel, which can walk stacks by frame pointers only", way, reason)
	}
	o.unwind = stackCopy
	if sized {
		var err error
		if o.unwind, err = parseSize(size, maxStackCopy); err != nil {
			return fmt.Errorf("--unwind %q: want bytes up to 64k", way)
		}
	}
	return nil
}

// stackOf returns the user stack of an event, the innermost address first.
func (t *tracer) stackOf(e *trace.Event) []uint64 {
	if t.options.unwind == 0 {
		return e.Stack
	}
	addresses := t.stacks.Unwind(context.Background(), e.PID, e.Registers, e.StackCopy)
	if len(addresses) == 1 && len(e.Stack) > 1 {
		return e.Stack // such as that of a process that ended before it could be scanned
	}
	return addresses
}

// mergeStacks makes one row of those with the same stack in several processes,
// unless processes are a key.
func (t *tracer) mergeStacks(s *trace.Snapshot) *trace.Snapshot {
	if !t.options.byStack() || slices.Contains(t.options.by, "pid") {
		return s
	}
	return s.Merge(func(row *trace.Row) string {
		pid, _ := stackOf(s, row)
		key := []byte(t.stacks.Key(pid, row.Stack))
		for i, k := range row.Keys {
			if s.By[i] != "stack" {
				key = fmt.Appendf(key, "/%d:%q", k.Kind(), k.String())
			}
		}
		return string(key)
	})
}

// maxAskedSites bounds the sites of a file of which it is asked whether they
// have frame pointers.
const maxAskedSites = 64

// warnFramePointers says that stacks need frame pointers where a file that has
// been attached seems to have none.
func (t *tracer) warnFramePointers(a *trace.Attachment) {
	if t.stacks == nil || t.options.unwind > 0 {
		return
	}
	path := a.Path()
	if pid := a.Process().PID; pid != 0 {
		path = fmt.Sprintf("/proc/%d/root%s", pid, path)
	}
	file, err := elffile.Open(path)
	if err != nil {
		return // it may be of another mount namespace
	}
	defer file.Close()
	table, err := unwind.NewUnwinder().Read(file)
	if err != nil {
		return
	}
	sites := a.Sites()
	asked := 0
	for _, site := range sites[:min(len(sites), maxAskedSites)] {
		has, ok := table.HasFramePointer(site.Location)
		if has {
			return
		}
		if ok {
			asked++
		}
	}
	if asked == 0 {
		return
	}
	advice := "--unwind dwarf does without them"
	if reason := t.options.needsKernel(); reason != "" {
		advice = "with " + reason + " there is no other way"
	}
	t.messages.WarnOf("files without frame pointers",
		"stacks are found by frame pointers, which %s seems to have been built without: "+
			"what follows the innermost function may be missing or wrong (%s)", a.Path(), advice)
}
