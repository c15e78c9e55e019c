// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
)

// A Link is one program attached to all sites of a [Selection], until Close.
//
// Keep a reference to the Link, or to the Manager that made it: the garbage
// collector detaches what nothing refers to.
type Link struct {
	mode    Mode
	sel     *Selection    // closed
	program *ebpf.Program // as it was given

	kernel []io.Closer // one uprobe_multi link, or perf events
	holder *holder     // of the file's guard

	closeOnce sync.Once
	done      chan struct{}
	reason    error // why it has ended
	err       error // of closing

	mu      sync.Mutex
	ended   bool
	release func() // gives back what belongs to the link, once nothing can hit it any more
}

// Selection returns the sites that are attached, and those that were skipped.
// It is closed: it describes the sites, but cannot be attached.
func (l *Link) Selection() *Selection { return l.sel }

// PerfEvents returns the number of perf events that the program is attached by,
// 0 in [ModeMulti]. The kernel takes about 0.1 s to close each, one after the
// other.
func (l *Link) PerfEvents() int {
	if l.mode.by().isLink {
		return 0
	}
	return len(l.kernel)
}

// Links returns the links of the kernel, for code that needs the interface of
// cilium/ebpf, and for pinning. A pinned link goes on after this process has
// ended without closing the Link, and the program reads arguments as before.
// Close unpins it. The links belong to the Link: close that, not them.
//
// The error wraps [errors.ErrUnsupported] if the program is attached by perf
// events, which are not pinned.
func (l *Link) Links() ([]link.Link, error) {
	if !l.mode.by().isLink {
		return nil, fmt.Errorf("%s: perf events have no link to pin: %w", cmp.Or(l.sel, &Selection{}).Name(),
			errors.ErrUnsupported)
	}
	var links []link.Link
	for _, c := range l.kernel {
		links = append(links, c.(link.Link))
	}
	return links, nil
}

// Close detaches the program. When it returns, the program does not run for
// this link any more, and the semaphores have been counted down. It waits for
// the kernel, 10 to 200 ms for each uprobe_multi link or perf event. Several
// links that are closed by goroutines of their own, or by [Manager.Close], are
// waited for together. It is safe to call Close again.
func (l *Link) Close() error { return l.end(sys.ClosedError("link")) }

// Done returns a channel that is closed once the program is detached: by Close,
// or because the file is about to be written to. A process that opens the file
// for writing waits until then, see [Target].NoLease.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns nil until Done is closed. Then it wraps [os.ErrClosed] after
// Close, or [ErrWritten].
func (l *Link) Err() error {
	select {
	case <-l.done:
		return l.reason
	default:
		return nil
	}
}

// whenEnded calls release at the end, or now if the link has ended.
func (l *Link) whenEnded(release func()) {
	l.mu.Lock()
	l.release = release
	ended := l.ended
	l.mu.Unlock()
	if ended {
		release()
	}
}

// end detaches the program. The first reason is that of Err.
func (l *Link) end(reason error) error {
	l.closeOnce.Do(func() {
		l.reason = reason
		room := l.mode.by().closers
		for _, c := range l.kernel {
			room <- struct{}{}
			if pinned, ok := c.(link.Link); ok {
				// A pinned link would go on, and read arguments by specs that
				// are given to others. Before Linux 5.15 a perf event cannot be
				// pinned.
				if err := pinned.Unpin(); !errors.Is(err, ebpf.ErrNotSupported) {
					l.err = errors.Join(l.err, err)
				}
			}
			l.err = errors.Join(l.err, c.Close())
			<-room
		}
		l.mu.Lock()
		release := l.release
		l.ended = true
		l.mu.Unlock()
		if release != nil {
			release()
		}
		if l.holder != nil {
			l.holder.release()
		}
		if l.done != nil { // of a zero Link
			close(l.done)
		}
	})
	return l.err
}

