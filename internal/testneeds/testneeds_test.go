// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// recorder is a test whose end is looked at.
type recorder struct {
	testing.TB
	outcome, reason string
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) { r.end("skipped", fmt.Sprint(args...)) }
func (r *recorder) Skipf(format string, args ...any) {
	r.end("skipped", fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any) { r.end("failed", fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.end("failed", fmt.Sprintf(format, args...))
}

func (r *recorder) end(outcome, reason string) {
	r.outcome, r.reason = outcome, reason
	runtime.Goexit()
}

// record runs a test and returns how it ended.
func record(test func(t testing.TB)) (outcome, reason string) {
	r := &recorder{outcome: "passed"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.outcome, r.reason
}

func TestFeature(t *testing.T) {
	Only(t, "others have no version", "linux")
	unsupported := fmt.Errorf("links: %w", errors.ErrUnsupported)
	for _, tc := range []struct {
		name, version string
		err           error
		outcome       string
		reason        string
	}{
		{"runs where it is supported", "2.6", nil, "passed", ""},
		{"runs where it was ported back", "999.1", nil, "passed", ""},
		{"skips on an older kernel", "999.1", unsupported, "skipped",
			"needs Linux 999.1: many links"},
		{"fails on a kernel that has it", "2.6", unsupported, "failed",
			".* not older than Linux 2.6, .*: links: unsupported operation"},
		{"fails by another error", "999.1", errors.New("refused"), "failed",
			"asking for many links: refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outcome, reason := record(func(t testing.TB) {
				Feature(t, tc.version, "many links",
					tc.err)
			})
			qt.Assert(t, qt.Equals(outcome, tc.outcome))
			qt.Assert(t, qt.Matches(reason, tc.reason))
		})
	}
}

func TestKernel(t *testing.T) {
	Only(t, "others have no version", "linux")
	outcome, _ := record(func(t testing.TB) { Kernel(t, "2.6", "links") })
	qt.Check(t, qt.Equals(outcome, "passed"))
	outcome, reason := record(func(t testing.TB) { Kernel(t, "999.1", "links") })
	qt.Check(t, qt.Equals(outcome, "skipped"))
	qt.Check(t, qt.Equals(reason, "needs Linux 999.1: links"))
	outcome, _ = record(func(t testing.TB) { Kernel(t, "newest", "links") })
	qt.Check(t, qt.Equals(outcome, "failed"))
}

func TestVersionsAreRead(t *testing.T) {
	for text, want := range map[string][2]int{
		"6.12.48+deb13-cloud-amd64": {6, 12}, "7.0-rc3": {7, 0}, "6.6": {6, 6}, "6.6.1": {6, 6},
	} {
		v, err := parseVersion(text)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(v, want))
	}
	_, err := parseVersion("six")
	qt.Check(t, qt.ErrorMatches(err, `kernel version "six": .*`))
}

func TestMissing(t *testing.T) {
	missing := func(t testing.TB) { Missing(t, "needs %s", "a database") }
	tool := func(t testing.TB) { Tool(t, "no-such-program", "nothing") }
	for _, tc := range []struct{ ci, outcome string }{{"true", "failed"}, {"", "skipped"}} {
		t.Setenv("CI", tc.ci)
		outcome, reason := record(missing)
		qt.Check(t, qt.Equals(outcome, tc.outcome))
		qt.Check(t, qt.Equals(reason, "needs a database"))
		outcome, reason = record(tool)
		qt.Check(t, qt.Equals(outcome, tc.outcome))
		qt.Check(t, qt.Matches(reason, `needs no-such-program \(Debian: nothing\): .*`))
	}
}

func TestOnly(t *testing.T) {
	for _, tc := range []struct{ name, outcome, reason string }{
		{runtime.GOARCH, "passed", ""},
		{runtime.GOOS, "passed", ""},
		{"vax", "skipped", "only on vax: others have no such nop"},
	} {
		outcome, reason := record(func(t testing.TB) {
			Only(t, "others have no such nop", tc.name)
		})
		qt.Check(t, qt.Equals(outcome, tc.outcome))
		qt.Check(t, qt.Equals(reason, tc.reason))
	}
}

func TestGuest(t *testing.T) {
	t.Setenv(guestVariable, "s390x/6.12")
	outcome, _ := record(func(t testing.TB) { qt.Check(t, qt.Equals(Guest(t), "s390x/6.12")) })
	qt.Check(t, qt.Equals(outcome, "passed"))
	t.Setenv(guestVariable, "")
	outcome, reason := record(func(t testing.TB) { Guest(t) })
	qt.Check(t, qt.Equals(outcome, "skipped"))
	qt.Check(t, qt.Matches(reason, "only on an emulated machine.*"))
}

func TestPatienceIsAtLeastTheUsualAndBounded(t *testing.T) {
	got := Patience(time.Minute)
	qt.Assert(t, qt.IsTrue(got >= time.Minute), qt.Commentf("%v", got))
	qt.Assert(t, qt.IsTrue(got <= mostPatience*time.Minute), qt.Commentf("%v", got))
	t.Logf("work takes %.1f times as long as usual, and %.1f tasks want each processor", slowness(),
		load())
}
