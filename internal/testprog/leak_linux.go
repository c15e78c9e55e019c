// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// leakDeadline is how long what a test has closed may take to end. What a
// process leaves that was killed in the test of another package may take
// longer.
const leakDeadline = 30 * time.Second

// leakInterval is the time between two looks: nothing tells when an event has
// gone.
const leakInterval = 20 * time.Millisecond

// LeakCheck fails the test if at its end something is left that was not there
// when LeakCheck was called: a goroutine of this process, a descriptor, which
// may be of a BPF program, map or link or of a perf event that holds one, or a
// line in tracefs' uprobe_events that is of no other process.
//
// Call it first in the test, so that it looks last. Tests that run at the same
// time are checked together when the last ends: begin them with [Parallel].
func LeakCheck(t testing.TB) {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	check := &leakCheck{root: root, before: takeInventory()}
	leakChecks.Lock()
	defer leakChecks.Unlock()
	if len(leakChecks.running) == 0 {
		leakChecks.before = check.before
	}
	for other := range leakChecks.running {
		if other.root != root {
			other.shared, check.shared = true, true
		}
	}
	leakChecks.running[check] = true
	t.Cleanup(func() {
		t.Helper()
		leakChecks.Lock()
		defer leakChecks.Unlock()
		delete(leakChecks.running, check)
		before := check.before
		if check.shared {
			if len(leakChecks.running) > 0 {
				return
			}
			before = leakChecks.before
		}
		for _, item := range leftSince(before, testneeds.Patience(leakDeadline)) {
			t.Errorf("left over: %s%s", item, nameOf(item))
		}
	})
}

// A leakCheck is shared if tests of another root ran before its end.
type leakCheck struct {
	root   string
	shared bool
	before inventory
}

// leakChecks are those of this process. before is of the time without any.
var leakChecks = struct {
	sync.Mutex
	running map[*leakCheck]bool
	before  inventory
}{running: make(map[*leakCheck]bool)}

// Parallel begins a test that runs beside others of its package. All that it
// traces is its own, and it counts nothing of the machine's.
func Parallel(t *testing.T) {
	t.Helper()
	parallel.Store(t.Name(), &ownFiles{t: t})
	t.Parallel()
	LeakCheck(t)
}

// nameOf asks the kernel for the name of a map or program, which tells more
// than its number.
func nameOf(item string) string {
	var id uint32
	if _, err := fmt.Sscanf(item, "bpf map %d", &id); err == nil {
		if m, err := ebpf.NewMapFromID(ebpf.MapID(id)); err == nil {
			defer m.Close()
			if info, err := m.Info(); err == nil {
				return " (" + info.Name + ")"
			}
		}
	}
	if _, err := fmt.Sscanf(item, "bpf prog %d", &id); err == nil {
		if info := programInfo(id); info != nil {
			return " (" + info.Name + ")"
		}
	}
	return ""
}

// programInfo returns what the kernel says of a program, nil if it has gone.
func programInfo(id uint32) *ebpf.ProgramInfo {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return nil
	}
	defer program.Close()
	info, _ := program.Info() // nil with an error
	return info
}

// leftSince returns the items that are new since before: as soon as there are
// none, or when patience has ended.
func leftSince(before inventory, patience time.Duration) []string {
	deadline := time.Now().Add(patience)
	// Only what is there at once can be of this test. Events that appear later
	// are those of other processes, which come and go all the time.
	suspects := takeInventory().since(before)
	for {
		left := slices.DeleteFunc(slices.Clone(suspects), func(item string) bool {
			_, event, _ := strings.Cut(item, "uprobe event p:"+attaching.EventGroup+"/")
			return isForeign(event)
		})
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(leakInterval)
		runtime.GC() // unmaps the memory of global variables that are out of use
		now := takeInventory().since(before)
		suspects = slices.DeleteFunc(suspects,
			func(item string) bool { return !slices.Contains(now, item) })
	}
}

// inventory counts things by a description of them.
type inventory map[string]int

func objectName(kind string, id any) string { return fmt.Sprintf("bpf %s %v", kind, id) }

func takeInventory() inventory {
	inv := goroutines()
	// Descriptors by what they are open on: their numbers are reused.
	descriptors, _ := filepath.Glob("/proc/self/fd/*")
	for _, descriptor := range descriptors {
		switch target, err := os.Readlink(descriptor); {
		case err != nil: // the descriptor of the folder itself
		case target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]":
			// Go's runtime makes them when it first needs them.
		default:
			inv["descriptor "+target]++
			// Of an object that another process holds there is nothing here,
			// in whatever way it does.
			info, _ := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(descriptor))
			for line := range strings.Lines(string(info)) {
				name, id, _ := strings.Cut(line, ":")
				if kind, isID := strings.CutSuffix(name, "_id"); isID && strings.Contains(target, "bpf") {
					inv[objectName(kind, strings.TrimSpace(id))]++
				}
			}
		}
	}
	// The events registered in tracefs, wherever that is mounted.
	events, err := os.ReadFile("/sys/kernel/tracing/uprobe_events")
	if err != nil {
		events, _ = os.ReadFile("/sys/kernel/debug/tracing/uprobe_events")
	}
	for line := range strings.Lines(string(events)) {
		inv["uprobe event "+strings.TrimSpace(line)]++
	}
	return inv
}

// goroutines are those of this process that are of no test, by number.
// No two have one number.
func goroutines() inventory {
	text := make([]byte, 1<<16)
	n := runtime.Stack(text, true)
	for n == len(text) {
		text = make([]byte, 2*n)
		n = runtime.Stack(text, true)
	}
	inv := make(inventory)
	for stack := range strings.SplitSeq(string(text[:n]), "\n\n") {
		name, _, _ := strings.Cut(stack, " [")
		_, creator, _ := strings.Cut(stack, "\ncreated by ")
		creator, _, _ = strings.Cut(creator, " in ")
		if creator != "testing.(*T).Run" {
			inv[name+" of "+creator]++
		}
	}
	return inv
}

// since returns what there is more of than before.
func (inv inventory) since(before inventory) (left []string) {
	for _, item := range slices.Sorted(maps.Keys(inv)) {
		for n := range inv[item] - before[item] {
			one := item
			if n > 0 { // when one has gone, the first ones have the same names
				one = fmt.Sprintf("%s (%d)", item, n+1)
			}
			left = append(left, one)
		}
	}
	return left
}