// AttachRaw attaches a program that was not made with a [Manager]: one that
// reads arguments with code of its own, or none. [Manager.Attach] is for
// programs that read them with bpf/usdt.bpf.h. Here such a program, or one that
// is tail-called, would find nothing, or take a cookie for the ID of a spec.
//
// A program that was loaded with ebpf.AttachTraceUprobeMulti is attached by a
// uprobe_multi link, and one without an attach type by perf events.
// [Mode.Resolve] says which of the two is better on this kernel.
//
// The sites are given by their indices, in the order in which they are to be
// attached; none stands for all. An index out of range panics. If cookies is
// not nil it holds a number for each of them, which the program reads with
// bpf_get_attach_cookie. Kernels before Linux 5.15 have no cookies, and the
// error wraps [errors.ErrUnsupported].
//
// From Linux 6.13 on, two threads may use the stack of such a program at the
// same time if it needs 64 bytes or more, and has no tail call: the kernel
// gives it one stack for each processor, and can preempt it. [NewManager]
// prevents this for its programs.
//
// AttachRaw is all or nothing: if it fails, nothing stays attached. Errors are
// as those of [Manager.Attach]. [Selection.WithoutRefused] leaves out the sites
// that are to blame.
func (s *Selection) AttachRaw(prog *ebpf.Program, cookies []uint64, sites ...int) (*Link, error) {
	if prog == nil {
		return nil, errNoProgram
	}
	if len(sites) > 0 {
		all := s.sites
		whole := s
		s = s.ForPID(s.pid, "")
		s.whole = whole
		s.sites = make([]Site, 0, len(sites))
		for _, i := range sites {
			s.sites = append(s.sites, all[i])
		}
	}
	if cookies != nil && len(cookies) != len(s.sites) {
		return nil, fmt.Errorf("%d cookies for %d sites", len(cookies), len(s.sites))
	}
	kernel, err := askKernel()
	if err != nil {
		return nil, err
	}
	isForLink := false
	if kernel.multi {
		if isForLink, err = reachesPath(prog, 0); err != nil {
			return nil, explain("asking how the program was loaded", err)
		}
	}
	mode := kernel.best(isForLink)
	if cookies != nil && !mode.hasCookie() {
		return nil, kernel.supports(ModeSingle)
	}
	return s.attach(prog, mode, cookies, nil)
}

func (s *Selection) attach(
	prog *ebpf.Program, mode Mode, cookies []uint64, dispatch *dispatcher,
) (*Link, error) {
	file := s.file()
	file.mu.RLock()
	defer file.mu.RUnlock()
	if file.closed {
		return nil, sys.ClosedError("selection")
	}
	if len(s.sites) == 0 {
		return nil, fmt.Errorf("%s: there is no site to attach to in the selection", s.opened.name)
	}
	if err := sys.CheckTracee(s.pid); err != nil {
		return nil, err
	}
	if err := s.refusal(func(s *Selection) (map[int]error, error) {
		return s.checkSemaphores(mode)
	}); err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(s.opened.path())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.opened.name, err)
	}
	removeEnded()
	guard := s.opened.holder.guard
	guard.attaching.RLock()
	defer guard.attaching.RUnlock()
	if guard.written != nil {
		return nil, guard.written
	}

	lnk := &Link{mode: mode, sel: s, program: prog, done: make(chan struct{})}
	if mode.by().isLink {
		err = lnk.attachMulti(executable, cookies)
	} else {
		err = lnk.attachPerfEvents(executable, cookies, dispatch)
	}
	if err != nil {
		lnk.Close()
		return nil, err
	}
	closed := *s
	closed.opened, closed.borrowed = &opened{name: s.opened.name, closed: true}, true
	closed.whole = nil
	lnk.sel = &closed
	guard.add(lnk)
	return lnk, nil
}

// removeEnded removes what killed processes have left in tracefs, if it can.
var removeEnded = sync.OnceFunc(func() { _, _ = attaching.RemoveEnded() })

