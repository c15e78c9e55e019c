// SPDX-License-Identifier: BSD-2-Clause

package matrix

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

func names(list []platform.Kernel) string {
	var words []string
	for _, k := range list {
		words = append(words, k.String())
	}
	return strings.Join(words, " ")
}

func TestKernelsAreChosen(t *testing.T) {
	all := platform.All()
	for _, tt := range []struct {
		quick      bool
		only, want string
	}{
		{false, "s390x", "s390x/6.1 s390x/6.12 s390x/newest"},
		{true, "s390x", "s390x/newest"},
		{false, "5.10", "amd64/5.10 arm64/5.10"},
		{false, "riscv64/6.12,amd64/6.1", "riscv64/6.12 amd64/6.1"},
		{false, "arm64/6.17", "arm64/6.17"},
		{true, "", "amd64/5.10 amd64/newest arm64/newest s390x/newest"},
		{false, "", names(all)},
	} {
		list, err := choose(all, tt.quick, tt.only)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(names(list), tt.want), qt.Commentf("quick %v only %q", tt.quick, tt.only))
	}
	_, err := choose(all, false, "vax")
	qt.Check(t, qt.ErrorMatches(err, "-only vax: .*"))
}

const events = `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:3: gousdt-mode: multi+cookie\n"}
{"Action":"pass","Test":"TestA","Elapsed":0}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/one"}
{"Action":"output","Test":"TestB/one","Output":"=== RUN   TestB/one\n"}
{"Action":"output","Test":"TestB/one","Output":"    b_test.go:7: needs Linux 6.6\n"}
{"Action":"output","Test":"TestB/one","Output":"--- SKIP: TestB/one (0.00s)\n"}
{"Action":"skip","Test":"TestB/one"}
{"Action":"run","Test":"TestB/two"}
{"Action":"output","Test":"TestB/two","Output":"    b_test.go:9: wrong\n"}
{"Action":"fail","Test":"TestB/two"}
{"Action":"fail","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestC/fine"}
{"Action":"pass","Test":"TestC/fine"}
{"Action":"output","Test":"TestC","Output":"    c_test.go:1: the parent itself\n"}
{"Action":"fail","Test":"TestC"}
{"Action":"output","Output":"FAIL\n"}
{"Action":"fail"}
`

func TestSubtestsCountInsteadOfTheirParents(t *testing.T) {
	got, err := readEvents(strings.NewReader(events))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(got.modes, []string{"multi+cookie"}))
	qt.Check(t, qt.Equals(got.passed, 2))
	qt.Check(t, qt.Equals(got.last, "FAIL\n"))
	qt.Assert(t, qt.HasLen(got.skips, 1))
	qt.Check(t, qt.Equals(got.skips[0], skip{"TestB/one", "needs Linux 6.6"}))
	qt.Assert(t, qt.HasLen(got.failures, 2))
	qt.Check(t, qt.Equals(got.failures[0], failure{"TestB/two", "    b_test.go:9: wrong\n"}))
	qt.Check(t, qt.Equals(got.failures[1], failure{"TestC", "    c_test.go:1: the parent itself\n"}))
}

func TestHangingTestIsNamed(t *testing.T) {
	cut := strings.Index(events, `{"Action":"run","Test":"TestC"}`)
	got, err := readEvents(strings.NewReader(events[:cut] + `{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestC/hangs"}
{"Action":"output","Test":"TestC/hangs","Output":"panic: test timed out\n"}
{"Action":"fail"}
`))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(got.failures, 2))
	qt.Check(t, qt.Equals(got.failures[1], failure{"TestC/hangs", "panic: test timed out\nit did not come to an end\n"}))
}

