// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ringMemory is the memory of a ring buffer, which the kernel and this process
// share. It reads what is there. To wait for more is left to a [ringbuf.Reader]
// of the same ring buffer: that takes three times as long for each record,
// because it locks, and tells the kernel each time how far it has read.
type ringMemory struct {
	consumer, producer *uint64 // positions, which only grow; in the memory
	data               []byte  // mapped twice, so that no record is in two parts
	mask               uint64
	pages              [2][]byte // what to unmap

	read     uint64 // position up to which records were read
	reported uint64 // up to where the kernel knows of it
	produced uint64 // up to where there are records, as far as was asked
	limit    uint64 // up to where to read before the kernel is told

	// mu guards users and ended. The memory is unmapped when it has ended and
	// nobody uses it.
	mu    sync.Mutex
	users int
	ended atomic.Bool

	// interrupted wakes the reader, which then checks whether it must end.
	interrupted atomic.Bool
}

// The header of a record in the ring buffer, of linux/bpf.h: the length, with
// two flags, and a number for the kernel.
const (
	recordHeader    = 8
	recordBusy      = 1 << 31 // it is being written
	recordDiscarded = 1 << 30
)

// reportEvery is the part of the ring buffer that is read before the kernel is
// told: telling it takes as long as reading an event.
const reportEvery = 8

func newRingMemory(ring *ebpf.Map) (*ringMemory, error) {
	page, size := os.Getpagesize(), int(ring.MaxEntries())
	consumer, err := unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	rest, err := unix.Mmap(ring.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(consumer))
	}
	return &ringMemory{
		consumer: (*uint64)(unsafe.Pointer(&consumer[0])),
		producer: (*uint64)(unsafe.Pointer(&rest[0])),
		data:     rest[page:], mask: uint64(size) - 1, pages: [2][]byte{consumer, rest},
	}, nil
}

// use keeps the memory until done. It reports whether it has not ended.
func (m *ringMemory) use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended.Load() {
		return false
	}
	m.users++
	m.skip()
	return true
}

// done ends a use.
func (m *ringMemory) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report()
	m.users--
	m.unmap()
}

// end ends all reading. nil has nothing to end.
func (m *ringMemory) end() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended.Swap(true) {
		m.unmap()
	}
	m.interrupted.Store(true)
}

func (m *ringMemory) unmap() {
	if m.users == 0 && m.ended.Load() {
		for _, pages := range m.pages {
			_ = unix.Munmap(pages) // it is mapped
		}
	}
}

// next returns the next record of those that were there at the last refill. It
// is in the memory, and is there until refill is called. It is small enough to
// be inlined.
func (m *ringMemory) next() (record []byte, ok bool) {
	at := m.read & m.mask
	length := uint64(m.header(at))
	if m.read >= m.limit || length >= recordDiscarded {
		return nil, false
	}
	m.read += recordHeader + (length+7)&^7
	return m.data[at+recordHeader : at+recordHeader+length], true
}

// header returns the length and the flags of the record at a place.
func (m *ringMemory) header(at uint64) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&m.data[at])))
}

// refill asks what the kernel has written meanwhile, skips discarded records,
// and reports whether next has a record again. If not, it has told the kernel
// how far was read, so that the next record wakes the reader. Otherwise it
// tells it from time to time.
func (m *ringMemory) refill() bool {
	for !m.ended.Load() {
		if m.read-m.reported >= m.part() {
			m.report()
		}
		m.produced = atomic.LoadUint64(m.producer)
		m.limit = min(m.produced, m.read+m.part())
		for m.read < m.limit {
			header := m.header(m.read & m.mask)
			if header&recordBusy != 0 {
				break
			}
			if header&recordDiscarded == 0 {
				return true
			}
			m.read += recordHeader + (uint64(header&^recordDiscarded)+7)&^7
		}
		if !m.report() {
			return false
		}
		// Since then there may be one, for which the kernel woke up nobody.
	}
	m.report() // who goes on with the reader must not read the same again
	return false
}

// part is how much is read before the kernel is told.
func (m *ringMemory) part() uint64 { return (m.mask + 1) / reportEvery }

// isEmpty reports whether there was no record at the last refill, not even one
// that was being written.
func (m *ringMemory) isEmpty() bool { return m.read == m.produced }

// report tells the kernel how far was read. It reports whether that is news.
func (m *ringMemory) report() bool {
	if m.reported == m.read {
		return false
	}
	m.reported = m.read
	atomic.StoreUint64(m.consumer, m.read)
	return true
}

// skip goes to where another reader of the ring buffer has read.
func (m *ringMemory) skip() {
	m.read = atomic.LoadUint64(m.consumer) // up to where the kernel knows that records were read
	m.reported, m.produced, m.limit = m.read, m.read, m.read
}