// checkSemaphores finds the sites whose semaphores the kernel could not count,
// before anything is attached.
func (s *Selection) checkSemaphores(mode Mode) (refused map[int]error, err error) {
	if !s.semaphores {
		return nil, nil
	}
	// A uprobe_multi link always counts them, perf events where this exists.
	const counts = "/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset"
	var missing error
	if !mode.by().isLink {
		if _, missing = os.Stat(counts); missing != nil && !errors.Is(missing, os.ErrNotExist) {
			return nil, fmt.Errorf("asking for uprobes: %w", missing)
		}
	}
	refused = make(map[int]error)
	started := false // of all semaphores of the file at once
	for i := range s.sites {
		offset, miscounted := s.sites[i].SemaphoreOffset, s.sites[i].isMiscounted()
		if offset != 0 && missing == nil && miscounted && s.pid != 0 && !started {
			if err := s.awaitStarted(&s.sites[i]); err != nil {
				return nil, s.siteError(i, err)
			}
			started = true
		}
		switch {
		case offset == 0:
		case missing != nil:
			refused[i] = &sys.UnsupportedError{Feature: "counting of semaphores by uprobes", Since: "4.20",
				Hint: "it is missing too where " + counts + " cannot be seen"}
		case miscounted && s.pid == 0:
			refused[i] = errMiscounted
		case !mode.by().isLink && offset > math.MaxUint32:
			refused[i] = fmt.Errorf("the semaphore's file offset %#x does not fit into the 32 bits "+
				"of a perf event (a uprobe_multi link, Linux 6.6, takes 64)", offset)
		}
	}
	return refused, nil
}

var errMiscounted = errors.New("two writable segments of the file share the page of its semaphore " +
	"(as lld and mold link it), and in a process that starts later the kernel would count in the " +
	"wrong one: attach to each process after it has started, by its PID or by a watch")

// awaitStarted waits until the kernel counts the semaphore of a site where the
// process reads it: the dynamic linker has mapped the whole file, and made the
// other segments read-only. A watch tries again instead.
func (s *Selection) awaitStarted(site *Site) (err error) {
	const patience, pause = 500 * time.Millisecond, 2 * time.Millisecond // also on a busy machine
	for until := time.Now().Add(patience); ; time.Sleep(pause) {
		err = s.checkStarted(site)
		if !errors.Is(err, ErrNotStarted) || s.watched || time.Now().After(until) {
			return err
		}
	}
}

// checkStarted returns an error unless the first writable mapping that has the
// page of the semaphore is at the address that the code of the site uses.
func (s *Selection) checkStarted(site *Site) error {
	files, err := procfs.AllFiles("", s.pid)
	if err != nil && len(files) == 0 {
		return fmt.Errorf("reading the mappings of process %d: %w", s.pid, err)
	}
	want, err := procfs.IdentifyFile(elffile.OSFile(s.opened.elf))
	if err != nil {
		return err
	}
	for _, file := range files {
		code := slices.IndexFunc(file.Mappings, func(m procfs.Mapping) bool {
			_, has := m.Address(site.Offset)
			return has && !m.Data
		})
		if code < 0 {
			continue
		}
		if id, err := file.Identify(); err != nil || !id.MayBe(want.FileID) {
			continue
		}
		address, _ := file.Mappings[code].Address(site.Offset)
		address += site.Semaphore - site.Location
		for _, m := range file.Mappings {
			counted, has := m.Address(site.SemaphoreOffset)
			if has && m.Writable && !m.Shared { // the kernel takes the first
				if counted == address {
					return nil
				}
				break
			}
		}
		break
	}
	return ErrNotStarted // without any, perhaps it is about to execute the program
}

// maxMultiSites is the most sites that the kernel takes in one uprobe_multi
// link (MAX_UPROBE_MULTI_CNT).
const maxMultiSites = 1 << 20

// attachMulti attaches by uprobe_multi links: one for up to maxMultiSites.
func (l *Link) attachMulti(executable *link.Executable, cookies []uint64) error {
	s := l.sel
	if s.pid != 0 {
		switch right, err := rightPIDFilter(); {
		case err != nil:
			return fmt.Errorf("%s: %w", s.opened.name, err)
		case !right:
			return fmt.Errorf("%s: %w", s.opened.name, &sys.UnsupportedError{
				Feature: "uprobe_multi links for a process with all its threads",
				Since:   "6.10, or kernel commit 46ba0e49b642",
				Hint:    "attach in another mode, or without PID"})
		}
	}
	for from := 0; from < len(s.sites); from += maxMultiSites {
		to := min(from+maxMultiSites, len(s.sites))
		lnk, err := s.multiLink(executable, l.program, cookies, from, to)
		if err != nil {
			return l.explain(err)
		}
		l.kernel = append(l.kernel, lnk)
	}
	return nil
}

