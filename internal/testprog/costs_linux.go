// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// costsVariable names the file for the table of make test-hostile.
const costsVariable = "GOUSDT_HOSTILE"

// IsComplete reports whether tests of what users of the host may try are to do
// it in full, as make test-hostile has them do.
func IsComplete() bool { return os.Getenv(costsVariable) != "" }

// InTime returns how long something may take that hostile users try to delay
// for ever: what is promised where make test-hostile measures it, and more
// where the machine may have been busy with anything else for some seconds.
func InTime(promised time.Duration) time.Duration {
	if IsComplete() {
		return testneeds.Patience(promised)
	}
	return testneeds.Patience(answerDeadline)
}

// Costs are what this process spends from some time on.
type Costs struct {
	t   testing.TB
	cpu time.Duration
}

// StartCosts begins to measure.
func StartCosts(t testing.TB) *Costs {
	t.Helper()
	debug.FreeOSMemory()  // of what was before
	const resetPeak = "5" // see proc_pid_clear_refs(5)
	err := os.WriteFile("/proc/self/clear_refs", []byte(resetPeak), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without it counts from the start
		t.Fatal(err)
	}
	return &Costs{t, processorTime(t)}
}

// CPU returns how much of the processors has been used.
func (c *Costs) CPU() time.Duration {
	c.t.Helper()
	return processorTime(c.t) - c.cpu
}

// Report adds a row to the table of make test-hostile: what was attacked, by a
// number of SECURITY.md's list, what that did when nothing was done against it,
// what it does now, and how late a process of somebody else was attached.
func (c *Costs) Report(number int, attack, before, now string, late time.Duration) {
	c.t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.t.Fatal(err)
	}
	row := fmt.Sprintf("%d | %s | %s | %s | %.2f s | %.2f s | %d MB | %d\n", number, attack,
		before, now,
		late.Seconds(), (processorTime(c.t) - c.cpu).Seconds(), peakMemory(c.t)>>20,
		len(descriptors))
	c.t.Log(row)
	if !IsComplete() {
		return
	}
	table, err := os.OpenFile(os.Getenv(costsVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		c.t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.WriteString(row); err != nil {
		c.t.Fatal(err)
	}
}

// peakMemory returns how many bytes of memory this process had at most.
func peakMemory(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	kilobytes, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// processorTime returns how much of the processors this process has used.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
