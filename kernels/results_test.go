// SPDX-License-Identifier: BSD-2-Clause

package main

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

func read(t *testing.T, text string) *results {
	t.Helper()
	all, err := readEvents([]byte(text))
	qt.Assert(t, qt.IsNil(err))
	return all
}

func TestSubtestsThatFailedCountInsteadOfTheirParents(t *testing.T) {
	got := read(t, events)
	qt.Assert(t, qt.HasLen(got.failed, 2))
	qt.Check(t, qt.Equals(got.failed[0], test{"TestB/two", "    b_test.go:9: wrong\n"}))
	qt.Check(t, qt.Equals(got.failed[1], test{"TestC", "    c_test.go:1: the parent itself\n"}))
	qt.Assert(t, qt.HasLen(got.skipped, 1))
	qt.Check(t, qt.Equals(got.skipped[0], test{"TestB/one", "    b_test.go:7: needs Linux 6.6\n"}))
	qt.Check(t, qt.Equals(got.output, "FAIL\n"))
	qt.Check(t, qt.Equals(got.passed, 2))
}

func TestTheTestThatHangsIsAmongTheFailed(t *testing.T) {
	cut := strings.Index(events, `{"Action":"run","Test":"TestC"}`)
	got := read(t, events[:cut]+`{"Action":"run","Test":"TestC"}
{"Action":"run","Test":"TestC/hangs"}
{"Action":"output","Test":"TestC/hangs","Output":"    c_test.go:2: waits\n"}
{"Action":"fail"}
`)
	qt.Assert(t, qt.HasLen(got.failed, 2))
	qt.Check(t, qt.Equals(got.failed[1], test{"TestC/hangs", "    c_test.go:2: waits\n"}))
}

func TestSkipReason(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestX\n    x_test.go:1: first\n" +
			"    x_test.go:2: the reason\n--- SKIP: TestX (0.00s)\n": "the reason",
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\n": "no reason given",
		"":                              "no reason given",
		"    a.go:1: needs a.go:2: x\n": "needs a.go:2: x",
	} {
		qt.Check(t, qt.Equals(test{output: output}.skipReason(), want), qt.Commentf("%q", output))
	}
}