func (s *Selection) multiLink(
	executable *link.Executable, prog *ebpf.Program, cookies []uint64, from, to int,
) (link.Link, error) {
	opts := link.UprobeMultiOptions{PID: uint32(s.pid), Addresses: make([]uint64, 0, to-from)}
	for i := from; i < to; i++ {
		opts.Addresses = append(opts.Addresses, s.sites[i].uprobeOffset())
		if s.semaphores {
			opts.RefCtrOffsets = append(opts.RefCtrOffsets, s.sites[i].SemaphoreOffset)
		}
	}
	if cookies != nil {
		opts.Cookies = cookies[from:to]
	}
	return s.opened.attach(executable, nil, prog, &opts)
}

// A multiAttach makes a uprobe_multi link: the kernel, or a test's.
type multiAttach func(*link.Executable, []string, *ebpf.Program, *link.UprobeMultiOptions) (link.Link, error)

// attachPerfEvents attaches by perf events: one for each group of sites, if it
// can be defined in tracefs, and one for each other site.
func (l *Link) attachPerfEvents(
	executable *link.Executable, cookies []uint64, dispatch *dispatcher,
) error {
	s := l.sel
	var ids []uint64 // of specs, which the dispatcher's programs have
	if dispatch != nil {
		ids = cookies
	}
	if !l.mode.hasCookie() {
		cookies = nil
	}
	groups := s.groups(cookies, ids)
	if err := s.checkPerfEvents(len(groups)); err != nil {
		return err
	}
	programs := make([]*ebpf.Program, len(s.sites)) // of each site
	for _, sites := range groups {
		prog := l.program
		if dispatch != nil {
			var err error
			if prog, err = dispatch.load(s, sites, ids); err != nil {
				return err
			}
			defer prog.Close() // the perf events keep it
		}
		for _, i := range sites {
			programs[i] = prog
		}
	}
	hasLink := features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
	through := func(sites []int) error { // tracefs
		opts := attaching.EventOptions{PID: s.pid, HasLink: hasLink}
		if cookies != nil {
			opts.Cookie = cookies[sites[0]]
		}
		event, err := attaching.AttachEvent(s.opened.path(), s.places(sites), programs[sites[0]], opts)
		if err == nil {
			l.kernel = append(l.kernel, event)
		}
		return err
	}
	var left []int // sites to attach one by one
	for n, sites := range groups {
		if len(sites) == 1 { // which needs no name in tracefs
			left = append(left, sites...)
			continue
		}
		if err := through(sites); err != nil {
			// Attaching a site alone says better what is wrong with it.
			left = append(left, slices.Concat(groups[n:]...)...)
			break
		}
	}

	if err := s.checkPerfEvents(len(l.kernel) + len(left)); err != nil {
		return err
	}
	for _, i := range left {
		lnk, err := s.perfEvent(executable, programs[i], cookies, i)
		switch {
		case err == nil:
			l.kernel = append(l.kernel, lnk)
		// A kernel that wants CAP_SYS_ADMIN for it takes an event of tracefs.
		case !errors.Is(err, os.ErrPermission) || through([]int{i}) != nil:
			return l.explain(err)
		}
	}
	return nil
}

func (s *Selection) perfEvent(
	executable *link.Executable, prog *ebpf.Program, cookies []uint64, i int,
) (link.Link, error) {
	opts := link.UprobeOptions{Address: s.sites[i].uprobeOffset(),
		RefCtrOffset: s.sites[i].SemaphoreOffset, PID: s.pid}
	if cookies != nil {
		opts.Cookie = cookies[i]
	}
	// Where uprobes are made through tracefs, the symbol becomes part of the
	// event's name, which must not be empty.
	return executable.Uprobe("usdt", prog, &opts)
}

func (s *Selection) places(sites []int) (places []attaching.Place) {
	for _, i := range sites {
		places = append(places, attaching.Place{Offset: s.sites[i].uprobeOffset(),
			Semaphore: s.sites[i].SemaphoreOffset})
	}
	return places
}

