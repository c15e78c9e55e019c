// SPDX-License-Identifier: BSD-2-Clause

package main

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
		{true, "amd64", "amd64/5.10 amd64/newest"},
		{false, "5.10", "amd64/5.10 arm64/5.10"},
		{false, "riscv64/6.12,amd64/6.1", "riscv64/6.12 amd64/6.1"},
		{false, "arm64/6.17", "arm64/6.17"},
		{false, "arm64=/boot/vmlinuz", "arm64"},
		{true, "", "amd64/5.10 amd64/newest"},
		{false, "", names(all)},
	} {
		list, err := choose(all, tt.quick, tt.only)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(names(list), tt.want),
			qt.Commentf("quick %v only %q", tt.quick, tt.only))
	}
	_, err := choose(all, false, "vax")
	qt.Check(t, qt.ErrorMatches(err, "-only vax: .*"))
}

func TestWhatNoTestTellsIsAFailure(t *testing.T) {
	failed := []test{{name: "TestX", output: "why"}}
	for _, tt := range []struct {
		name     string
		result   results
		ended    bool
		status   int
		selected bool
		want     string
	}{
		{"all is well", results{passed: 1}, true, 0, false, ""},
		{"the test tells", results{passed: 1, failed: failed}, true, 1, false, "why"},
		{"exit", results{passed: 1, output: "bye"}, true, 2, false,
			"the tests ended with status 2\nbye"},
		{"hang", results{passed: 1}, false, 0, false,
			"the tests did not come to an end\n"},
		{"nothing passed", results{skipped: failed}, true, 0, false,
			"no test passed\n"},
		{"nothing selected", results{}, true, 0, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.result.verdict(tt.ended, tt.status, tt.selected)
			if tt.want == "" {
				qt.Assert(t, qt.HasLen(tt.result.failed, 0))
				return
			}
			qt.Assert(t, qt.HasLen(tt.result.failed, 1))
			qt.Check(t, qt.Equals(tt.result.failed[0].output, tt.want))
		})
	}
}

func TestModesAreFound(t *testing.T) {
	output := "    a_test.go:3: gousdt-mode: single+ip\nok\n    b_test.go:4: gousdt-mode: multi+cookie\n    gousdt-mode: single+ip\n"
	qt.Check(t, qt.DeepEquals(findModes([]byte(output)), []string{"multi+cookie", "single+ip"}))
}

func sample(t *testing.T) []row {
	t.Helper()
	all, err := choose(platform.All(), false, "amd64/5.10,amd64/6.1,amd64/6.12,s390x/6.12")
	qt.Assert(t, qt.IsNil(err))
	return []row{
		{kernel: all[0], version: "5.10.223-1", release: "5.10.0-32", modes: []string{"single+ip"},
			passed: 5, total: 3 * time.Second,
			skipped: []test{{name: "usdt.TestA", output: "needs 6.6"},
				{name: "usdt.TestB", output: "needs 6.6"}}},
		{kernel: all[1], version: "6.1.192-2", release: "6.1.0-56", passed: 7,
			total: 4 * time.Second,
			skipped: []test{{name: "usdt.TestA", output: "needs 6.6"},
				{name: "usdt.TestB",
					output: "needs 6.6"}}, failed: []test{{name: "usdt.TestC",
				output: "wrong\n"}}},
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

func TestNewerKernelsThanKnownAreTold(t *testing.T) {
	for release, want := range map[string]string{
		"7.3.4+deb13-cloud-amd64":  "",
		"6.12.107+deb13-arm64":     "",
		"7.3":                      "",
		"":                         "",
		"7.10.1+deb14-cloud-amd64": "\nLinux 7.10 is newer than 7.3, .*\n",
		"8.0":                      "\nLinux 8.0 is newer than 7.3, .*\n",
	} {
		var out bytes.Buffer
		printNews(&out, []row{{release: release}}, "7.3")
		qt.Check(t, qt.Matches(out.String(), "(?s)"+want),
			qt.Commentf("%s", release))
	}
}

func TestVerdictOfTheWholeMatrix(t *testing.T) {
	rows := sample(t)
	qt.Check(t, qt.ErrorMatches(verdict(rows), "tests failed on 2 of 3 kernels"))
	qt.Check(t, qt.IsNil(verdict([]row{rows[0], rows[3]})),
		qt.Commentf("a kernel that was not run is no failure"))
	qt.Check(t, qt.ErrorMatches(verdict(rows[3:]), "no kernel was run"))
	qt.Check(t, qt.ErrorMatches(verdict(rows[2:3]), "tests failed on 1 of 1 kernels"))
}
