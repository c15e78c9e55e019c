// SPDX-License-Identifier: BSD-2-Clause

package attaching

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
)

// An Event is a program attached to many places of a file, for kernels without
// uprobe_multi links. Such kernels close perf events one after the other, in a
// tenth of a second each. A perf event has one place in a file, unless it is
// for an event that was defined in tracefs: that has any number of places
// (Linux 5.4, kernel commit 60d53e2c3b75).
//
// The kernel keeps the definition of an event when the process that made it
// ends, and with it the traced file. [RemoveEnded] removes those of processes
// that have ended. docs/attaching.md says how their names tell the owner.
//
// An event in use must not be removed. If it has several places the kernel does
// not check that, and goes on with memory that it has freed (by its sources,
// since kernel commit 60d53e2c3b75). So an event is removed only after the
// process that opened it and all that have inherited it have closed it, or
// after its owner has certainly ended.
type Event struct {
	tracefs string
	name    string
	link    int // descriptor of a BPF link, -1 for none
	event   int // descriptor of the perf event

	close sync.Once
	err   error
}

// AttachEvent attaches a program to places of a file, all different, by one
// event. The path must have no blanks: /proc/self/fd/N leads to any file. It
// fails where tracefs cannot be written or perf events cannot be opened.
func AttachEvent(path string, places []Place, prog *ebpf.Program, opts EventOptions) (*Event, error) {
	if opts.Cookie != 0 && !opts.HasLink {
		return nil, errors.New("a perf event without a BPF link has no cookie")
	}
	tracefs, err := findTracefs()
	if err != nil {
		return nil, err
	}
	o, err := self()
	if err != nil {
		return nil, err
	}
	e := &Event{tracefs: tracefs, name: o.name(defined.Add(1)), link: -1, event: -1}
	if err := e.attach(path, places, prog, opts); err != nil {
		// Some of the places may have been defined.
		return nil, errors.Join(err, ignoreMissing(e.Close()))
	}
	return e, nil
}

func (e *Event) attach(path string, places []Place, prog *ebpf.Program, opts EventOptions) error {
	var definition strings.Builder
	for _, place := range places {
		fmt.Fprintf(&definition, "p:%s/%s %s:%#x", EventGroup, e.name, path, place.Offset)
		if place.Semaphore != 0 {
			fmt.Fprintf(&definition, "(%#x)", place.Semaphore)
		}
		definition.WriteByte('\n')
	}
	if err := write(e.tracefs, definition.String()); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(e.tracefs, "events", EventGroup, e.name, "id"))
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("the number of event %s: %w", e.name, err)
	}
	// An event for all processes is opened on one processor, but programs run
	// for the hits on all of them.
	pid, processor := -1, 0
	if opts.PID != 0 {
		pid, processor = opts.PID, -1
	}
	attributes := &unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT,
		Size: unix.PERF_ATTR_SIZE_VER1, Config: id}
	if e.event, err = unix.PerfEventOpen(attributes, pid, processor, -1,
		unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return fmt.Errorf("perf event: %w", err)
	}
	opened.Store(e.event, true)
	defer runtime.KeepAlive(prog)
	if opts.HasLink {
		if e.link, err = linkPerfEvent(prog, e.event, opts.Cookie); err == nil {
			opened.Store(e.link, true)
		}
		return err
	}
	if err := unix.IoctlSetInt(e.event, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		return fmt.Errorf("perf event: setting the program: %w", err)
	}
	if err := unix.IoctlSetInt(e.event, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("perf event: %w", err)
	}
	return nil
}

// linkPerfEvent makes a BPF link for a perf event (Linux 5.15).
func linkPerfEvent(prog *ebpf.Program, event int, cookie uint64) (int, error) {
	// BPF_LINK_CREATE of bpf(2).
	attributes := struct {
		program, target, attachType, flags uint32
		cookie                             uint64
	}{program: uint32(prog.FD()), target: uint32(event), attachType: uint32(ebpf.AttachPerfEvent),
		cookie: cookie}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE,
		uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	if errno != 0 {
		return -1, fmt.Errorf("link of the perf event: %w", errno)
	}
	return int(fd), nil
}

