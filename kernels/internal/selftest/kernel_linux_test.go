// SPDX-License-Identifier: BSD-2-Clause

package selftest

import (
	"errors"
	"math"
	"os"
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
	"github.com/gousdt/gousdt/kernels/internal/platform"
	"github.com/gousdt/gousdt/kernels/internal/vm"
)

// guest is what the kernel was meant to be, "" outside of a guest.
func guest() string { return os.Getenv(vm.GuestVariable) }

// requireBPF skips a test that may not load programs; in a guest it may.
func requireBPF(t *testing.T) {
	t.Helper()
	testneeds.Root(t)
	qt.Assert(t, qt.IsNil(rlimit.RemoveMemlock()))
}

func release(t *testing.T) platform.Release {
	t.Helper()
	var name unix.Utsname
	qt.Assert(t, qt.IsNil(unix.Uname(&name)))
	r, err := platform.ParseRelease(unix.ByteSliceToString(name.Release[:]))
	qt.Assert(t, qt.IsNil(err))
	return r
}

func TestKernelIsTheOneAskedFor(t *testing.T) {
	guest := testneeds.Guest(t)
	if !strings.Contains(guest, "/") {
		return // a kernel of one's own, of whatever version
	}
	asked, err := platform.ParseKernel(guest)
	qt.Assert(t, qt.IsNil(err))
	running := release(t)
	qt.Check(t, qt.Equals(runtime.GOARCH, asked.Machine))
	qt.Check(t, qt.IsTrue(asked.Has(running)), qt.Commentf("asked for %v, got Linux %v", asked,
		running))
	if asked.Series == platform.Newest {
		qt.Check(t, qt.IsTrue(running.AtLeast(7, 2)), qt.Commentf("Linux %v is not the newest",
			running))
	}
}

func TestKernelHasTheFeaturesOfItsVersion(t *testing.T) {
	requireBPF(t)
	running := release(t)
	for _, f := range []struct {
		name         string
		major, minor int // since
		ask          func(t *testing.T) (bool, error)
	}{
		{"uprobes as perf events", 4, 17, fileExists("/sys/bus/event_source/devices/uprobe/type")},
		{"reference counters", 4, 20,
			fileExists("/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset")},
		{"cookies", 5, 15, func(*testing.T) (bool, error) {
			return supported(features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie))
		}},
		{"uprobe_multi links", 6, 6, func(*testing.T) (bool, error) {
			return supported(features.HaveBPFLinkUprobeMulti())
		}},
		{"process filter of uprobe_multi links", 6, 10, processFilter},
	} {
		t.Run(f.name, func(t *testing.T) {
			has, err := f.ask(t)
			qt.Assert(t, qt.IsNil(err))
			should := running.AtLeast(f.major, f.minor)
			if should && !has {
				t.Errorf("Linux %v has no %s: they are said to be there since %d.%d", running,
					f.name, f.major, f.minor)
			}
			// Other distributions add features to older kernels.
			if !should && has && guest() != "" {
				t.Errorf("Linux %v has %s: they are said to be there since %d.%d", running, f.name,
					f.major, f.minor)
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
	switch r := release(t); {
	case r.AtLeast(7, 2):
		want, trampoline = unix.EPROTO, "for nop10"
	case r.AtLeast(6, 18):
		want, trampoline = unix.ENXIO, "for nop5"
	}
	_, _, got := unix.RawSyscall(uprobeSystemCall, 0, 0, 0)
	t.Logf("uprobe system call: %s (trampoline: %s)", unix.ErrnoName(got), trampoline)
	qt.Assert(t, qt.Equals(got, want))
}
