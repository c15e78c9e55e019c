// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/uprobeevent"
)

// maxMultiSites is how many sites the kernel takes in one uprobe_multi link
// (MAX_UPROBE_MULTI_CNT).
const maxMultiSites = 1 << 20

// AttachRaw attaches a program that was not made with a [Manager]: one that
// reads arguments with code of its own, or none. A program that reads them with
// bpf/usdt.bpf.h would find nothing; [Manager.Attach] is for those.
//
// A program that was loaded with ebpf.AttachTraceUprobeMulti is attached by a
// uprobe_multi link, and one without an attach type by perf events.
// [Mode.Resolve] says which of both the kernel is best at.
//
// The sites are given by their indices, in the order in which they are to be
// attached; none stands for all. If cookies is not nil it holds a number for
// each of them, which the program reads with bpf_get_attach_cookie (Linux
// 5.15).
//
// From Linux 6.13 on, two threads may use the stack of such a program at the
// same time if it needs 64 bytes or more, and has no tail call: the kernel
// gives it one for each processor, and can preempt it. [NewManager] keeps this
// away from its programs.
//
// It is all or nothing. Errors are as those of [Manager.Attach].
func (s *Selection) AttachRaw(prog *ebpf.Program, cookies []uint64, sites ...int) (*Link, error) {
	if prog == nil {
		return nil, errNoProgram
	}
	if len(sites) > 0 {
		s = s.subset(sites)
	}
	if cookies != nil && len(cookies) != s.Len() {
		return nil, fmt.Errorf("%d cookies for %d sites", len(cookies), s.Len())
	}
	kernel, err := askKernel()
	if err != nil {
		return nil, err
	}
	mode := ModeSingle
	isForLink, err := kernel.isForMultiLink(prog)
	switch {
	case err != nil:
		return nil, follow.Explain("asking how the program was loaded", err)
	case isForLink:
		mode = ModeMulti
	case !kernel.cookie && cookies == nil:
		mode = ModeSingleIPMap
	default:
		if err := kernel.supports(ModeSingle); err != nil {
			return nil, err
		}
	}
	return s.attach(prog, mode, cookies)
}

// attach attaches a program that was loaded for a mode.
func (s *Selection) attach(prog *ebpf.Program, mode Mode, cookies []uint64) (*Link, error) {
	s.opened.mu.RLock()
	defer s.opened.mu.RUnlock()
	if s.opened.closed {
		return nil, sys.ClosedError("selection")
	}
	if s.Len() == 0 {
		return nil, fmt.Errorf("%s: there is no site to attach to in the selection", s.opened.name)
	}
	if err := sys.CheckTracee(s.pid); err != nil {
		return nil, err
	}
	if err := s.checkSemaphores(mode); err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(s.opened.path())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.opened.name, err)
	}
	removeEnded()

	lnk := newLink(mode, s, prog)
	lnk.generic = "the program was attached without a Manager"
	switch mode {
	case ModeMulti:
		lnk.kernel, err = s.attachMulti(executable, prog, cookies)
	case ModeSingle:
		lnk.kernel, err = s.attachSingle(executable, prog, cookies)
	case ModeSingleIPMap:
		lnk.kernel, err = s.attachSingle(executable, prog, nil)
	}
	if err != nil {
		return nil, err
	}
	return lnk, nil
}

// checkSemaphores returns an error for the first site whose semaphore the
// kernel could not count, before anything is attached.
func (s *Selection) checkSemaphores(mode Mode) error {
	if !s.semaphores {
		return nil
	}
	counted := true
	if mode != ModeMulti {
		var err error
		if counted, err = exists(uprobePMURefCtr); err != nil {
			return err
		}
	}
	for i := range s.sites {
		site := &s.sites[i]
		switch {
		case site.SemaphoreOffset == 0:
		case !counted:
			return s.siteError(i,
				&sys.UnsupportedError{Feature: "counting of semaphores by uprobes", Since: "4.20",
					Hint: "it is missing too where " + uprobePMURefCtr + " cannot be seen"})
		case site.SemaphoreOffset%2 != 0:
			return s.siteError(i,
				fmt.Errorf("the semaphore at file offset %#x is not aligned to 2 bytes, as the kernel needs it",
					site.SemaphoreOffset))
		case mode != ModeMulti && site.SemaphoreOffset > math.MaxUint32:
			return s.siteError(i,
				fmt.Errorf("the semaphore's file offset %#x does not fit into the 32 bits "+
					"of a perf event (a uprobe_multi link, Linux 6.6, takes 64)",
					site.SemaphoreOffset))
		}
	}
	return nil
}