// groups returns the sites in groups, in the order of their first sites. One
// perf event can attach a group: its sites are at different instructions and
// have the same cookie. With IDs of specs in the place of cookies, a dispatcher
// can tell the IDs of a group apart.
func (s *Selection) groups(cookies, ids []uint64) (groups [][]int) {
	type place struct{ number, offset uint64 }
	type key struct {
		low, number uint64
		nth         int // of those at the same place
	}
	sites, known, taken := make(map[place]int, len(s.sites)), make(map[key]int), make(map[uint64]int)
	for i := range s.sites {
		at, low := place{offset: s.sites[i].uprobeOffset()}, uint64(0)
		switch {
		case ids != nil:
			at.number, low = ids[i], lowBits(s.sites[i].Instruction)
		case cookies != nil:
			at.number = cookies[i]
		}
		k := key{low, at.number, sites[at]}
		sites[at]++
		n, ok := known[k]
		if !ok {
			n = taken[low]
			taken[low]++
			known[k] = n
		}
		if n == len(groups) {
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// checkPerfEvents returns an error if the sites of a target with MaxSites, a
// file of another user, need too many perf events: the kernel closes one after
// the other, in a tenth of a second each.
func (s *Selection) checkPerfEvents(events int) error {
	err := s.CheckPerfEvents(events)
	if err != nil || s.maxSites <= 0 {
		return err
	}
	if open := sys.MaxDescriptors(); descriptorsPerPerfEvent*events > open/fileDescriptorsPart {
		return fmt.Errorf("%s: %w: its sites need %d perf events, which take more than one in %d of the "+
			"descriptors that this process may have, %d (raise RLIMIT_NOFILE)", s.opened.name,
			elffile.ErrTooLarge, events, fileDescriptorsPart, open)
	}
	return nil
}

// CheckPerfEvents returns a [*LimitError] if this many perf events, of which
// one is always allowed, exceed [Target].MaxSites: each takes eight. It is for
// a file that is attached by several links, as package trace does.
func (s *Selection) CheckPerfEvents(events int) error {
	if needed := perfEventSites * events; s.maxSites > 0 && events > 1 && needed > s.maxSites {
		return s.tooMany("sites (a perf event counts as 8)", s.maxSites, needed)
	}
	return nil
}

const (
	// perfEventSites is the number of sites that a perf event counts for.
	perfEventSites = 8
	// descriptorsPerPerfEvent includes that of its BPF link.
	descriptorsPerPerfEvent = 2
	// fileDescriptorsPart is the share of the descriptors that one file of
	// another owner may take: one part of this many.
	fileDescriptorsPart = 8
)

// explain finds out whether the kernel refused the program, or which sites, by
// attaching a program that does nothing for a moment.
func (l *Link) explain(err error) error {
	s, by := l.sel, l.mode.by().name
	if s.pid != 0 && (errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist)) {
		return sys.Gone(s.pid)
	}
	err = withErrno(err)
	// cilium/ebpf refuses other types of programs without asking the kernel.
	if l.program.Type() == ebpf.Kprobe && whyRefused(&s.sites[0], err) == nil {
		return fmt.Errorf("%s: %w", s.opened.name, explain("attaching by "+by, err))
	}
	refusal := s.refusal((*Selection).findRefused)
	if s.pid != 0 && errors.Is(refusal, unix.ESRCH) {
		return sys.Gone(s.pid)
	}
	if refusal != nil {
		return refusal
	}
	return fmt.Errorf("program %s was not loaded for %s: make the Manager before the collection is "+
		"loaded, and name programs outside a \"usdt\" section in ManagerOptions.Programs: %w",
		l.program, by, err)
}

// whyRefused returns why the kernel refuses a site, and nil if err has another
// reason. Offsets, alignment and the process have been checked: EINVAL means
// the semaphore, or the program's attach type.
func whyRefused(site *Site, err error) error {
	// Machines have different errors for an instruction that they cannot step
	// over.
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, errNotSupported) ||
		errors.Is(err, ebpf.ErrNotSupported) {
		// Not %w: that would be errors.ErrUnsupported, as of a missing feature.
		return fmt.Errorf("the kernel refuses a breakpoint on this instruction: %v", err)
	}
	if !errors.Is(err, unix.EINVAL) {
		return nil
	}
	own := "the file has none"
	if site.SemaphoreOffset != 0 {
		own = fmt.Sprintf("the file has the one at offset %#x", site.SemaphoreOffset)
	}
	return fmt.Errorf("the kernel refuses it (%w): another tracer has attached this site with another "+
		"semaphore or none (%s): detach it first", unix.EINVAL, own)
}

// maxTrials bounds how often findRefused attaches something.
const maxTrials = 4096

// findRefused returns the sites that the kernel refuses for a program that does
// nothing, and why. It tries all together, then halves of what was refused.
// What the kernel takes stays attached until the end: detaching waits.
func (s *Selection) findRefused() (refused map[int]error, err error) {
	kernel, err := askKernel()
	if err != nil {
		return nil, err
	}
	// In each mode: what it refuses is the same.
	trial, err := trialProgram(kernel.best(kernel.multi).by().attachType)
	if err != nil {
		return nil, err
	}
	defer trial.Close()
	executable, err := link.OpenExecutable(s.opened.path())
	if err != nil {
		return nil, err
	}
	var held []io.Closer
	defer func() { sys.CloseTogether(held) }()
	attach := func(from, to int) (io.Closer, error) {
		switch {
		case kernel.multi:
			return s.multiLink(executable, trial, nil, from, to)
		case to-from == 1:
			return s.perfEvent(executable, trial, nil, from)
		default:
			var sites []int
			for i := from; i < to; i++ {
				sites = append(sites, i)
			}
			return attaching.AttachEvent(s.opened.path(), s.places(sites), trial,
				attaching.EventOptions{PID: s.pid})
		}
	}
	refused = make(map[int]error)
	trials := 0
	var find func(from, to int) error
	find = func(from, to int) error {
		if trials++; trials > maxTrials {
			return fmt.Errorf("the kernel refuses too many of %d sites", len(s.sites))
		}
		lnk, err := attach(from, to)
		switch {
		case err == nil:
			held = append(held, lnk)
			return nil
		case to-from > 1:
			middle := (from + to) / 2
			if err := find(from, middle); err != nil {
				return err
			}
			return find(middle, to)
		default:
			err = withErrno(err)
			if refused[from] = whyRefused(&s.sites[from], err); refused[from] == nil {
				return err
			}
			return nil
		}
	}
	return refused, find(0, len(s.sites))
}

// A refusedError says that the kernel refuses sites.
type refusedError struct {
	*SiteError // the first
	rest       *Selection
}

func (e *refusedError) Unwrap() error { return e.SiteError }

// refusal returns a *refusedError if find returns sites of the selection.
func (s *Selection) refusal(find func(*Selection) (map[int]error, error)) error {
	refused, err := find(s)
	if err != nil {
		return fmt.Errorf("%s: finding the site that cannot be attached: %w", s.opened.name, err)
	}
	if len(refused) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(refused)))
	e := &refusedError{SiteError: s.siteError(first, refused[first])}
	if s.whole != nil {
		s = s.whole
		if refused, err = find(s); err != nil {
			return e.SiteError
		}
	}
	e.rest = s.ForPID(s.pid, "")
	e.rest.sites = nil
	e.rest.skipped = slices.Clone(s.skipped)
	for i, site := range s.sites {
		if refused[i] == nil {
			e.rest.sites = append(e.rest.sites, site)
		} else if e.rest.skippedCount++; len(e.rest.skipped) < maxSkipped {
			e.rest.skipped = append(e.rest.skipped, s.siteError(i, refused[i]))
		}
	}
	return e
}