func TestWhatNoTestTellsIsAFailure(t *testing.T) {
	for _, tt := range []struct {
		name     string
		tests    tests
		ended    bool
		status   int
		selected bool
		want     string
	}{
		{"all is well", tests{passed: 1}, true, 0, false, ""},
		{"the test tells", tests{passed: 1, failures: []failure{{"TestX", "why"}}}, true, 1, false, "why"},
		{"exit", tests{passed: 1, last: "bye"}, true, 2, false, "the tests ended with status 2\nbye"},
		{"hang", tests{passed: 1}, false, 0, false, "the tests did not come to an end\n"},
		{"nothing passed", tests{skips: []skip{{"TestX", "no"}}}, true, 0, false, "no test passed\n"},
		{"nothing selected", tests{}, true, 0, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.tests.close(tt.ended, tt.status, tt.selected)
			if tt.want == "" {
				qt.Assert(t, qt.HasLen(tt.tests.failures, 0))
				return
			}
			qt.Assert(t, qt.HasLen(tt.tests.failures, 1))
			qt.Check(t, qt.Equals(tt.tests.failures[0].output, tt.want))
		})
	}
}

func TestReasonOfASkippedTest(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestX\n    x_test.go:1: first\n    x_test.go:2: the reason\n--- SKIP: TestX (0.00s)\n": "the reason",
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\n":                                                      "no reason given",
		"":                              "no reason given",
		"    a.go:1: needs a.go:2: x\n": "needs a.go:2: x",
	} {
		qt.Check(t, qt.Equals(skipReason(output), want), qt.Commentf("%q", output))
	}
}

func sample(t *testing.T) []row {
	t.Helper()
	all, err := choose(platform.All(), false, "amd64/5.10,amd64/6.1,amd64/6.12,s390x/6.12")
	qt.Assert(t, qt.IsNil(err))
	return []row{
		{kernel: all[0], version: "5.10.223-1", release: "5.10.0-32", modes: []string{"single+ip"}, passed: 5, total: 3 * time.Second,
			skips: []skip{{"usdt.TestA", "needs 6.6"}, {"usdt.TestB", "needs 6.6"}}},
		{kernel: all[1], version: "6.1.192-2", release: "6.1.0-56", passed: 7, total: 4 * time.Second,
			skips: []skip{{"usdt.TestA", "needs 6.6"}, {"usdt.TestB", "needs 6.6"}}, failures: []failure{{"usdt.TestC", "wrong\n"}}},
		{kernel: all[2], version: "6.12.1-1", trouble: errors.New("guest: Kernel panic")},
		{kernel: all[3], notRun: errors.New("no such suite")},
	}
}

func TestTableHasARowForEachKernel(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, sample(t))
	qt.Check(t, qt.Equals(out.String(), ""+
		"KERNEL  VERSION     MACHINE  MODE           PASSED  FAILED  SKIPPED  TIME\n"+
		"5.10    5.10.223-1  amd64    single+ip      5       0       2        3 s\n"+
		"6.1     6.1.192-2   amd64    -              7       1       2        4 s\n"+
		"6.12    6.12.1-1    amd64    did not start          FAILED           \n"+
		"6.12                s390x    not run                                 \n"))

	out.Reset()
	printMarkdown(&out, sample(t)[:1])
	qt.Check(t, qt.Equals(out.String(), ""+
		"| kernel | version | machine | mode | passed | failed | skipped | time |\n"+
		"|---|---|---|---|---|---|---|---|\n"+
		"| 5.10 | 5.10.223-1 | amd64 | single+ip | 5 | 0 | 2 | 3 s |\n"))
}

func TestReasonsAreGrouped(t *testing.T) {
	var out bytes.Buffer
	printReasons(&out, sample(t))
	qt.Check(t, qt.Equals(out.String(), "\nSkipped:\n"+
		"  needs 6.6\n"+
		"    on     amd64/5.10 amd64/6.1\n"+
		"    tests  usdt.TestA usdt.TestB\n"+
		"\nNot run: s390x/6.12\n\tno such suite\n"))
}

func TestVerdictOfTheWholeMatrix(t *testing.T) {
	rows := sample(t)
	qt.Check(t, qt.ErrorMatches(verdict(rows), "tests failed on 2 of 3 kernels"))
	qt.Check(t, qt.IsNil(verdict([]row{rows[0], rows[3]})), qt.Commentf("a kernel that was not run is no failure"))
	qt.Check(t, qt.ErrorMatches(verdict(rows[3:]), "no kernel was run"))
	qt.Check(t, qt.ErrorMatches(verdict(rows[2:3]), "tests failed on 1 of 1 kernels"))
}
