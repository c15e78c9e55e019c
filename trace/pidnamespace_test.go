// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

const inNamespace = "GOUSDT_TEST_IN_PID_NAMESPACE"

// The test runs itself in a namespace, where its numbers are small.
func TestPIDNamespace(t *testing.T) {
	testprog.RequireBPF(t)
	if path := os.Getenv(inNamespace); path != "" {
		testInNamespace(t, path)
		return
	}
	unshare := []string{testneeds.Tool(t, "unshare", "util-linux"), "--pid", "--fork",
		"--kill-child", "--mount-proc"}
	if out, err := exec.Command(unshare[0], append(unshare[1:],
		"true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make PID namespaces: %v: %s", err, out)
	}
	outside := start(t, "target-pie")
	cmd := exec.Command(unshare[0], append(unshare[1:], os.Args[0], "-test.run=^"+t.Name()+"$",
		"-test.v")...)
	cmd.Env = append(os.Environ(), inNamespace+"="+outside.path)
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = os.Stderr
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer func() { qt.Check(t, qt.IsNil(cmd.Wait())) }()
	defer stdin.Close()
	var told strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&told, lines.Text())
		if lines.Text() == attached {
			outside.Fire("three", 1)
			fmt.Fprintln(stdin)
		}
	}
	qt.Check(t, qt.StringContains(told.String(), "--- PASS: "+t.Name()))
}

const attached = "attached"

func testInNamespace(t *testing.T, path string) {
	process := startFile(t, path)
	qt.Assert(t, qt.IsTrue(os.Getpid() < 100), qt.Commentf("PID %d", os.Getpid()))
	filtered := open(t, process, "three",
		&trace.SessionOptions{Filter: fmt.Sprintf("pid == %d && tid == %[1]d", process.PID)})
	all := open(t, process, "three", nil)
	byPID := trace.NewAggregator(trace.Aggregation{By: []string{"pid"}})
	open(t, process, "three", aggregating(byPID))
	fmt.Println(attached)
	_, err := os.Stdin.Read(make([]byte, 1)) // the process outside has hit the probe
	qt.Assert(t, qt.IsNil(err))
	process.Fire("three", 1)

	for i, event := range next(t, all, 2) {
		want := []int{0, process.PID}[i]
		qt.Check(t, qt.Equals(event.PID, want))
		qt.Check(t, qt.Equals(event.TID, want))
	}
	qt.Check(t, qt.Equals(next(t, filtered, 1)[0].PID, process.PID))
	silent(t, filtered)
	pids := map[string]uint64{}
	for _, row := range snapshot(t, byPID).Rows {
		pids[row.Keys[0].String()] = row.Count
	}
	qt.Check(t, qt.DeepEquals(pids, map[string]uint64{"0": 1, decimal(process.PID): 1}))
}