// WithoutRefused takes the error of attaching s, and returns a selection
// without the sites that the kernel refused. They are in the Skipped of the
// result, not of s. ok is false if err is not about sites, or none is left. The
// result is valid until s is closed.
//
// The kernel refuses a site that another tracer has attached without its
// semaphore, for example. [Manager.Attach] leaves such sites out, unless its
// target is a Selection.
func (s *Selection) WithoutRefused(err error) (rest *Selection, ok bool) {
	var refused *refusedError
	if !errors.As(err, &refused) || len(refused.rest.sites) == 0 {
		return nil, false
	}
	return refused.rest, true
}

// errNotSupported is ENOTSUPP, an error number for use inside the kernel, which
// it returns to programs here.
const errNotSupported = unix.Errno(524)

// withErrno returns an error that wraps EINVAL, ENOMEM and the like also if
// only its text says so: cilium/ebpf v0.22.0 creates the link of a perf event
// with %v.
func withErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return err
	}
	for _, errno := range []unix.Errno{unix.EINVAL, unix.ENOMEM, unix.EMFILE, unix.ENFILE,
		unix.ENOSPC} {
		if text, ok := strings.CutSuffix(err.Error(), errno.Error()); ok {
			return fmt.Errorf("%s%w", text, errno)
		}
	}
	return err
}
