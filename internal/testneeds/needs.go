// SPDX-License-Identifier: BSD-2-Clause

// Package testneeds is the one place where tests are skipped.
//
// A test that cannot run everywhere says what it needs, before it does
// anything else:
//
//	testneeds.Kernel(t, "6.6", "uprobe_multi links")
//	testneeds.Feature(t, "6.0", "sleepable programs on uprobes", err)
//	testneeds.Only(t, "no other machine has segment prefixes", "amd64", "386")
//	readelf := testneeds.Tool(t, "readelf", "binutils")
//	testneeds.Root(t)
//
// A skip names what is missing: a version of the kernel, a machine, a tool, a
// privilege. What is there is never a reason to skip. A feature that is missing
// on a kernel of the version that has it fails the test, and so does an error
// other than "not supported": no test is skipped because of the failure that it
// is there to find.
//
// Where the environment variable CI is "true", all tools and privileges are
// said to be there, and a test that lacks one fails. What remains to be skipped
// is for another kernel or another machine.
package testneeds

import (
	"errors"
	"fmt"
	"hash/crc64"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// CI reports whether everything that tests need is said to be there.
func CI() bool { return os.Getenv("CI") == "true" }

// Missing ends a test that lacks something of this machine, which the text
// names: "needs a Python 3 with probes (Debian: python3)". It skips the test,
// or fails it in CI. The caller must find that out by other means than the code
// under test.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if CI() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Again skips a test that was skipped in a process of its own, for the reason
// that it has printed there.
func Again(t testing.TB, printed string) {
	t.Helper()
	if strings.Contains(printed, "--- SKIP: "+t.Name()+" ") {
		t.Skip(printed)
	}
}

// Tool returns the path of a program, and skips a test where it is not
// installed, or fails it in CI. The Debian package that has it is part of the
// reason: that of a compiler for another machine follows from its name.
func Tool(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if machine, ok := strings.CutSuffix(debian, "-gcc"); ok {
			debian = "gcc-" + machine
		}
		Missing(t, "needs %s (Debian: %s): %v", name, debian, err)
	}
	return path
}

// Root skips a test that does not run as root, or fails it in CI.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root: run make test, or go test -exec sudo")
	}
}

// Only skips a test on machines and systems other than the named ones, by
// GOARCH or by GOOS. The reason says why there is nothing to test elsewhere.
func Only(t testing.TB, reason string, names ...string) {
	t.Helper()
	if !slices.Contains(names, runtime.GOARCH) && !slices.Contains(names, runtime.GOOS) {
		t.Skipf("%s%s: %s", forOthers, strings.Join(names, ", "), reason)
	}
}

// guestVariable is set in the emulated machines of the module kernels.
const guestVariable = "GOUSDT_GUEST"

// Guest skips a test outside of an emulated machine, and returns the kernel
// that was asked for: MACHINE/SERIES, or MACHINE alone for a kernel given as a
// file.
func Guest(t testing.TB) string {
	t.Helper()
	guest := os.Getenv(guestVariable)
	if guest == "" {
		t.Skip(forOthers + "an emulated machine: make test-kernels")
	}
	return guest
}

// IsGuest reports whether this is an emulated machine, which has the files that
// tests trace and little else of the repository.
func IsGuest() bool { return os.Getenv(guestVariable) != "" }

// NoGuest skips a test on an emulated machine. The reason says why it is not
// for one.
func NoGuest(t testing.TB, reason string) {
	t.Helper()
	if IsGuest() {
		t.Skip("not for an emulated machine: " + reason)
	}
}

// Tracefs skips a test where tracefs is not mounted.
func Tracefs(t testing.TB) {
	t.Helper()
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return
		}
	}
	Missing(t, "needs tracefs at /sys/kernel/tracing: mount -t tracefs nodev /sys/kernel/tracing")
}

// BTF skips a test where the kernel does not describe its own types, as some of
// Debian's for s390x.
func BTF(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip(needsKernel + "with BTF (CONFIG_DEBUG_INFO_BTF)")
	}
}

// awaitEvery is how often Await asks at most.
const awaitEvery = time.Millisecond

// Await asks until something is so. The test fails if that takes longer than
// Patience of the usual time.
func Await(t testing.TB, usual time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience(usual)); ; {
		asked := time.Now()
		if is() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", what)
		}
		// Asking what takes long must not keep it from happening.
		time.Sleep(max(awaitEvery, time.Since(asked)))
	}
}

// Kernel skips a test below the version of Linux that has the feature.
func Kernel(t testing.TB, version, feature string) {
	t.Helper()
	if !KernelAtLeast(t, version) {
		t.Skip(kernelReason(version, feature))
	}
}

// Feature skips a test where err, from asking the kernel for a feature, says
// that it is not supported, and the kernel is older than the version that has
// it. Any other error fails the test. So a claim about a version cannot rot,
// and a kernel into which the feature was ported back runs the test.
func Feature(t testing.TB, version, feature string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case !errors.Is(err, errors.ErrUnsupported):
		t.Fatalf("asking for %s: %v", feature, err)
	case KernelAtLeast(t, version):
		t.Fatalf("this kernel is not older than Linux %s, which has %s, but: %v", version, feature,
			err)
	default:
		t.Skip(kernelReason(version, feature))
	}
}

// KernelAtLeast reports whether the running kernel is of that version
// ("MAJOR.MINOR") or newer. A system other than Linux is of none.
func KernelAtLeast(t testing.TB, version string) bool {
	t.Helper()
	least, err := parseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		return false
	}
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	running, err := parseVersion(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Compare(running[:], least[:]) >= 0
}

// The beginnings of the reasons to skip a test that hold in CI, too.
const (
	needsKernel = "needs Linux "
	forOthers   = "only on "
)

func kernelReason(version, feature string) string {
	return needsKernel + version + ": " + feature
}

// parseVersion reads the first two numbers of "6.12" and of what uname -r
// prints ("6.12.48+deb13-amd64").
func parseVersion(text string) (v [2]int, err error) {
	if _, err := fmt.Sscanf(text, "%d.%d", &v[0], &v[1]); err != nil {
		return v, fmt.Errorf("kernel version %q: %w", text, err)
	}
	return v, nil
}

const (
	// usualWork is how long the work of slowness takes on the machine that
	// deadlines are made for: somewhat slower than an idle server of 2020.
	usualWork = 10 * time.Millisecond

	// mostPatience is the factor by which a deadline gets longer at most. An
	// emulated machine is 20 to 30 times slower.
	mostPatience = 40
)

// Patience returns how long a test may wait for something that takes less than
// the usual time on an idle machine: longer where the machine is slow, as an
// emulated one is, or has much else to do.
func Patience(usual time.Duration) time.Duration {
	return time.Duration(float64(usual) * min(max(1, slowness()*load()), mostPatience))
}

// slowness is the factor by which work takes longer here than usually.
var slowness = sync.OnceValue(func() float64 {
	data, table := make([]byte, 1<<20), crc64.MakeTable(crc64.ECMA)
	began := time.Now()
	sum := uint64(0)
	for range 10 {
		sum = crc64.Update(sum, table, data)
	}
	took := time.Since(began)
	runtime.KeepAlive(sum)
	return max(1, float64(took)/float64(usualWork))
})

// load is how many tasks want each processor, 1 if that is not known.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var tasks float64
	_, _ = fmt.Sscan(string(text), &tasks) // it stays 0
	return max(1, tasks/float64(runtime.NumCPU()))
}
