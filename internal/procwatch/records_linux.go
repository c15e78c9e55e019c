// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perfRecords are a Recorder of the kernel, as perf record is. The records come
// from perf events of the kind that counts nothing (PERF_COUNT_SW_DUMMY), one
// per CPU.
type perfRecords struct {
	rings []*ring
	epoll int

	mu   sync.Mutex // guards what follows
	stop int        // an eventfd that ends the waiting, -1 when it is closed
}

// recordBytes is the size of a CPU's buffer where all records matter. A process
// that starts takes 1 to 4 kB.
const recordBytes = 256 << 10

// stopped is what epoll calls the eventfd, which is no descriptor.
const stopped = -1

// withBuildIDs asks the kernel for the build IDs of mapped files (Linux 5.12).
const withBuildIDs = unix.CBitFieldMaskBit34

// OpenRecords begins to record each fork, exec and exit, and each executable
// mapping. From the next program that the thread tid executes, it records that
// process and its descendants. If tid is 0, it records all processes, which
// needs CAP_PERFMON, before Linux 5.8 CAP_SYS_ADMIN, or
// kernel.perf_event_paranoid of at most 0. Wait returns at the first record if
// atOnce is set, else when a buffer is half full.
func OpenRecords(tid int, atOnce bool) (Recorder, error) {
	bits, wakeup := uint64(withBuildIDs), recordBytes/2
	if tid != 0 {
		bits |= unix.PerfBitDisabled | unix.PerfBitEnableOnExec | unix.PerfBitInherit
	} else {
		tid = -1
	}
	if atOnce {
		wakeup = 1
	}
	return openRecords(tid, bits, recordBytes, wakeup)
}

// recordEvents is OpenRecords for a watcher, which compares files by their
// device and inode.
func recordEvents() (Recorder, error) { return openRecords(-1, 0, ringBytes, 1) }

// openRecords opens the buffers, of some bytes each.
func openRecords(tid int, bits uint64, bytes, wakeup int) (_ Recorder, err error) {
	r := &perfRecords{epoll: -1, stop: -1}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if r.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	waitFor := func(fd int, as int32) error {
		return os.NewSyscallError("epoll_ctl", unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: as}))
	}
	if err := waitFor(r.stop, stopped); err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_DUMMY,
		Bits: bits | unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
			unix.PerfBitTask | unix.PerfBitWatermark | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID,
		Sample_type: unix.PERF_SAMPLE_TIME,
		Clockid:     unix.CLOCK_REALTIME, // the same in every time namespace
		// Without it these records, which are not samples, would not wake the
		// reader before half of the buffer is full.
		Wakeup: uint32(wakeup),
	}
	for cpu := range maxCPUs {
		opened, err := openRing(&attr, tid, cpu, bytes)
		if errors.Is(err, unix.EINVAL) && attr.Bits&withBuildIDs != 0 {
			attr.Bits &^= withBuildIDs
			opened, err = openRing(&attr, tid, cpu, bytes)
		}
		switch {
		case errors.Is(err, unix.ENODEV):
			continue // switched off
		case errors.Is(err, unix.EINVAL) && len(r.rings) > 0: // there are no more
			return r, nil
		case err != nil:
			return nil, fmt.Errorf("open perf event on CPU %d (needs CAP_PERFMON or CAP_SYS_ADMIN): %w", cpu, err)
		}
		r.rings = append(r.rings, opened)
		if err := waitFor(opened.fd, int32(opened.fd)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Wait holds a thread, which sleeps in the kernel.
func (r *perfRecords) Wait() bool {
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(r.epoll, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false // cannot happen with good descriptors
		}
		for _, event := range events[:max(n, 0)] {
			if event.Fd == stopped {
				return false
			}
			if event.Events&unix.EPOLLHUP != 0 { // all processes have ended
				_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, int(event.Fd), nil)
			}
		}
		if n > 0 {
			return true
		}
	}
}

func (r *perfRecords) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop < 0 {
		return // the number may be that of another file
	}
	one := [8]byte{1, 1} // not 0 in either byte order, which is what matters
	_, _ = unix.Write(r.stop, one[:])
}

func (r *perfRecords) Each(each func(record []byte)) {
	for _, ring := range r.rings {
		head := atomic.LoadUint64(&ring.control.Data_head)
		tail := ring.control.Data_tail // only we write it
		tail = drainRecords(ring.data, head, tail, &ring.scratch, each)
		atomic.StoreUint64(&ring.control.Data_tail, tail)
	}
}

func (r *perfRecords) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ring := range r.rings {
		_ = unix.Munmap(ring.memory)
		_ = unix.Close(ring.fd)
	}
	for _, fd := range []int{r.stop, r.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	r.rings, r.stop, r.epoll = nil, -1, -1
}

// ring is the buffer of one CPU's records, which the kernel writes and we read.
// It has a page of control data and a power of two of pages of records.
type ring struct {
	fd      int
	memory  []byte
	control *unix.PerfEventMmapPage
	data    []byte
	scratch []byte // for a record that goes on at the beginning of data
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
