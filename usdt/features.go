// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/gousdt/gousdt/internal/unsupported"
	"golang.org/x/sys/unix"
)

// uprobePMURefCtr exists where perf events on uprobes count semaphores. The
// multi link counts them by itself.
const uprobePMURefCtr = "/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset"

// kernelModes says which modes the running kernel has.
type kernelModes struct {
	cookie bool // a program attached to a perf event can be given a BPF cookie
	multi  bool // there are uprobe_multi links

	// multiPID says that a uprobe_multi link restricted to a PID means the
	// whole process. Linux 6.6 to 6.9 without kernel commit 46ba0e49b642 mean
	// one thread.
	multiPID bool
}

// best returns what ModeAuto stands for.
func (k kernelModes) best() Mode {
	switch {
	case k.multi && k.multiPID:
		return ModeMulti
	case k.cookie:
		return ModeSingle
	default:
		return ModeSingleIPMap
	}
}

func (k kernelModes) supports(m Mode) error {
	switch {
	case m == ModeMulti && !k.multi:
		return &unsupported.Error{Feature: "uprobe_multi links", Since: "6.6"}
	case m == ModeSingle && !k.cookie:
		return &unsupported.Error{Feature: "BPF cookies on uprobes", Since: "5.15"}
	default:
		return nil
	}
}

// askKernel finds out by trying.
func askKernel() (k kernelModes, err error) {
	if k.cookie, err = supported(features.HaveProgramHelper(ebpf.Kprobe,
		asm.FnGetAttachCookie)); err != nil {
		return k, explain("asking for BPF cookies", err)
	}

	// This must be asked before any multi link is tried: an older kernel
	// answers EINVAL to the link.
	if k.multi, err = supported(features.HaveBPFLinkUprobeMulti()); err != nil {
		return k, explain("asking for uprobe_multi links", err)
	}
	if k.multi {
		if k.multiPID, err = rightPIDFilter(); err != nil {
			return k, explain("asking for the PID filter of uprobe_multi links", err)
		}
	}
	return k, nil
}

// pidFilter keeps what multiPIDFilter answered: a kernel does not change.
var pidFilter struct {
	sync.Mutex
	known, right bool
}

func rightPIDFilter() (bool, error) {
	pidFilter.Lock()
	defer pidFilter.Unlock()
	if !pidFilter.known {
		right, err := multiPIDFilter()
		if err != nil {
			return false, err
		}
		pidFilter.known, pidFilter.right = true, right
	}
	return pidFilter.right, nil
}

// requirePIDFilter returns an error if a uprobe_multi link for a PID would be
// one for a single thread.
func requirePIDFilter() error {
	right, err := rightPIDFilter()
	if err != nil {
		return explain("asking for the PID filter of uprobe_multi links", err)
	}
	if !right {
		return &unsupported.Error{Feature: "uprobe_multi links for a process with all its threads",
			Since: "6.10, or kernel commit " +
				"46ba0e49b642", Hint: "attach in another mode, or without PID"}
	}
	return nil
}

// multiPIDFilter reports whether the kernel takes the PID of a uprobe_multi
// link for a process, and not for a thread.
//
// The latter also check it before the path: a negative PID is EINVAL there,
// where the former go on and find that the path is no regular file. Nothing is
// attached either way.
func multiPIDFilter() (bool, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "usdt_pid_filter",
		Type:         ebpf.Kprobe,
		AttachType:   ebpf.AttachTraceUprobeMulti,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		return false, err
	}
	defer prog.Close()

	root, err := link.OpenExecutable("/")
	if err != nil {
		return false, err
	}
	lnk, err := root.UprobeMulti(nil, prog,
		&link.UprobeMultiOptions{Addresses: []uint64{1}, PID: math.MaxUint32})
	switch {
	case err == nil:
		lnk.Close()
		return false, errors.New("a uprobe_multi link to a directory was accepted")
	case errors.Is(err, unix.EINVAL):
		return true, nil
	case errors.Is(err, unix.EBADF):
		return false, nil
	default:
		return false, err
	}
}

func supported(err error) (bool, error) {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	return err == nil, err
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for uprobes: %w", err)
	}
	return true, nil
}
