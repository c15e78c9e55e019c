// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/sys"
)

// Mode is the kernel's mechanism by which programs are attached: a uprobe_multi
// link or perf events, with or without BPF cookies. Choose it before programs
// are loaded: the two mechanisms need different attach types.
type Mode uint8

const (
	// ModeAuto stands for the first of the other modes that the kernel has in
	// full.
	ModeAuto Mode = iota

	// ModeMulti attaches all sites by one uprobe_multi link, each with a BPF
	// cookie. It needs Linux 6.6 (kernel commit 89ae89f53d20).
	//
	// To attach to one process it needs Linux 6.10, or a stable kernel with
	// commit 46ba0e49b642. Other kernels would attach to one thread, so
	// attaching for a PID is [errors.ErrUnsupported] there.
	ModeMulti

	// ModeSingle attaches by perf events, with BPF cookies. It needs Linux 5.15
	// (kernel commit 7adfc6c9b315). Detaching takes about 0.1 s for each perf
	// event. Sites with one spec share a perf event where tracefs can be
	// written; without it each site has its own.
	ModeSingle

	// ModeSingleIPMap attaches by perf events, and needs no BPF cookies: it
	// works on all kernels that this package supports, from Linux 5.10 on. A
	// generated program is attached, which finds the site by the low bits of
	// the instruction pointer, those within a page, and makes a tail call to
	// the program that was given: one of the 33 that the kernel allows in a
	// row. All sites of a file share a perf event where tracefs can be written,
	// unless they have the same low bits and different specs.
	//
	// A sleepable program (Linux 6.0) cannot be called so, and is attached as
	// in ModeSingle. On kernels with BPF cookies, on which nothing needs this
	// mode, a hit may find no spec, if it is preempted by another thread with
	// the same number modulo 4,096.
	ModeSingleIPMap
)

// String returns "auto", "multi+cookie", "single+cookie" or "single+ip".
func (m Mode) String() string {
	names := [...]string{"auto", "multi+cookie", "single+cookie", "single+ip"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Resolve asks the running kernel, by trying, whether it has a mode, and
// returns the mode that programs are attached in. For ModeAuto that is
// ModeMulti if its PID filter is right, see [ModeMulti]; else ModeSingle if
// there are BPF cookies; else ModeSingleIPMap. For the others it is the mode
// itself.
//
// The error wraps [errors.ErrUnsupported] if the kernel does not have the mode,
// and [os.ErrPermission] without CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN.
func (m Mode) Resolve() (Mode, error) {
	if m > ModeSingleIPMap {
		return 0, fmt.Errorf("no such mode: %s", m)
	}
	kernel, err := askKernel()
	if err != nil {
		return 0, err
	}
	if m == ModeAuto {
		return kernel.best(kernel.multi && kernel.multiPID), nil
	}
	return m, kernel.supports(m)
}

// A mechanism is what the kernel attaches a program by.
type mechanism struct {
	name       string // for texts
	isLink     bool   // a uprobe_multi link, with semaphores at any offset; else perf events
	attachType ebpf.AttachType
	// closers bounds how many this process closes at the same time. All
	// Managers share it, because in the kernel they wait for each other.
	closers  chan struct{}
	patience time.Duration // with calls that attach, when something is closed
}

// Closing a link mostly waits until all processors have passed a quiet state.
// Many can wait together, each with a thread. The kernel closes perf events one
// after the other, and attaching has to wait for those that are closing.
var (
	byLink = mechanism{"a uprobe_multi link", true, ebpf.AttachTraceUprobeMulti,
		make(chan struct{}, 128), attaching.LinkPatience}
	byEvents = mechanism{"a perf event", false, ebpf.AttachNone, make(chan struct{}, 4),
		attaching.EventPatience}
)

func (m Mode) by() *mechanism {
	if m == ModeMulti {
		return &byLink
	}
	return &byEvents
}

// hasCookie reports whether a program finds its site by a BPF cookie.
func (m Mode) hasCookie() bool { return m != ModeSingleIPMap }

type kernelModes struct { // of the running kernel
	cookie bool // a program attached to a perf event can be given a BPF cookie
	multi  bool // there are uprobe_multi links

	// multiPID says that a uprobe_multi link restricted to a PID means the
	// whole process. Linux 6.6 to 6.9 without kernel commit 46ba0e49b642 mean
	// one thread.
	multiPID bool
}

// best returns the mode that is best, with or without uprobe_multi links.
func (k kernelModes) best(links bool) Mode {
	switch {
	case links:
		return ModeMulti
	case k.cookie:
		return ModeSingle
	}
	return ModeSingleIPMap
}

func (k kernelModes) supports(m Mode) error {
	switch {
	case m == ModeMulti && !k.multi:
		return &sys.UnsupportedError{Feature: "uprobe_multi links", Since: "6.6"}
	case m == ModeSingle && !k.cookie:
		return &sys.UnsupportedError{Feature: "BPF cookies on uprobes", Since: "5.15"}
	}
	return nil
}

func askKernel() (k kernelModes, err error) {
	supported := func(err error) (bool, error) {
		if errors.Is(err, ebpf.ErrNotSupported) {
			return false, nil
		}
		return err == nil, err
	}
	k.cookie, err = supported(features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie))
	if err != nil {
		return k, explain("asking for BPF cookies", err)
	}
	// This must be asked before any multi link is tried: an older kernel
	// answers EINVAL to the link.
	if k.multi, err = supported(features.HaveBPFLinkUprobeMulti()); err != nil {
		return k, explain("asking for uprobe_multi links", err)
	}
	if k.multi {
		k.multiPID, err = rightPIDFilter()
	}
	return k, err
}

var pidFilter struct { // the answer of rightPIDFilter
	sync.Mutex
	known, right bool
}

// rightPIDFilter reports whether the kernel takes the PID of a uprobe_multi
// link for a process, and not for a thread. A kernel that does checks the PID
// before the path.
func rightPIDFilter() (right bool, err error) {
	pidFilter.Lock()
	defer pidFilter.Unlock()
	if pidFilter.known {
		return pidFilter.right, nil
	}
	prog, err := trialProgram(ebpf.AttachTraceUprobeMulti)
	if err == nil {
		const negative = math.MaxUint32
		var reaches bool
		reaches, err = reachesPath(prog, negative)
		right = !reaches
		prog.Close()
	}
	if err != nil {
		return false, explain("asking for the PID filter of uprobe_multi links", err)
	}
	pidFilter.known, pidFilter.right = true, right
	return right, nil
}

func trialProgram(attachType ebpf.AttachType) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "usdt_trial",
		Type:         ebpf.Kprobe,
		AttachType:   attachType,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
}

// reachesPath reports whether the kernel gets as far as looking at the path of
// a uprobe_multi link, here a directory, which it refuses. Before that it
// refuses a program that was not loaded for such links, and a PID that cannot
// be.
func reachesPath(prog *ebpf.Program, pid uint32) (bool, error) {
	root, err := link.OpenExecutable("/")
	if err != nil {
		return false, err
	}
	lnk, err := root.UprobeMulti(nil, prog,
		&link.UprobeMultiOptions{Addresses: []uint64{1}, PID: pid})
	switch {
	case err == nil:
		lnk.Close()
		return false, errors.New("a uprobe_multi link to a directory was accepted")
	case errors.Is(err, unix.EINVAL):
		return false, nil
	case errors.Is(err, unix.EBADF):
		return true, nil
	default:
		return false, err
	}
}
