// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func TestMissingCapabilities(t *testing.T) {
	status := []byte("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t000001ffffffffff\n")
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(status)), 0))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capBPF), []string{"CAP_PERFMON"}))
	qt.Check(t, qt.DeepEquals(missingCapabilities(1<<capPerfmon), []string{"CAP_BPF"}))
	qt.Check(t, qt.HasLen(missingCapabilities(1<<capSysAdmin), 0))
	qt.Check(t, qt.HasLen(missingCapabilities(effectiveCapabilities(nil)), 2))
}

func TestWhatIsReadAgainIsNotToldOfAmongAllProcesses(t *testing.T) {
	var out strings.Builder
	tr := &tracer{prepared: prepared{options: &options{},
		messages: commandline.NewMessages("usdttrace", &out)}}
	changed := fmt.Errorf("process 7: open /lib/x: %w", procfs.ErrChanged)
	tr.warnLeftOut(changed, false)
	qt.Check(t, qt.Equals(out.String(), ""))
	tr.warnLeftOut(fmt.Errorf("process 7: open /lib/x: %w", proc.ErrAccess), false)
	qt.Check(t, qt.Equals(out.String(), "")) // one is nearly always there
	tr.warnDenied(false)
	qt.Check(t, qt.Equals(out.String(), ""))
	tr.warnDenied(true) // nothing was found
	qt.Check(t, qt.StringContains(out.String(), "usdttrace: left out: 1 process, "))
	out.Reset()
	tr.warnLeftOut(changed, true)
	qt.Check(t, qt.StringContains(out.String(), "changed while it was read"))
	qt.Check(t, qt.IsTrue(tr.failed.Load()))
}

// What does not answer on a busy machine is attached as soon as it does: it
// ends nothing, and is no failure.
func TestWhatDoesNotAnswerYetIsNoFailure(t *testing.T) {
	var out strings.Builder
	tr := &tracer{prepared: prepared{options: &options{},
		messages: commandline.NewMessages("usdttrace", &out)}}
	f := &follower{tracer: tr, perProcess: true}
	self, err := proc.Find("", os.Getpid())
	qt.Assert(t, qt.IsNil(err))
	failed := &watch.Error{ProcessFile: proc.ProcessFile{Process: self, Path: "/lib/x"}, Err: proc.ErrBlocked}
	f.warn(failed)
	qt.Check(t, qt.StringContains(out.String(), "/lib/x: no answer from the process or its files"))
	f.warn(&procfs.Error{PID: self.PID, Op: "scan", Err: proc.ErrBlocked})
	// An error may name the file, which is not said twice.
	failed.Path, failed.Err = "/lib/y", fmt.Errorf("/lib/y: %w", proc.ErrBlocked)
	f.warn(failed)
	qt.Check(t, qt.Equals(strings.Count(out.String(), "/lib/y"), 1))
	qt.Check(t, qt.IsFalse(tr.failed.Load()))
}

func TestSumsThatAProfileCannotHoldAreSaid(t *testing.T) {
	var out strings.Builder
	tr := &tracer{prepared: prepared{options: &options{},
		messages: commandline.NewMessages("usdttrace", &out)}}
	qt.Check(t, qt.Equals(tr.profileSum(trace.ValueOf(int64(-5))), -5))
	qt.Check(t, qt.Equals(out.String(), ""))
	qt.Check(t, qt.Equals(tr.profileSum(trace.ValueOf(uint64(1<<63))), math.MaxInt64))
	qt.Check(t, qt.StringContains(out.String(), "the sum of a stack is 9223372036854775808: "+
		"the profile has 9223372036854775807"))
}
