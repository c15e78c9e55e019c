// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventSource gathers what the kernel tells of processes: perf events of the
// kind that counts nothing (PERF_COUNT_SW_DUMMY), one per CPU, whose buffers
// get a record of each fork, exec and exit and of each executable mapping.
type eventSource struct {
	rings   []*ring
	epoll   int
	closing int // an eventfd that wakes the goroutine for the last time
	done    chan struct{}

	// happened gets a value, if it has none, when there is something to take.
	happened chan struct{}

	// isNothing reports whether what has been gathered concerns no process that
	// is to be scanned. It is not asked while what was taken is being scanned.
	isNothing func(*happenings) bool

	mu       sync.Mutex
	taken    happenings
	scanning bool // what was taken
	pace     pace
}

// openEventSource needs CAP_PERFMON, before Linux 5.8 CAP_SYS_ADMIN, or
// kernel.perf_event_paranoid of at most 0.
func openEventSource(isNothing func(*happenings) bool) (source *eventSource, err error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("find the CPUs: %w", err)
	}
	cpus, err := parseCPUs(string(text))
	if err != nil {
		return nil, fmt.Errorf("find the CPUs: %w", err)
	}
	s := &eventSource{epoll: -1, closing: -1, happened: make(chan struct{}, 1),
		done: make(chan struct{}), isNothing: isNothing}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if s.closing, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err = s.wait(s.closing); err != nil {
		return nil, err
	}
	for _, cpu := range cpus {
		attr := recordedByKernel
		attr.Wakeup = 1
		r, err := openRing(&attr, -1, cpu, ringBytes)
		if errors.Is(err, unix.ENODEV) {
			continue // switched off meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("open perf event on CPU %d (needs CAP_PERFMON or CAP_SYS_ADMIN): %w", cpu, err)
		}
		s.rings = append(s.rings, r)
		if err := s.wait(r.fd); err != nil {
			return nil, err
		}
	}
	go s.run()
	return s, nil
}

// wait has the goroutine woken by a descriptor.
func (s *eventSource) wait(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// run gathers records until the source is closed. It holds a thread, which
// sleeps in the kernel nearly all of the time.
func (s *eventSource) run() {
	defer close(s.done)
	for {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(s.epoll, events[:], -1)
		if errors.Is(err, unix.EINTR) || (err == nil && n == 0) {
			continue
		}
		if err != nil {
			return // cannot happen with good descriptors
		}
		closing := []unix.PollFd{{Fd: int32(s.closing), Events: unix.POLLIN}}
		if n, _ := unix.Poll(closing, int(s.delay().Milliseconds())); n > 0 {
			return
		}
		s.gather()
	}
}

// delay returns how long to gather records that have begun to come.
func (s *eventSource) delay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.next(time.Now())
}

// spend notes how long it took to scan what was taken.
func (s *eventSource) spend(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scanning = false
	s.pace.spend(time.Now(), took)
}

func (s *eventSource) gather() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.taken.started
	for _, r := range s.rings {
		r.drain(s.taken.add)
	}
	s.pace.after(time.Now(), s.taken.started > before)
	if len(s.taken.pids) == 0 && s.taken.lost == 0 {
		return
	}
	if s.taken.lost == 0 && !s.scanning && s.isNothing(&s.taken) {
		s.taken = happenings{started: s.taken.started}
		return
	}
	select {
	case s.happened <- struct{}{}:
	default:
	}
}

// take returns what has been gathered since it was called last.
func (s *eventSource) take() happenings {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.taken
	s.taken, s.scanning = happenings{}, true
	return taken
}

// Close ends the goroutine and frees the buffers.
func (s *eventSource) Close() error {
	one := [8]byte{1, 1} // not 0 in either byte order, which is what matters
	if _, err := unix.Write(s.closing, one[:]); err != nil {
		return fmt.Errorf("close kernel events: %w", err)
	}
	<-s.done
	s.free()
	return nil
}

