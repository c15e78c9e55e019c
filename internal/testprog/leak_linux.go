// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// leakDeadline is how long the kernel may take to free what was closed. It
// frees uprobes and programs after one or more RCU grace periods, which take a
// fraction of a second when the machine is busy.
const leakDeadline = 10 * time.Second

// leakInterval is the time between two looks: nothing tells when the kernel has
// freed an object.
const leakInterval = 20 * time.Millisecond

// LeakCheck fails the test if at its end something is left that was not there
// when LeakCheck was called: a descriptor or a goroutine of this process, a BPF
// program, map or link in the kernel that no other process holds, a line in
// tracefs' uprobe_events.
//
// Call it first in the test, so that it looks last, and not in a test that runs
// in parallel with others of its package.
func LeakCheck(t testing.TB) {
	t.Helper()
	before := takeInventory()
	t.Cleanup(func() {
		t.Helper()
		for _, item := range leftSince(before, testneeds.Patience(leakDeadline)) {
			t.Errorf("left behind: %s%s", item, nameOf(item))
		}
	})
}

// nameOf asks the kernel for the name of a map or program, which tells more
// than its number.
func nameOf(item string) string {
	var kind, name string
	var id uint32
	if _, err := fmt.Sscanf(item, "bpf %s %d", &kind, &id); err != nil {
		return ""
	}
	switch kind {
	case "map":
		if m, err := ebpf.NewMapFromID(ebpf.MapID(id)); err == nil {
			defer m.Close()
			if info, err := m.Info(); err == nil {
				name = info.Name
			}
		}
	case "prog":
		if info := programInfo(id); info != nil {
			name = info.Name
		}
	}
	if name == "" {
		return ""
	}
	return " (" + name + ")"
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

// leftSince returns what is there now and was not before, as soon as it is
// nothing or when patience has ended.
func leftSince(before inventory, patience time.Duration) []string {
	deadline := time.Now().Add(patience)
	// Only what is there at once can be of this test. Objects that appear later
	// are those of other processes, which come and go all the time.
	suspects := takeInventory().since(before)
	for {
		left := suspects
		if len(left) > 0 {
			left = withoutMapped(withoutForeign(left), before)
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(leakInterval)
		runtime.GC() // unmaps the memory of global variables that nobody uses any more
		now := takeInventory().since(before)
		suspects = slices.DeleteFunc(suspects,
			func(item string) bool { return !slices.Contains(now, item) })
	}
}

// inventory counts things by a description of them.
type inventory map[string]int

// mappedMaps counts the maps that this process has in its memory. The kernel
// does not say which they are.
const mappedMaps = "map in memory"

func countMappedMaps(process string) int {
	maps, _ := os.ReadFile(filepath.Join(process, "maps"))
	return strings.Count(string(maps), "anon_inode:bpf-map")
}

func takeInventory() inventory {
	inv := make(inventory)
	inv["goroutine"] = runtime.NumGoroutine()
	inv[mappedMaps] = countMappedMaps("/proc/self")
	inv.addDescriptors()
	for kind, command := range objectKinds {
		inv.addObjects(kind, command)
	}
	inv.addUprobeEvents()
	return inv
}

// since returns what there is more of than before.
func (inv inventory) since(before inventory) []string {
	var left []string
	for _, item := range slices.Sorted(maps.Keys(inv)) {
		if more := inv[item] - before[item]; more > 0 && item != mappedMaps {
			left = append(left, fmt.Sprintf("%s%s", item, times(more)))
		}
	}
	return left
}

func times(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

// addDescriptors tells descriptors by what they are open on: their numbers are
// reused.
func (inv inventory) addDescriptors() {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // the descriptor of the folder itself
		}
		switch target {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]":
			continue // Go's runtime makes them when it first needs them
		}
		inv["descriptor "+target]++
	}
}

// The commands of bpf(2) that find the next object after an ID. They take no
// reference: an object looked at in passing is freed as soon as its owner
// closes it.
var objectKinds = map[string]uintptr{
	"prog": unix.BPF_PROG_GET_NEXT_ID,
	"map":  unix.BPF_MAP_GET_NEXT_ID,
	"link": unix.BPF_LINK_GET_NEXT_ID,
}

// addObjects adds every object of a kind in the kernel. Without the privilege
// to enumerate them, or on a kernel without that kind, it adds none.
func (inv inventory) addObjects(kind string, command uintptr) {
	attribute := struct{ start, next, flags uint32 }{}
	for {
		_, _, errno := unix.Syscall(unix.SYS_BPF, command,
			uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute))
		if errno != 0 {
			return
		}
		inv[objectName(kind, fmt.Sprint(attribute.next))]++
		attribute.start = attribute.next
	}
}

func objectName(kind, id string) string { return "bpf " + kind + " " + id }

// addUprobeEvents adds what was registered by name in tracefs.
func (inv inventory) addUprobeEvents() {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		events, err := os.ReadFile(filepath.Join(dir, "uprobe_events"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(events)) {
			inv["uprobe event "+strings.TrimSpace(line)]++
		}
		return
	}
}

// withoutForeign removes the objects that another process holds: the tests of
// other packages may run at the same time.
func withoutForeign(left []string) []string {
	foreign := make(map[string]bool)
	mapped := false // another process has a map in its memory, which has no ID there
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if filepath.Base(process) == fmt.Sprint(os.Getpid()) {
			continue
		}
		for _, object := range objectsOf(process) {
			foreign[object] = true
		}
		mapped = mapped || countMappedMaps(process) > 0
	}
	return slices.DeleteFunc(left, func(item string) bool {
		return foreign[item] || mapped && strings.HasPrefix(item, objectName("map", ""))
	})
}

// withoutMapped removes as many maps as this process has in its memory more
// than before. That is how a test gets at the global variables of a BPF
// program, and it lasts for as long as the test's own variables refer to them,
// which may be until after the test: no matter of what is tested.
func withoutMapped(left []string, before inventory) []string {
	more := countMappedMaps("/proc/self") - before[mappedMaps]
	return slices.DeleteFunc(left, func(item string) bool {
		if more <= 0 || !strings.HasPrefix(item, objectName("map", "")) {
			return false
		}
		more--
		return true
	})
}

// objectsOf returns what a process holds: what its descriptors are open on, and
// the maps of its programs.
func objectsOf(process string) []string {
	var objects []string
	infos, _ := filepath.Glob(filepath.Join(process, "fdinfo", "*"))
	for _, path := range infos {
		info, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), ":")
			id = strings.TrimSpace(id)
			kind, ok := strings.CutSuffix(name, "_id")
			if !ok || objectKinds[kind] == 0 {
				continue
			}
			objects = append(objects, objectName(kind, id))
			if kind == "prog" {
				objects = append(objects, mapsOfProgram(id)...)
			}
		}
	}
	return objects
}

func mapsOfProgram(id string) (objects []string) {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return nil
	}
	if info := programInfo(uint32(number)); info != nil {
		ids, _ := info.MapIDs()
		for _, id := range ids {
			objects = append(objects, objectName("map", fmt.Sprint(id)))
		}
	}
	return objects
}
