// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

func TestProbesAreTurnedOnAndOff(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	in, commands := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(in, out, target)
		out.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(answers)
	say := func(command, want string) {
		t.Helper()
		_, err := fmt.Fprintln(commands, command)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(lines.Scan()), qt.Commentf("%v", lines.Err()))
		qt.Assert(t, qt.Matches(lines.Text(), want))
	}

	process.Fire("guarded", 1) // which is passed only if somebody is interested
	say("hits", "0 hits")
	hits := 0
	for range 3 {
		say("on gousdt_test:guarded", "on: 1 sites")
		say("on gousdt_test:inlined", "on: 5 sites")
		process.Fire("guarded", 10)
		process.Fire("inlined", 1)
		hits += 10 + 5
		say("hits", fmt.Sprint(hits, " hits"))

		say("off gousdt_test:guarded", "off")
		qt.Check(t, qt.Equals(process.Semaphore("guarded"), 0))
		process.Fire("guarded", 10)
		process.Fire("inlined", 1)
		hits += 5
		say("off gousdt_test:inlined", "off")
		process.Fire("inlined", 1)
		say("hits", fmt.Sprint(hits, " hits"))
	}
	say("off gousdt_test:inlined", "error: .*")
	say("on gousdt_test:no_such_probe", "error: .*")
	qt.Assert(t, qt.IsNil(commands.Close()))
	qt.Assert(t, qt.IsNil(<-done))
}
