// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestReleaseIsRead(t *testing.T) {
	for s, want := range map[string]Release{
		"6.12.117+deb13-cloud-amd64": {6, 12, 117},
		"5.10.0-32-cloud-amd64":      {5, 10, 0},
		"7.2.13+deb14-s390x":         {7, 2, 13},
		"6.18.44-fc-v657":            {6, 18, 44},
		"6.12":                       {6, 12, 0},
		"7.0-rc3":                    {7, 0, 0},
		"6.1.":                       {6, 1, 0},
	} {
		got, err := ParseRelease(s)
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", s))
		qt.Check(t, qt.Equals(got, want), qt.Commentf("%s", s))
	}
	for _, s := range []string{"", "6", "six.twelve", "6.", ".5", "99999999999999999999.1"} {
		_, err := ParseRelease(s)
		qt.Check(t, qt.ErrorMatches(err, "kernel version .*"), qt.Commentf("%q", s))
	}
}

func TestReleasesAreCompared(t *testing.T) {
	r := Release{6, 12, 5}
	qt.Check(t, qt.IsTrue(r.AtLeast(6, 12)))
	qt.Check(t, qt.IsTrue(r.AtLeast(6, 1)))
	qt.Check(t, qt.IsTrue(r.AtLeast(5, 19)))
	qt.Check(t, qt.IsFalse(r.AtLeast(6, 13)))
	qt.Check(t, qt.IsFalse(r.AtLeast(7, 0)))
	qt.Check(t, qt.Equals(r.Series(), "6.12"))
	qt.Check(t, qt.Equals(r.String(), "6.12.5"))
}

func TestKernelsAreNamed(t *testing.T) {
	for _, k := range All() {
		got, err := ParseKernel(k.String())
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(got, k))
		qt.Check(t, qt.IsTrue(len(k.Suites) > 0), qt.Commentf("%v has no suite", k))
	}
	other, err := ParseKernel("arm64/6.17")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(other.Suites) > 0))
	for _, s := range []string{"", "6.12", "vax/6.12", "amd64/", "amd64/latest"} {
		_, err := ParseKernel(s)
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%q", s))
	}
}

func TestSeriesIsNotAPrefix(t *testing.T) {
	k, err := ParseKernel("amd64/6.1")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(k.Has(Release{6, 1, 192})))
	qt.Check(t, qt.IsFalse(k.Has(Release{6, 12, 117})))
}

func TestQuickMatrixIsTheOldestKernelAndTheNewest(t *testing.T) {
	var quick []string
	for _, k := range All() {
		if k.Quick {
			quick = append(quick, k.String())
		}
	}
	qt.Check(t, qt.DeepEquals(quick, []string{"amd64/5.10", "amd64/newest"}))
}

func TestNewestIsTheNewestOfAllSuites(t *testing.T) {
	k, err := ParseKernel("amd64/" + Newest)
	qt.Assert(t, qt.IsNil(err))
	for _, suite := range []string{"trixie-backports", "sid", "experimental"} {
		qt.Check(t, qt.SliceContains(k.Suites, suite))
	}
}

func TestMachineIsReadFromTheFile(t *testing.T) {
	if _, err := MachineByName(runtime.GOARCH); err == nil && runtime.GOOS == "linux" {
		m, err := MachineOfFile("/proc/self/exe")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(m.Name, runtime.GOARCH))
	}

	// The header of an i386 program: an amd64 kernel runs it.
	header := make([]byte, 52)
	copy(header, "\x7fELF\x01\x01\x01")
	header[16], header[18], header[20] = 2, 3, 1 // ET_EXEC, EM_386, EV_CURRENT
	header[40], header[42], header[46] = 52, 32, 40
	file := filepath.Join(t.TempDir(), "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, header, 0o644)))
	m, err := MachineOfFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(m.Name, "amd64"))

	header[18] = 2 // EM_SPARC
	qt.Assert(t, qt.IsNil(os.WriteFile(file, header, 0o644)))
	_, err = MachineOfFile(file)
	qt.Check(t, qt.ErrorMatches(err, ".* is for EM_SPARC .*"))
}
