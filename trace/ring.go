// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ringReader reads a ring buffer in the memory that the kernel and this process
// share. A [ringbuf.Reader] of cilium/ebpf takes three times as long for each
// record, because it locks, and tells the kernel each time how far it has read.
type ringReader struct {
	file     waiter          // the map, for Go's poller
	conn     syscall.RawConn // of file
	consumer *uint64         // in the memory: a position that only grows
	producer *uint64         // the same
	data     []byte          // mapped twice, so that each record is in one part
	mask     uint64
	pages    [2][]byte // the mappings

	read     uint64 // position up to which records were read
	reported uint64 // the same, as far as the kernel knows
	limit    uint64 // position at which next returns nothing

	// mu guards used and ended. The memory is unmapped when the reader has
	// ended and is not used.
	mu    sync.Mutex
	used  bool
	ended atomic.Bool

	// interrupted wakes the reader, which then checks whether it must end.
	interrupted atomic.Bool
}

// A waiter is what a reader waits with: a file, or a test's.
type waiter interface {
	SetReadDeadline(at time.Time) error
	Close() error
}

// The header of a record in the ring buffer, of linux/bpf.h: the length, with
// two flags, and a number for the kernel.
const (
	recordHeader    = 8
	recordBusy      = 1 << 31 // it is being written
	recordDiscarded = 1 << 30
)

// reportEvery divides the ring buffer into the parts after which the kernel is
// told how far was read: telling it takes as long as reading an event.
const reportEvery = 8

func newRingReader(ring *ebpf.Map) (_ *ringReader, err error) {
	page, size := os.Getpagesize(), int(ring.MaxEntries())
	m := &ringReader{file: (*os.File)(nil), mask: uint64(size) - 1}
	defer func() {
		if err != nil {
			m.end()
		}
	}()
	fd, err := unix.FcntlInt(uintptr(ring.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetNonblock(fd, true) // then os.NewFile adds it to the poller
	file := os.NewFile(uintptr(fd), "ring buffer")
	m.file = file
	if err != nil {
		return nil, err
	}
	if m.conn, err = file.SyscallConn(); err != nil {
		return nil, err
	}
	if m.pages[0], err = unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if m.pages[1], err = unix.Mmap(fd, int64(page), page+2*size, unix.PROT_READ,
		unix.MAP_SHARED); err != nil {
		return nil, err
	}
	m.consumer = (*uint64)(unsafe.Pointer(&m.pages[0][0]))
	m.producer = (*uint64)(unsafe.Pointer(&m.pages[1][0]))
	m.data = m.pages[1][page:]
	return m, nil
}

// use keeps the memory until done is called. It reports whether there is one:
// the reader has not ended.
func (m *ringReader) use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = !m.ended.Load()
	return m.used
}

// written returns the position up to which there are records, and whether there
// is one: the reader has not ended.
func (m *ringReader) written() (position uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended.Load() {
		return 0, false
	}
	return atomic.LoadUint64(m.producer), true
}

func (m *ringReader) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report()
	if m.used = false; m.ended.Load() {
		m.unmap()
	}
}

// end ends all reading. The reader may be nil.
func (m *ringReader) end() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended.Swap(true) && !m.used {
		m.unmap()
	}
	m.interrupted.Store(true)
	_ = m.file.Close() // it wakes the reader
}

func (m *ringReader) unmap() {
	for _, pages := range m.pages {
		_ = unix.Munmap(pages) // it is mapped, or empty
	}
}

var past = time.Unix(1, 0)

// interrupt ends a wait that is going on, or the next one.
func (m *ringReader) interrupt() {
	m.interrupted.Store(true)
	_ = m.file.SetReadDeadline(past) // it fails only if the reader has ended
}

// wait waits for a record, an interruption or a deadline, if that is not zero.
// In a nap it waits until records fill a part of the ring buffer, or the kernel
// wakes the reader for another reason. The error is os.ErrClosed when the
// reader has ended.
func (m *ringReader) wait(deadline time.Time, naps bool) error {
	if !naps {
		m.report()
	}
	err := m.file.SetReadDeadline(deadline)
	if err == nil && !m.interrupted.Load() {
		woken := false
		err = m.conn.Read(func(uintptr) bool {
			if !naps {
				return m.hasMore()
			}
			ends := woken || atomic.LoadUint64(m.producer)-m.read >= m.part()
			woken = true
			return ends
		})
	}
	switch {
	case m.ended.Load():
		return os.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return err
}

func (m *ringReader) hasMore() bool {
	return atomic.LoadUint64(m.producer) != m.read && m.header(m.read&m.mask)&recordBusy == 0
}

// next returns the next of the records that were there at the last refill. The
// record is in the memory, and valid until refill is called. The function is
// small enough to be inlined.
func (m *ringReader) next() (record []byte, ok bool) {
	at := m.read & m.mask
	length := uint64(m.header(at))
	if m.read >= m.limit || length >= recordDiscarded {
		return nil, false
	}
	m.read += recordHeader + (length+7)&^7
	return m.data[at+recordHeader : at+recordHeader+length], true
}

func (m *ringReader) header(at uint64) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&m.data[at])))
}

// refill looks for new records, skips discarded ones, and reports whether next
// has a record.
func (m *ringReader) refill() bool {
	if m.read-m.reported >= m.part() {
		m.report()
	}
	for written := atomic.LoadUint64(m.producer); m.read < written && !m.ended.Load(); {
		header := m.header(m.read & m.mask)
		if header&recordBusy != 0 {
			break
		}
		if header&recordDiscarded == 0 {
			m.limit = min(written, m.read+m.part())
			return true
		}
		m.read += recordHeader + (uint64(header&^recordDiscarded)+7)&^7
	}
	return false
}

// part is the number of bytes that are read before the kernel is told.
func (m *ringReader) part() uint64 { return (m.mask + 1) / reportEvery }

// report tells the kernel how far was read. A record that is written there
// wakes the reader, and no other one does.
func (m *ringReader) report() {
	if m.reported != m.read {
		m.reported = m.read
		atomic.StoreUint64(m.consumer, m.read)
	}
}
