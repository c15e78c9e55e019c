// SPDX-License-Identifier: BSD-2-Clause

package testresults

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

const events = `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:3: text\n"}
{"Action":"pass","Test":"TestA","Elapsed":0}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/one"}
{"Action":"output","Test":"TestB/one","Output":"    b_test.go:7: needs Linux 6.6\n"}
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

func read(t *testing.T, text string) []*Package {
	t.Helper()
	var packages []*Package
	err := Read(strings.NewReader(text), func(p *Package) { packages = append(packages, p) })
	qt.Assert(t, qt.IsNil(err))
	return packages
}

func TestReadCountsSubtestsInsteadOfTheirParents(t *testing.T) {
	got := read(t, events)
	qt.Assert(t, qt.HasLen(got, 1))
	qt.Check(t, qt.DeepEquals(got[0], &Package{
		Passed: 2,
		Failed: []Test{{"TestB/two", "    b_test.go:9: wrong\n"},
			{"TestC", "    c_test.go:1: the parent itself\n"}},
		Skipped: []Test{{"TestB/one", "    b_test.go:7: needs Linux 6.6\n"}},
		Output:  "FAIL\n",
		Verdict: "fail",
	}))
}

func TestReadNamesTheTestThatHangs(t *testing.T) {
	cut := strings.Index(events, `{"Action":"run","Test":"TestC"}`)
	got := read(t, events[:cut]+`{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestC/hangs"}
{"Action":"output","Test":"TestC/hangs","Output":"panic: test timed out\n"}
{"Action":"fail"}
`)
	qt.Assert(t, qt.HasLen(got, 1))
	qt.Assert(t, qt.HasLen(got[0].Failed, 2))
	qt.Check(t, qt.Equals(got[0].Failed[1], Test{"TestC/hangs",
		"panic: test timed out\nit did not come to an end\n"}))
}

func TestReadTellsPackagesApart(t *testing.T) {
	got := read(t, `{"Action":"start","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"run","Package":"b","Test":"TestX"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"b","Test":"TestX"}
{"Action":"pass","Package":"b","Elapsed":1.5}
{"Action":"fail","Package":"a","Test":"TestX"}
{"Action":"fail","Package":"a"}
`)
	qt.Assert(t, qt.HasLen(got, 2))
	qt.Check(t, qt.Equals(got[0].Path, "b"))
	qt.Check(t, qt.Equals(got[0].Elapsed.Milliseconds(), 1500))
	qt.Check(t, qt.Equals(got[0].Passed, 1))
	qt.Check(t, qt.Equals(got[1].Path, "a"))
	qt.Check(t, qt.HasLen(got[1].Failed, 1))
}

func TestReadCountsBenchmarks(t *testing.T) {
	got := read(t, `{"Action":"run","Test":"BenchmarkX"}
{"Action":"run","Test":"BenchmarkX/one"}
{"Action":"output","Test":"BenchmarkX/one","Output":"BenchmarkX/one  1  7 ns/op\n"}
{"Action":"run","Test":"BenchmarkX/two"}
{"Action":"fail","Test":"BenchmarkX/two"}
{"Action":"fail"}
`)
	qt.Assert(t, qt.HasLen(got, 1))
	qt.Check(t, qt.Equals(got[0].Passed, 1))
	qt.Assert(t, qt.HasLen(got[0].Failed, 1))
	qt.Check(t, qt.Equals(got[0].Failed[0].Name, "BenchmarkX/two"))
}

func TestReadShowsWhatDoesNotCompile(t *testing.T) {
	got := read(t, `{"ImportPath":"a [a.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"a [a.test]","Action":"build-fail"}
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"FAIL\ta [build failed]\n"}
{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}
`)
	qt.Assert(t, qt.HasLen(got, 1))
	qt.Check(t, qt.Equals(got[0].Output, "a.go:1: undefined: x\nFAIL\ta [build failed]\n"))
	qt.Check(t, qt.Equals(got[0].Verdict, "fail"))
}

func TestReadRefusesWhatIsNotJSON(t *testing.T) {
	err := Read(strings.NewReader("ok a 0.1s\n"), func(*Package) {})
	qt.Check(t, qt.ErrorMatches(err, "reading test results: .*"))
}

func TestSkipReason(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestX\n    x_test.go:1: first\n" +
			"    x_test.go:2: the reason\n--- SKIP: TestX (0.00s)\n": "the reason",
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\n": "no reason given",
		"":                              "no reason given",
		"    a.go:1: needs a.go:2: x\n": "needs a.go:2: x",
	} {
		qt.Check(t, qt.Equals(Test{Output: output}.SkipReason(), want), qt.Commentf("%q", output))
	}
}
