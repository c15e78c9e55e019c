// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"gotest.tools/gotestsum/testjson"

	"github.com/gousdt/gousdt/tools/testresults"
)

func results(t *testing.T, events string) *testjson.Execution {
	t.Helper()
	all, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: strings.NewReader(events),
		Handler: testresults.Handler{}})
	qt.Assert(t, qt.IsNil(err))
	return all
}

func TestSkipsAreThoseOfAllPackages(t *testing.T) {
	got := skipsOf(results(t, `{"Action":"run","Package":"example.com/a","Test":"TestA"}
{"Action":"run","Package":"example.com/a","Test":"TestA/multi"}
{"Action":"output","Package":"example.com/a","Test":"TestA/multi","Output":"    x_test.go:1: needs Linux 6.6: links\n"}
{"Action":"skip","Package":"example.com/a","Test":"TestA/multi"}
{"Action":"pass","Package":"example.com/a","Test":"TestA"}
{"Action":"pass","Package":"example.com/a"}
{"Action":"skip","Package":"example.com/b"}
`))
	qt.Check(t, qt.DeepEquals(got,
		[]testresults.Skip{{Test: "a.TestA/multi", Reason: "needs Linux 6.6: links"}}))
}

func TestSkipsThatAreRefusedInCI(t *testing.T) {
	for reason, allowed := range map[string]bool{
		"needs Linux 6.6: links":           true,
		"only on amd64: others have none":  true,
		"needs readelf (Debian: binutils)": false,
		"no reason given":                  false,
	} {
		err := refused([]testresults.Skip{{Test: "a.TestA", Reason: reason}})
		qt.Check(t, qt.Equals(err == nil, allowed), qt.Commentf("%s: %v", reason, err))
	}
}

func TestTestCommand(t *testing.T) {
	sudo := []string{"sudo", "env", "PATH=/bin"}
	qt.Check(t, qt.DeepEquals(testCommand([]string{"-C", "..", "-race", "./..."}, sudo),
		[]string{"test", "-C", "..", "-json", "-exec", "sudo env PATH=/bin", "-race", "./..."}))
	qt.Check(t,
		qt.DeepEquals(testCommand([]string{"./..."}, nil), []string{"test", "-json", "./..."}))
}
