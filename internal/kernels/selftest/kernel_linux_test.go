// SPDX-License-Identifier: BSD-2-Clause

package selftest

import (
	"errors"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// requireBPF skips a test that may not load programs; in a guest it may.
func requireBPF(t *testing.T) {
	t.Helper()
	testneeds.Root(t)
	qt.Assert(t, qt.IsNil(rlimit.RemoveMemlock()))
}

func TestKernelIsTheOneAskedFor(t *testing.T) {
	machine, series, _ := strings.Cut(testneeds.Guest(t), "/")
	qt.Check(t, qt.Equals(runtime.GOARCH, machine))
	switch series {
	case "": // a kernel of one's own, of whatever version
	case "newest":
		qt.Check(t, qt.IsTrue(testneeds.KernelAtLeast(t, "7.2")))
	default:
		text, err := os.ReadFile("/proc/sys/kernel/osrelease")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Matches(string(text), regexp.QuoteMeta(series)+`\D(?s:.*)`))
	}
}

func TestKernelHasTheFeaturesOfItsVersion(t *testing.T) {
	requireBPF(t)
	for _, f := range []struct {
		name, since string
		ask         func(t *testing.T) (bool, error)
	}{
		{"uprobes as perf events", "4.17", fileExists("/sys/bus/event_source/devices/uprobe/type")},
		{"reference counters", "4.20",
			fileExists("/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset")},
		{"cookies", "5.15", func(*testing.T) (bool, error) {
			return supported(features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie))
		}},
		{"uprobe_multi links", "6.6", func(*testing.T) (bool, error) {
			return supported(features.HaveBPFLinkUprobeMulti())
		}},
		{"process filter of uprobe_multi links", "6.10", processFilter},
	} {
		t.Run(f.name, func(t *testing.T) {
			has, err := f.ask(t)
			qt.Assert(t, qt.IsNil(err))
			should := testneeds.KernelAtLeast(t, f.since)
			// Other distributions add features to older kernels.
			if should && !has || !should && has && testneeds.IsGuest() {
				t.Errorf("has %s: %v, but they are said to be there since %s", f.name, has, f.since)
			}
		})
	}
}

// By these, other users and containers have files that are not what they seem.
func TestKernelHasFUSEAndOverlayfs(t *testing.T) {
	if !strings.Contains(testneeds.Guest(t), "/") {
		return // a kernel of one's own, whose modules are not known
	}
	if _, err := os.Stat("/gousdt/modules"); errors.Is(err, os.ErrNotExist) {
		testneeds.Missing(t, "the archive has the kernel without its modules")
	}
	text, err := os.ReadFile("/proc/filesystems")
	qt.Assert(t, qt.IsNil(err))
	for _, kind := range []string{"fuse", "overlay"} {
		qt.Check(t, qt.IsTrue(slices.Contains(strings.Fields(string(text)), kind)),
			qt.Commentf("%s", kind))
	}
	_, err = os.Stat("/dev/fuse")
	qt.Check(t, qt.IsNil(err))
}

func fileExists(name string) func(t *testing.T) (bool, error) {
	return func(*testing.T) (bool, error) {
		_, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
}

func supported(err error) (bool, error) {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	return err == nil, err
}

// processFilter asks whether a multi link takes a PID for a process. Such a
// kernel checks the PID first; others look at the file first, which is none.
func processFilter(t *testing.T) (bool, error) {
	if has, err := supported(features.HaveBPFLinkUprobeMulti()); err != nil || !has {
		return false, err
	}
	program := loadCounter(t, loadMulti, newHits(t))
	root, err := link.OpenExecutable("/")
	if err != nil {
		return false, err
	}
	_, err = root.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{1},
		PID: math.MaxUint32})
	switch {
	case errors.Is(err, unix.EINVAL):
		return true, nil
	case errors.Is(err, unix.EBADF):
		return false, nil
	}
	return false, err
}

// uprobeSystemCall is the number of the system call that a uprobe trampoline
// makes instead of a breakpoint, on x86-64 only.
const uprobeSystemCall = 336

func TestUprobeSystemCallTellsTheTrampoline(t *testing.T) {
	testneeds.Only(t, "no other machine has uprobe trampolines", "amd64")
	want, trampoline := unix.ENOSYS, "none"
	switch {
	case testneeds.KernelAtLeast(t, "7.2"):
		want, trampoline = unix.EPROTO, "for nop10"
	case testneeds.KernelAtLeast(t, "6.18"):
		want, trampoline = unix.ENXIO, "for nop5"
	}
	_, _, got := unix.RawSyscall(uprobeSystemCall, 0, 0, 0)
	t.Logf("uprobe system call: %s (trampoline: %s)", unix.ErrnoName(got), trampoline)
	qt.Assert(t, qt.Equals(got, want))
}
