// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestAttachRawAttachesAsTheProgramWasLoaded(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := askKernel()
	qt.Assert(t, qt.IsNil(err))
	path := testprog.Path(t, "target-static")
	sel, err := Select(Target{Path: path}, elfnote.Exact("gousdt_test", "three"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	attach := func(t *testing.T, attachType ebpf.AttachType, cookies []uint64, want Mode) {
		t.Helper()
		prog, err := trialProgram(attachType)
		qt.Assert(t, qt.IsNil(err))
		defer prog.Close()
		lnk, err := sel.AttachRaw(prog, cookies)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(lnk.mode, want))
		qt.Check(t, qt.IsNil(lnk.Close()))
	}
	single := ModeSingleIPMap
	if kernel.cookie {
		single = ModeSingle
		attach(t, ebpf.AttachNone, []uint64{7}, single)
	}
	attach(t, ebpf.AttachNone, nil, single)
	if kernel.multi {
		attach(t, ebpf.AttachTraceUprobeMulti, []uint64{7}, ModeMulti)
		attach(t, ebpf.AttachTraceUprobeMulti, nil, ModeMulti)
	}
}

// Linux 6.6 to 6.9 would attach to the main thread alone, without an error.
func TestAttachRefusesMultiLinksForAThread(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Kernel(t, "6.6", "uprobe_multi links")
	known, right := pidFilter.known, pidFilter.right
	pidFilter.known, pidFilter.right = true, false
	defer func() { pidFilter.known, pidFilter.right = known, right }()
	mode, err := ModeAuto.Resolve()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Not(qt.Equals(mode, ModeMulti)))

	prog, err := trialProgram(ebpf.AttachTraceUprobeMulti)
	qt.Assert(t, qt.IsNil(err))
	defer prog.Close()
	sel, err := Select(Target{Path: testprog.Path(t, "target-static")},
		elfnote.Exact("gousdt_test", "three"))
	qt.Assert(t, qt.IsNil(err))
	defer sel.Close()
	_, err = sel.ForPID(os.Getpid(), "").AttachRaw(prog, nil)
	qt.Assert(t, qt.ErrorIs(err, errors.ErrUnsupported))

	lnk, err := sel.AttachRaw(prog, nil) // without a PID it is supported
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(lnk.Close()))
}
