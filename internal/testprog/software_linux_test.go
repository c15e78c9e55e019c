// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestPythonCallsAndCollects(t *testing.T) {
	LeakCheck(t)
	p := StartPython(t)
	p.Do("call")
	p.Do("collect")
	script, err := os.ReadFile(p.Script)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(string(script), pythonScript))
	qt.Assert(t, qt.Equals(p.Line, 7))
	qt.Assert(t, qt.IsTrue(hasProbes(p.File)))
}

func TestThrowThrows(t *testing.T) {
	LeakCheck(t)
	p := StartThrow(t)
	p.Do("throw")
	qt.Assert(t, qt.StringContains(p.File, "libstdc++"))
}

func TestPostgresAnswersAndStops(t *testing.T) {
	var pid int
	var dir string
	t.Run("run", func(t *testing.T) {
		LeakCheck(t)
		p := StartPostgres(t)
		pid, dir = p.PID, p.SocketDir
		qt.Assert(t, qt.Equals(p.Query("SELECT 6 * 7"), "42"))
		qt.Assert(t, qt.Not(qt.Equals(p.Query("SELECT pg_backend_pid()"), strconv.Itoa(p.PID))))
	})
	if t.Failed() || pid == 0 {
		return
	}
	qt.Assert(t, qt.ErrorIs(syscall.Kill(pid, 0), syscall.ESRCH))
	_, err := os.Stat(dir)
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
}
