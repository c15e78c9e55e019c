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

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// leakDeadline is how long the kernel may take to free closed objects. It frees
// uprobes and programs after one or more RCU grace periods, which take a
// fraction of a second when the machine is busy. What a process leaves that was
// killed in the test of another package may take longer.
const leakDeadline = 30 * time.Second

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
			t.Errorf("left over: %s%s", item, nameOf(item))
		}
	})
}

// nameOf asks the kernel for the name of a map or program, which tells more
// than its number.
func nameOf(item string) string {
	var id uint32
	if info := mapInfo(item); info != nil {
		return " (" + info.Name + ")"
	}
	if _, err := fmt.Sscanf(item, "bpf prog %d", &id); err == nil {
		if info := programInfo(id); info != nil {
			return " (" + info.Name + ")"
		}
	}
	return ""
}

// mapInfo returns what the kernel says of a map, nil if it is none or has gone.
func mapInfo(item string) *ebpf.MapInfo {
	var id uint32
	if _, err := fmt.Sscanf(item, "bpf map %d", &id); err != nil {
		return nil
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil
	}
	defer m.Close()
	info, _ := m.Info() // nil with an error
	return info
}

// mappingsOf returns how often a process has an item in its memory that it
// uses, 0 if that cannot be.
func mappingsOf(item string) int {
	info := mapInfo(item)
	switch {
	case info != nil && info.Type == ebpf.RingBuf:
		return 2
	case info != nil && info.Flags&unix.BPF_F_MMAPABLE != 0:
		return 1
	}
	return 0
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
	// Only what is there at once can be of this test. Objects that appear later
	// are those of other processes, which come and go all the time.
	suspects := takeInventory().since(before)
	for {
		left := suspects
		if len(left) > 0 {
			left = withoutMapped(withoutForeign(left), newlyMapped(before))
		}
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

// mappedMaps begins the items of maps that this process has in its memory, by
// address. The kernel does not say which they are.
const mappedMaps = "map in memory at "

// mappedMapsOf returns where a process has maps in its memory.
func mappedMapsOf(process string) (addresses []string) {
	maps, _ := os.ReadFile(filepath.Join(process, "maps"))
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "anon_inode:bpf-map") {
			address, _, _ := strings.Cut(line, "-")
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// newlyMapped counts the maps that this process has in its memory, and had not
// before. A map of an earlier test may have left it meanwhile.
func newlyMapped(before inventory) (count int) {
	for _, address := range mappedMapsOf("/proc/self") {
		if before[mappedMaps+address] == 0 {
			count++
		}
	}
	return count
}

// The commands of bpf(2) that find the next object after an ID. They take no
// reference: an object looked at in passing is freed as soon as its owner
// closes it.
var objectKinds = map[string]uintptr{
	"prog": unix.BPF_PROG_GET_NEXT_ID,
	"map":  unix.BPF_MAP_GET_NEXT_ID,
	"link": unix.BPF_LINK_GET_NEXT_ID,
}

func objectName(kind string, id any) string { return fmt.Sprintf("bpf %s %v", kind, id) }

func takeInventory() inventory {
	inv := inventory{"goroutine": runtime.NumGoroutine()}
	for _, address := range mappedMapsOf("/proc/self") {
		inv[mappedMaps+address]++
	}
	// Descriptors by what they are open on: their numbers are reused.
	descriptors, _ := filepath.Glob("/proc/self/fd/*")
	for _, descriptor := range descriptors {
		switch target, err := os.Readlink(descriptor); {
		case err != nil: // the descriptor of the folder itself
		case target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]":
			// Go's runtime makes them when it first needs them.
		default:
			inv["descriptor "+target]++
		}
	}
	// Every object in the kernel; none without the privilege to enumerate them,
	// and of kinds that the kernel does not have.
	for kind, command := range objectKinds {
		attribute := struct{ start, next, flags uint32 }{}
		for {
			_, _, errno := unix.Syscall(unix.SYS_BPF, command,
				uintptr(unsafe.Pointer(&attribute)), unsafe.Sizeof(attribute))
			if errno != 0 {
				break
			}
			inv[objectName(kind, attribute.next)]++
			attribute.start = attribute.next
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

// since returns what there is more of than before.
func (inv inventory) since(before inventory) (left []string) {
	for _, item := range slices.Sorted(maps.Keys(inv)) {
		switch more := inv[item] - before[item]; {
		case more <= 0 || strings.HasPrefix(item, mappedMaps):
		case more == 1:
			left = append(left, item)
		default:
			left = append(left, fmt.Sprintf("%s (%d times)", item, more))
		}
	}
	return left
}

// withoutForeign removes the objects that another process holds: the tests of
// other packages may run at the same time.
func withoutForeign(left []string) []string {
	foreign := make(map[string]bool)
	mapped := 0 // what others have in their memory and hold in no other way, which has no ID there
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if filepath.Base(process) == fmt.Sprint(os.Getpid()) {
			continue
		}
		held := make(map[string]bool)
		addObjects(held, process)
		maps.Copy(foreign, held)
		more := len(mappedMapsOf(process))
		for item := range held {
			if more > 0 {
				more -= mappingsOf(item)
			}
		}
		mapped += max(0, more)
	}
	return withoutMapped(slices.DeleteFunc(left, func(item string) bool {
		_, event, _ := strings.Cut(item, "uprobe event p:"+attaching.EventGroup+"/")
		return foreign[item] || isForeign(event)
	}), mapped)
}

// withoutMapped removes as many maps as a process has in its memory. A test
// reaches the global variables of a BPF program in this way. The mapping lasts
// as long as the test's own variables refer to it, perhaps until after the
// test: that is no leak of the tested code.
func withoutMapped(left []string, more int) []string {
	return slices.DeleteFunc(left, func(item string) bool {
		if more <= 0 {
			return false
		}
		mappings := mappingsOf(item)
		more -= mappings
		return mappings > 0
	})
}

// addObjects adds the objects that a process holds: those of its descriptors,
// and the maps of its programs.
func addObjects(to map[string]bool, process string) {
	infos, _ := filepath.Glob(filepath.Join(process, "fdinfo", "*"))
	for _, path := range infos {
		info, _ := os.ReadFile(path) // it may have been closed
		for line := range strings.Lines(string(info)) {
			name, value, _ := strings.Cut(line, ":")
			kind, isID := strings.CutSuffix(name, "_id")
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if !isID || objectKinds[kind] == 0 || err != nil {
				continue
			}
			to[objectName(kind, id)] = true
			if kind != "prog" {
				continue
			}
			if info := programInfo(uint32(id)); info != nil {
				ids, _ := info.MapIDs()
				for _, id := range ids {
					to[objectName("map", id)] = true
				}
			}
		}
	}
}
