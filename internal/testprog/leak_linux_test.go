// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestNothingIsLeftByATestThatLeavesNothing(t *testing.T) {
	LeakCheck(t)
	p := Start(t, "target-pie")
	p.Fire("three", 1)
}

func TestOpenDescriptorIsALeak(t *testing.T) {
	before := takeInventory()
	f, err := os.Open(os.DevNull)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	qt.Assert(t, qt.DeepEquals(leftHere(before), []string{"descriptor /dev/null"}))
}

// One that is closed in time hides no others.
func TestOthersAreStillALeak(t *testing.T) {
	three, two := inventory{"descriptor x": 4}.since(inventory{"descriptor x": 1}), []string{
		"descriptor x", "descriptor x (2)"}
	qt.Check(t, qt.DeepEquals(three[:2], two))
	qt.Check(t, qt.DeepEquals(inventory{"descriptor x": 2}.since(inventory{}), two))
}

func TestRunningGoroutineIsALeak(t *testing.T) {
	before := takeInventory()
	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	left := leftHere(before)
	qt.Assert(t, qt.HasLen(left, 1))
	qt.Assert(t, qt.StringContains(left[0], "testprog.TestRunningGoroutineIsALeak"))
}

// leftHere is what is left in this process.
func leftHere(before inventory) []string {
	return slices.DeleteFunc(leftSince(before, 0),
		func(item string) bool { return strings.HasPrefix(item, "uprobe event ") })
}

func newMap(t *testing.T) *ebpf.Map {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMapIsALeakUntilItIsClosed(t *testing.T) {
	RequireBPF(t)
	before := takeInventory()
	m := newMap(t)
	info, err := m.Info()
	qt.Assert(t, qt.IsNil(err))
	id, ok := info.ID()
	qt.Assert(t, qt.IsTrue(ok))
	name := objectName("map", id)
	qt.Check(t, qt.IsTrue(slices.Contains(takeInventory().since(before), name)))
	qt.Check(t, qt.IsTrue(slices.Contains(leftSince(before, 0), "descriptor anon_inode:bpf-map")))

	m.Close()
	qt.Check(t, qt.HasLen(leftSince(before, testneeds.Patience(leakDeadline)), 0))
}

func TestMapOfAnotherProcessIsNoLeak(t *testing.T) {
	RequireBPF(t)
	before := takeInventory()
	m := newMap(t)
	info, err := m.Info()
	qt.Assert(t, qt.IsNil(err))
	id, ok := info.ID()
	qt.Assert(t, qt.IsTrue(ok))
	name := objectName("map", id)
	descriptor, err := unix.Dup(m.FD())
	qt.Assert(t, qt.IsNil(err))
	file := os.NewFile(uintptr(descriptor), "map")
	cmd := exec.Command(Path(t, "target-pie"))
	cmd.ExtraFiles = []*os.File{file}
	p := StartCommand(t, cmd)
	file.Close()
	m.Close()
	qt.Check(t, qt.IsFalse(slices.Contains(leftSince(before, 0), name)))

	p.Stop()
	qt.Check(t, qt.HasLen(leftSince(before, testneeds.Patience(leakDeadline)), 0))
}

func TestGlobalVariablesInMemoryAreNoLeak(t *testing.T) {
	RequireBPF(t)
	before := takeInventory()
	spec := &ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	}
	m, err := ebpf.NewMap(spec)
	qt.Assert(t, qt.IsNil(err))
	memory, err := unix.Mmap(m.FD(), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Munmap(memory)
	m.Close()
	qt.Check(t, qt.HasLen(leftSince(before, testneeds.Patience(leakDeadline)), 0))
}
