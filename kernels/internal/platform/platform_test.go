// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestReleaseIsRead(t *testing.T) {
	for s, want := range map[string]Release{
		"6.12.117+deb13-cloud-amd64": {6, 12},
		"5.10.0-32-cloud-amd64":      {5, 10},
		"7.2.13+deb14-s390x":         {7, 2},
		"6.18.44-fc-v657":            {6, 18},
		"6.12":                       {6, 12},
		"7.0-rc3":                    {7, 0},
		"6.1.":                       {6, 1},
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
	r := Release{6, 12}
	qt.Check(t, qt.IsTrue(r.AtLeast(6, 12)))
	qt.Check(t, qt.IsTrue(r.AtLeast(6, 1)))
	qt.Check(t, qt.IsTrue(r.AtLeast(5, 19)))
	qt.Check(t, qt.IsFalse(r.AtLeast(6, 13)))
	qt.Check(t, qt.IsFalse(r.AtLeast(7, 0)))
	qt.Check(t, qt.Equals(r.String(), "6.12"))
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
	qt.Check(t, qt.IsTrue(k.Has(Release{6, 1})))
	qt.Check(t, qt.IsFalse(k.Has(Release{6, 12})))
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
