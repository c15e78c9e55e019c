// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Processes and files that do not answer are left out, and the others listed.
// The command ends by itself, and by a signal while it waits for one of them.
func TestHostileUsersDoNotKeepItFromEnding(t *testing.T) {
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	innocent := testprog.Start(t, "target-pie")
	start := func(arguments ...string) (command *exec.Cmd, out *bytes.Buffer) {
		out = new(bytes.Buffer)
		command = exec.Command("/proc/self/exe", arguments...)
		command.Env = append(os.Environ(), runVariable+"=1")
		command.Stdout, command.Stderr = out, out
		command.WaitDelay = time.Millisecond // what it leaves behind has the pipe
		qt.Assert(t, qt.IsNil(command.Start()))
		return command, out
	}
	costs := testprog.StartCosts(t)
	began := time.Now()
	command, out := start("-a", "gousdt_test:three")
	_ = command.Wait() // what is left out is an error
	took := time.Since(began)
	qt.Check(t, qt.StringContains(out.String(), testprog.Path(t, "target-pie")))
	qt.Check(t, qt.IsTrue(took < testneeds.Patience(2*time.Second)), qt.Commentf("listed in %v", took))
	costs.Report(2, "usdtlist -a", "does not end", "ends", took)
	for pid, what := range hostile {
		t.Run(what, func(t *testing.T) {
			command, _ := start("-p", fmt.Sprint(pid))
			began := time.Now()
			_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = command.Wait()
			took := time.Since(began)
			qt.Check(t, qt.IsTrue(took < testneeds.Patience(2*time.Second)), qt.Commentf("ended after %v", took))
		})
	}
	innocent.Stop()
}
