// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/tools/testresults"
)

func skipped(name, reason string) testresults.Test {
	return testresults.Test{Name: name, Output: "    x_test.go:1: " + reason + "\n"}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := report{w: &out}
	r.add(&testresults.Package{Path: "example.com/a", Passed: 3, Verdict: "pass",
		Elapsed: 1500 * time.Millisecond,
		Skipped: []testresults.Test{skipped("TestA/multi", "needs Linux 6.6: links")}})
	r.add(&testresults.Package{Path: "example.com/b", Verdict: "skip"})
	r.add(&testresults.Package{Path: "example.com/c", Verdict: "fail", Output: "exit status 1\n",
		Failed: []testresults.Test{{Name: "TestC", Output: "    c_test.go:3: wrong\n"}}})
	r.printSkips()
	qt.Check(t, qt.Equals(out.String(), ""+
		"ok   example.com/a                                                   1.5 s  3 passed, 1 skipped\n"+
		"-    example.com/b                                                   0.0 s  0 passed\n"+
		"FAIL c.TestC\n    c_test.go:3: wrong\nexit status 1\n"+
		"FAIL example.com/c                                                   0.0 s  0 passed, 1 failed\n"+
		"\nSkipped:\n  needs Linux 6.6: links\n    tests  a.TestA/multi\n"))
	qt.Check(t, qt.Equals(r.failed, 1))
}

func TestSkipsThatAreRefusedInCI(t *testing.T) {
	for reason, allowed := range map[string]bool{
		"needs Linux 6.6: links":           true,
		"only on amd64: others have none":  true,
		"needs readelf (Debian: binutils)": false,
		"no reason given":                  false,
	} {
		r := report{w: &bytes.Buffer{}}
		r.add(&testresults.Package{Path: "a", Passed: 1, Verdict: "pass",
			Skipped: []testresults.Test{skipped("TestA", reason)}})
		qt.Check(t, qt.Equals(r.refused() == nil, allowed),
			qt.Commentf("%s: %v", reason, r.refused()))
	}
}

func TestTestCommand(t *testing.T) {
	sudo := []string{"sudo", "env", "PATH=/bin"}
	qt.Check(t, qt.DeepEquals(testCommand([]string{"-C", "..", "-race", "./..."}, sudo),
		[]string{"test", "-C", "..", "-json", "-exec", "sudo env PATH=/bin", "-race", "./..."}))
	qt.Check(t,
		qt.DeepEquals(testCommand([]string{"./..."}, nil), []string{"test", "-json", "./..."}))
}