// EventDescriptors returns the descriptors of all events of this process and of
// their links.
func EventDescriptors() (all []int) {
	opened.Range(func(fd, _ any) bool {
		all = append(all, fd.(int))
		return true
	})
	return all
}

var opened sync.Map // descriptors

// Close detaches the program and removes the event, once.
func (e *Event) Close() error {
	e.close.Do(func() {
		if e.link >= 0 {
			opened.Delete(e.link)
			e.err = unix.Close(e.link)
		}
		if e.event >= 0 {
			opened.Delete(e.event)
			if err := closeForAll(e.event); err != nil {
				e.err = errors.Join(e.err, fmt.Errorf("event %s/%s stays in tracefs: %w", EventGroup,
					e.name, err))
				return
			}
		}
		e.err = errors.Join(e.err, remove(e.tracefs, e.name))
	})
	return e.err
}

// maxInherited is the time for which another process may keep a perf event open
// after this one has closed it. A process that is started needs milliseconds.
const maxInherited = 2 * time.Second

// closeForAll closes a perf event, and fails if a process still has it open:
// one that this process starts has all descriptors until it runs its program.
func closeForAll(event int) error {
	// An epoll instance has an entry for a file as long as any process has the
	// file open.
	var epoll int
	err := twice(func() (err error) {
		epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		return err
	})
	if err == nil {
		defer unix.Close(epoll)
		err = twice(func() error {
			return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{})
		})
	}
	if err = errors.Join(err, unix.Close(event)); err != nil {
		return err
	}
	for waited, wait := time.Duration(0), time.Millisecond; ; wait *= 2 {
		info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(epoll))
		switch {
		case err != nil && waited > maxInherited:
			return err
		case err != nil: // try again
		case !strings.Contains(string(info), "tfd:"):
			if waited > 0 {
				time.Sleep(wait) // the entry goes just before the event does
			}
			return nil
		case waited > maxInherited:
			return errors.New("another process has inherited its perf event and keeps it open")
		}
		time.Sleep(wait)
		waited += wait
	}
}

func remove(tracefs, name string) error {
	// Another tool may have switched on all events of the machine.
	users, err := filepath.Glob(filepath.Join(tracefs, "instances", "*", "events", EventGroup, name,
		"enable"))
	if err != nil {
		return err
	}
	for _, user := range append(users, filepath.Join(tracefs, "events", EventGroup, name, "enable")) {
		if text, err := os.ReadFile(user); err == nil && strings.TrimSpace(string(text)) != "0" {
			return fmt.Errorf("event %s/%s stays in tracefs: %s says that another tool records it",
				EventGroup, name, user)
		}
	}
	err = twice(func() error { return write(tracefs, "-:"+EventGroup+"/"+name+"\n") })
	if err != nil {
		return fmt.Errorf("removing event %s/%s: %w", EventGroup, name, err)
	}
	return nil
}

