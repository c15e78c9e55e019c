// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
)

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