func (s *eventSource) free() {
	for _, r := range s.rings {
		r.free()
	}
	for _, fd := range []int{s.closing, s.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// ring is the buffer of one CPU's records, which the kernel writes and we read.
// It is made of a page of control data and a power of two of pages of records.
type ring struct {
	fd      int
	memory  []byte
	control *unix.PerfEventMmapPage
	data    []byte
	scratch []byte // for a record that goes on at the beginning of data
}

// recordedByKernel has forks, execs, exits and executable mappings recorded.
var recordedByKernel = unix.PerfEventAttr{
	Type:   unix.PERF_TYPE_SOFTWARE,
	Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	Config: unix.PERF_COUNT_SW_DUMMY,
	// Without the watermark these records, which are not samples, would wake
	// nobody before half of the buffer is full.
	Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
		unix.PerfBitTask | unix.PerfBitWatermark,
}

func openRing(attr *unix.PerfEventAttr, pid, cpu, size int) (*ring, error) {
	fd, err := unix.PerfEventOpen(attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("perf_event_open: %w", err)
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(fd, 0, page+max(size, page), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map the buffer: %w", err)
	}
	return &ring{
		fd: fd, memory: memory,
		control: (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0])),
		data:    memory[page:],
	}, nil
}

// drain shows each record that there is, and makes room for others.
func (r *ring) drain(each func(record []byte)) {
	head := atomic.LoadUint64(&r.control.Data_head)
	tail := r.control.Data_tail // only we write it
	tail = drainRecords(r.data, head, tail, &r.scratch, each)
	atomic.StoreUint64(&r.control.Data_tail, tail)
}

func (r *ring) free() {
	// Nothing can be done about errors of giving back what we have.
	_ = unix.Munmap(r.memory)
	_ = unix.Close(r.fd)
}

// Records are what the kernel records of processes, as for perf record: of
// each executable mapping with the build ID of the file.
type Records struct {
	rings []*ring
	fds   []unix.PollFd // the last one is an eventfd that ends the waiting
}

// recordBytes is the size of a buffer. A process that starts takes 1 to 4 kB.
const recordBytes = 256 << 10

// RecordAll begins to record what all processes do. It waits until a buffer is
// half full. It needs CAP_PERFMON, before Linux 5.8 CAP_SYS_ADMIN.
func RecordAll() (*Records, error) { return openRecords(-1, 0, recordBytes/2) }

// RecordFamily begins with the next program that a thread executes, and records
// what that and all that descend from it do. It waits for the first record.
func RecordFamily(tid int) (*Records, error) {
	return openRecords(tid,
		unix.PerfBitDisabled|unix.PerfBitEnableOnExec|unix.PerfBitInherit, 1)
}

func openRecords(tid int, bits uint64, wakeup uint32) (_ *Records, err error) {
	r := &Records{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	closing, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	defer func() {
		r.fds = append(r.fds, unix.PollFd{Fd: int32(closing), Events: unix.POLLIN})
	}()
	text, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return nil, fmt.Errorf("find the CPUs: %w", err)
	}
	cpus, err := parseCPUs(string(text))
	if err != nil {
		return nil, fmt.Errorf("find the CPUs: %w", err)
	}
	attr := recordedByKernel
	attr.Bits |= bits | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.CBitFieldMaskBit34
	attr.Sample_type = unix.PERF_SAMPLE_TIME
	attr.Clockid = unix.CLOCK_REALTIME // the same in every time namespace
	attr.Wakeup = wakeup
	for _, cpu := range cpus {
		opened, err := openRing(&attr, tid, cpu, recordBytes)
		if errors.Is(err, unix.EINVAL) && attr.Bits&unix.CBitFieldMaskBit34 != 0 {
			attr.Bits &^= unix.CBitFieldMaskBit34 // build IDs, since Linux 5.12
			opened, err = openRing(&attr, tid, cpu, recordBytes)
		}
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) && cpu > 0 {
			continue // switched off, or not there
		}
		if err != nil {
			return nil, err
		}
		r.rings = append(r.rings, opened)
		r.fds = append(r.fds, unix.PollFd{Fd: int32(opened.fd), Events: unix.POLLIN})
	}
	return r, nil
}

// Wait waits for records, and reports whether there may be some: it was not
// stopped.
func (r *Records) Wait() bool {
	for {
		n, err := unix.Poll(r.fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false // cannot happen with good descriptors
		}
		for i := range r.fds[:len(r.rings)] {
			if r.fds[i].Revents&unix.POLLHUP != 0 { // all processes have ended
				r.fds[i].Fd = -1 // which poll leaves out
			}
		}
		if r.fds[len(r.rings)].Revents != 0 {
			return false
		}
		if n > 0 {
			return true
		}
	}
}

// Stop ends the waiting, now and later.
func (r *Records) Stop() {
	one := [8]byte{1, 1} // not 0 in either byte order, which is what matters
	_, _ = unix.Write(int(r.fds[len(r.rings)].Fd), one[:])
}

// each shows each record that there is, and makes room for others.
func (r *Records) each(each func(record []byte)) {
	for _, ring := range r.rings {
		ring.drain(each)
	}
}

// Close ends the recording. Nothing waits then.
func (r *Records) Close() {
	for _, ring := range r.rings {
		ring.free()
	}
	if len(r.fds) > len(r.rings) {
		_ = unix.Close(int(r.fds[len(r.rings)].Fd))
	}
	r.rings, r.fds = nil, nil
}