// twice makes a call again if it fails: a lack of descriptors or memory may
// have passed, or the closing of the event ended. Otherwise the kernel keeps
// the event.
func twice(call func() error) error {
	err := call()
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		err = call()
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// write writes lines to uprobe_events, each with its newline.
func write(tracefs, lines string) error {
	// O_TRUNC would first remove the events of all tracers.
	file, err := os.OpenFile(filepath.Join(tracefs, "uprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(lines)
	return err
}

func findTracefs() (string, error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TRACEFS_MAGIC {
			return dir, nil
		}
	}
	return "", errors.New("tracefs is not mounted at /sys/kernel/tracing or /sys/kernel/debug/tracing")
}

// owner is the process that has defined an event.
type owner struct {
	pid       int
	startTime uint64 // as in /proc/PID/stat
	namespace uint64 // inode of the PID namespace that pid is of
}

// name returns the name of the owner's n-th event. The kernel allows letters,
// digits and underscores, 63 of them.
func (o owner) name(n uint64) string {
	return fmt.Sprintf("p%d_%d_%d_%d", o.pid, o.startTime, o.namespace, n)
}

// parseName returns the owner of an event that this package has named.
func parseName(name string) (owner, bool) {
	var o owner
	var n uint64
	if _, err := fmt.Sscanf(name, "p%d_%d_%d_%d", &o.pid, &o.startTime, &o.namespace, &n); err != nil {
		return owner{}, false
	}
	// PIDs have 22 bits (PID_MAX_LIMIT).
	return o, o.pid > 0 && o.pid < 1<<30 && o.name(n) == name
}

var defined atomic.Uint64 // events, by this process

// self is this process as the owner of events.
var self = sync.OnceValues(func() (owner, error) {
	if !procfs.HasOwnPIDs("/proc") {
		return owner{}, errors.New("/proc is that of another PID namespace")
	}
	p, err := procfs.ReadStat("/proc", os.Getpid(), make([]byte, procfs.MaxStat))
	if err != nil {
		return owner{}, err
	}
	namespace, err := pidNamespace("self")
	return owner{pid: os.Getpid(), startTime: p.StartTime, namespace: namespace}, err
})

func pidNamespace(process string) (uint64, error) {
	var stat unix.Stat_t
	path := filepath.Join("/proc", process, "ns/pid")
	if err := unix.Stat(path, &stat); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return stat.Ino, nil
}

// RemoveEnded removes the events of processes that have ended, and returns
// their names. An event stays while its owner may run. An owner in another PID
// namespace may run as long as any process of that is left, and always if this
// process does not see the namespace.
func RemoveEnded() (removed []string, err error) {
	tracefs, err := findTracefs()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(tracefs, "events", EventGroup))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var errs []error
	ended := make(map[owner]bool)
	for _, entry := range entries {
		o, ok := parseName(entry.Name())
		if !ok {
			continue
		}
		if _, known := ended[o]; !known {
			ended[o] = o.hasEnded()
		}
		if !ended[o] {
			continue
		}
		// Another process may be removing it as well.
		if err := ignoreMissing(remove(tracefs, entry.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(errs...)
}

// hasEnded reports whether the process has certainly ended.
func (o owner) hasEnded() bool {
	own, err := pidNamespace("self")
	if err != nil || !procfs.HasOwnPIDs("/proc") {
		return false
	}
	if own == o.namespace {
		return o.hasEndedHere()
	}
	// The initial namespace sees all processes, if nothing hides them.
	if first, err := pidNamespace("1"); err != nil || first != sys.InitialPIDNamespace ||
		own != sys.InitialPIDNamespace {
		return false
	}
	pids, err := procfs.FS("").PIDs()
	if err != nil {
		return false
	}
	for _, pid := range pids {
		namespace, err := pidNamespace(strconv.Itoa(pid))
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		case err != nil:
			return false
		case namespace == o.namespace:
			return false // it may be the owner
		}
	}
	return true
}

// hasEndedHere is hasEnded for an owner in this process's namespace.
func (o owner) hasEndedHere() bool {
	// Unlike a directory in /proc, nothing hides this.
	if err := unix.Kill(o.pid, 0); errors.Is(err, unix.ESRCH) {
		return true
	}
	p, err := procfs.ReadStat("/proc", o.pid, make([]byte, procfs.MaxStat))
	if err != nil || p.StartTime == o.startTime {
		return false
	}
	// A process in another time namespace reads its start by another clock.
	descriptors := filepath.Join("/proc", strconv.Itoa(o.pid), "fd")
	open, err := os.ReadDir(descriptors)
	if err != nil {
		return false
	}
	for _, entry := range open {
		target, err := os.Readlink(filepath.Join(descriptors, entry.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) ||
			strings.HasPrefix(target, "anon_inode:[perf_event]") {
			return false
		}
	}
	return true
}