func (s *Selection) attachMulti(
	executable *link.Executable, prog *ebpf.Program, cookies []uint64,
) ([]io.Closer, error) {
	if s.pid != 0 {
		if err := requirePIDFilter(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.opened.name, err)
		}
	}
	var links []io.Closer
	for from := 0; from < s.Len(); from += maxMultiSites {
		to := min(from+maxMultiSites, s.Len())
		lnk, err := s.linkMulti(executable, prog, from, to, cookies)
		if err != nil {
			closeTogether(ModeMulti, links)
			return nil, s.explainMulti(executable, prog, from, to, err)
		}
		links = append(links, lnk)
	}
	return links, nil
}

func (s *Selection) linkMulti(
	executable *link.Executable, prog *ebpf.Program, from, to int, cookies []uint64,
) (link.Link, error) {
	opts := link.UprobeMultiOptions{PID: uint32(s.pid), Addresses: make([]uint64, to-from)}
	for i := from; i < to; i++ {
		opts.Addresses[i-from] = s.sites[i].uprobeOffset()
	}
	if s.semaphores {
		opts.RefCtrOffsets = make([]uint64, to-from)
		for i := from; i < to; i++ {
			opts.RefCtrOffsets[i-from] = s.sites[i].SemaphoreOffset
		}
	}
	if cookies != nil {
		opts.Cookies = cookies[from:to]
	}
	return executable.UprobeMulti(nil, prog, &opts)
}

func (s *Selection) attachSingle(
	executable *link.Executable, prog *ebpf.Program, cookies []uint64,
) ([]io.Closer, error) {
	groups := s.groups(cookies)
	if err := s.checkPerfEvents(len(groups)); err != nil {
		return nil, err
	}
	links, left := s.attachGroups(groups, prog, cookies)
	if err := s.checkPerfEvents(len(links) + len(left)); err != nil {
		closeTogether(ModeSingle, links)
		return nil, err
	}
	for _, i := range left {
		opts := link.UprobeOptions{
			Address:      s.sites[i].uprobeOffset(),
			RefCtrOffset: s.sites[i].SemaphoreOffset,
			PID:          s.pid,
		}
		if cookies != nil {
			opts.Cookie = cookies[i]
		}
		// The symbol is not looked up beside an address, but where uprobes are
		// made through tracefs it becomes part of the event's name, which must
		// not be empty.
		lnk, err := executable.Uprobe("usdt", prog, &opts)
		if err != nil {
			closeTogether(ModeSingle, links)
			return nil, s.explainSingle(executable, prog, i, &opts, err)
		}
		links = append(links, lnk)
	}
	return links, nil
}

// explainSingle finds out what the kernel meant by refusing a perf event or the
// program for it.
func (s *Selection) explainSingle(
	executable *link.Executable, prog *ebpf.Program, i int, opts *link.UprobeOptions, err error,
) error {
	if s.pid != 0 && (errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist)) {
		return sys.Gone(s.pid)
	}
	if errors.Is(err, os.ErrPermission) {
		return s.siteError(i, follow.Explain("attaching by a perf event", err))
	}
	if err = withErrno(err); follow.Classify(err) == follow.WithRoom {
		return s.siteError(i, follow.Explain("attaching by a perf event", err))
	}

	trial, trialErr := trialProgram(ebpf.AttachNone)
	if trialErr == nil {
		defer trial.Close()
		var lnk link.Link
		if lnk, trialErr = executable.Uprobe("usdt", trial, opts); trialErr == nil {
			lnk.Close()
			return fmt.Errorf("program %s was not loaded for a perf event: make the Manager before the collection is "+
				"loaded: %w", prog, err)
		}
	}
	if errors.Is(err, unix.EINVAL) {
		// Offsets, alignment and the process have been checked before.
		err = semaphoreClash(s.sites[i].SemaphoreOffset, err)
	}
	return s.siteError(i, follow.Explain("attaching by a perf event", err))
}

// trialProgram does nothing. If it can be attached, the fault is with the
// caller's program.
func trialProgram(attachType ebpf.AttachType) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "usdt_trial",
		Type:         ebpf.Kprobe,
		AttachType:   attachType,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
}

