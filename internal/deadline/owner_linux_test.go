// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// The files of a process that is ending are root's, but its user is the same.
func TestUserStaysToTheEnd(t *testing.T) {
	testneeds.Root(t)
	command := exec.Command("sleep", "inf")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	qt.Assert(t, qt.IsNil(command.Start()))
	defer command.Wait()
	defer command.Process.Kill()
	pid := command.Process.Pid
	isNobody := func() {
		uid, ok := userOf("/proc", pid)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(uid, 65534))
	}
	isNobody()

	qt.Assert(t, qt.IsNil(command.Process.Kill()))
	qt.Assert(t, qt.IsNil(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)))
	isNobody()
}
