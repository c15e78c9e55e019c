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

func TestRunningGoroutineIsALeak(t *testing.T) {
	before := takeInventory()
	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	qt.Assert(t, qt.DeepEquals(leftHere(before), []string{"goroutine"}))
}

// leftHere is what is left in this process. Tests of other packages may have
// closed an object that the kernel has not freed yet.
func leftHere(before inventory) []string {
	return slices.DeleteFunc(leftSince(before, 0), func(item string) bool {
		return strings.HasPrefix(item, "bpf ") || strings.HasPrefix(item, "uprobe event ")
	})
}

func newMap(t *testing.T) *ebpf.Map {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMapIsALeakUntilTheKernelHasFreedIt(t *testing.T) {
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

// A process that has one map in its memory is no reason to overlook others.
func TestMapIsALeakWhileAnotherProcessHasOneInMemory(t *testing.T) {
	RequireBPF(t)
	spec := &ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	}
	foreign, err := ebpf.NewMap(spec)
	qt.Assert(t, qt.IsNil(err))
	defer foreign.Close()
	const hold = `import mmap, sys
memory = mmap.mmap(3, mmap.PAGESIZE, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.read()`
	cmd := exec.Command(testneeds.Tool(t, "python3", "python3"), "-c", hold)
	descriptor, err := unix.Dup(foreign.FD())
	qt.Assert(t, qt.IsNil(err))
	file := os.NewFile(uintptr(descriptor), "map")
	defer file.Close()
	cmd.ExtraFiles = []*os.File{file}
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer cmd.Wait()
	defer in.Close()
	_, err = out.Read(make([]byte, 1))
	qt.Assert(t, qt.IsNil(err))
	before := takeInventory()
	for _, leaked := range []*ebpf.MapSpec{
		{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1}, spec,
	} {
		m, err := ebpf.NewMap(leaked)
		qt.Assert(t, qt.IsNil(err))
		defer m.Close()
		info, err := m.Info()
		qt.Assert(t, qt.IsNil(err))
		id, _ := info.ID()
		qt.Check(t, qt.IsTrue(slices.Contains(leftSince(before, 0), objectName("map", id))))
	}
}