// explainMulti finds out what the kernel meant by refusing the link of many
// sites.
func (s *Selection) explainMulti(
	executable *link.Executable, prog *ebpf.Program, from, to int, err error,
) error {
	if s.pid != 0 && errors.Is(err, os.ErrNotExist) {
		return sys.Gone(s.pid)
	}
	instruction := refusesInstruction(err)
	if !errors.Is(err, unix.EINVAL) && !instruction {
		return fmt.Errorf("%s: %w", s.opened.name, follow.Explain("attaching by a uprobe_multi link", err))
	}

	// EINVAL means that the program has another attach type, or that the
	// semaphore of a site clashes with another one. "Not supported" means the
	// instruction at a site. A program of our own that is attached for a moment
	// tells which it is, and where.
	trial, loadErr := trialProgram(ebpf.AttachTraceUprobeMulti)
	if loadErr != nil {
		return fmt.Errorf("%s: attaching by a uprobe_multi link: %w", s.opened.name, err)
	}
	defer trial.Close()
	refused := func(from, to int) bool {
		lnk, err := s.linkMulti(executable, trial, from, to, nil)
		if err == nil {
			lnk.Close()
		}
		return err != nil
	}
	if !refused(from, to) {
		return fmt.Errorf("program %s was not loaded for a uprobe_multi link: make the Manager before "+
			"the collection is loaded, and name programs outside a \"usdt\" section in ManagerOptions.Programs", prog)
	}
	for to-from > 1 {
		middle := (from + to) / 2
		if refused(from, middle) {
			to = middle
		} else {
			from = middle
		}
	}
	if instruction {
		return s.siteError(from,
			fmt.Errorf("the kernel refuses a breakpoint on this instruction: %w", err))
	}
	return s.siteError(from, semaphoreClash(s.sites[from].SemaphoreOffset, err))
}

// errNotSupported is ENOTSUPP, an error number for use inside the kernel, which
// it returns to programs here.
const errNotSupported = unix.Errno(524)

// refusesInstruction reports whether the kernel has answered that it cannot
// step over the instruction at a site. Machines differ in how they say it.
func refusesInstruction(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, errNotSupported) ||
		errors.Is(err, ebpf.ErrNotSupported)
}

// withErrno returns an error that wraps ENOMEM and the like also if only its
// text says so: cilium/ebpf v0.22.0 creates the link of a perf event with %v.
func withErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return err
	}
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC} {
		if text, ok := strings.CutSuffix(err.Error(), errno.Error()); ok {
			return fmt.Errorf("%s%w", text, errno)
		}
	}
	return err
}

// removeEnded removes what killed processes have left in tracefs. Attaching
// goes on if that fails.
var removeEnded = sync.OnceFunc(func() { _, _ = uprobeevent.Remove() })

// groups returns the sites in groups, in the order of their first sites. One
// perf event can attach a group: its sites have the same cookie, and are at
// different instructions.
func (s *Selection) groups(cookies []uint64) (groups [][]int) {
	type place struct{ cookie, offset uint64 }
	type key struct {
		cookie uint64
		nth    int // of those at the same place
	}
	sites, known := make(map[place]int, s.Len()), make(map[key]int)
	for i := range s.sites {
		at := place{offset: s.sites[i].uprobeOffset()}
		if cookies != nil {
			at.cookie = cookies[i]
		}
		k := key{at.cookie, sites[at]}
		sites[at]++
		n, ok := known[k]
		if !ok {
			n = len(groups)
			known[k] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// attachGroups attaches each group of several sites by one perf event. It
// returns the sites that are left, which the caller attaches one by one: single
// ones, which need no name in tracefs, and all from the first group on that
// fails. The error of that group is dropped, because attaching a site alone
// says better what is wrong with it.
func (s *Selection) attachGroups(
	groups [][]int, prog *ebpf.Program, cookies []uint64,
) (attached []io.Closer, left []int) {
	opts := uprobeevent.Options{PID: s.pid,
		HasLink: features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil}
	for n, sites := range groups {
		if len(sites) == 1 {
			left = append(left, sites...)
			continue
		}
		var places []uprobeevent.Place
		for _, i := range sites {
			places = append(places, uprobeevent.Place{Offset: s.sites[i].uprobeOffset(),
				Semaphore: s.sites[i].SemaphoreOffset})
		}
		if cookies != nil {
			opts.Cookie = cookies[sites[0]]
		}
		event, err := uprobeevent.Attach(s.opened.path(), places, prog, opts)
		if err != nil {
			return attached, append(left, slices.Concat(groups[n:]...)...)
		}
		attached = append(attached, event)
	}
	return attached, left
}
