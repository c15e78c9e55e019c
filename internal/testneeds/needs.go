// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
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

// Tool returns the path of a program, and skips a test where it is not
// installed, or fails it in CI. The Debian package that has it is part of the
// reason.
func Tool(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
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
