// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mappingRecords are what the kernel records of the executable mappings of a
// thread and of all that descend from it, as for perf record: a buffer for each
// processor, of a perf event that counts nothing.
type mappingRecords struct {
	rings []*recordRing
	fds   []unix.PollFd
}

// recordRing is a page of control data and a power of two of pages of records.
type recordRing struct {
	memory  []byte
	control *unix.PerfEventMmapPage
	data    []byte
}

// recordBytes is the size of a buffer. A process that starts takes 1 to 4 kB.
const recordBytes = 256 << 10

// recordMappings begins with the next program that the thread executes.
func recordMappings(tid int) (r *mappingRecords, err error) {
	r = &mappingRecords{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	for cpu := range cpus {
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
			Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Sample_type: unix.PERF_SAMPLE_TIME,
			Bits: unix.PerfBitDisabled | unix.PerfBitEnableOnExec | unix.PerfBitInherit |
				unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
				unix.PerfBitTask | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
				unix.PerfBitWatermark,
			Clockid: unix.CLOCK_REALTIME, // the same in every time namespace
			Wakeup:  1,
		}
		fd, err := unix.PerfEventOpen(&attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) && cpu > 0 {
			continue // switched off, or not there
		}
		if err != nil {
			return nil, fmt.Errorf("perf_event_open: %w", err)
		}
		r.fds = append(r.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		page := os.Getpagesize()
		memory, err := unix.Mmap(fd, 0, page+max(recordBytes, page),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return nil, fmt.Errorf("mapping a perf event: %w", err)
		}
		r.rings = append(r.rings, &recordRing{
			memory: memory, control: (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0])),
			data: memory[page:],
		})
	}
	return r, nil
}

// wait waits for records, and reports whether there may be some: the context
// has not ended.
func (r *mappingRecords) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		n, _ := unix.Poll(r.fds, exitPatience)
		for i := range r.fds {
			if r.fds[i].Revents&unix.POLLHUP != 0 { // all processes have ended
				r.fds[i].Fd = ^r.fds[i].Fd // which poll leaves out
			}
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// drain shows each record that there is, and makes room for others.
func (r *mappingRecords) drain(each func(record []byte)) {
	for _, ring := range r.rings {
		head, tail := atomic.LoadUint64(&ring.control.Data_head), ring.control.Data_tail
		mask := uint64(len(ring.data) - 1)
		at := func(position uint64) byte { return ring.data[position&mask] }
		for head-tail >= recordHeader {
			size := uint64(*(*uint16)(unsafe.Pointer(&ring.data[(tail+6)&mask])))
			if size < recordHeader || size > head-tail {
				tail = head // not the kernel's doing
				break
			}
			record := make([]byte, size)
			for i := range record {
				record[i] = at(tail + uint64(i))
			}
			each(record)
			tail += size
		}
		atomic.StoreUint64(&ring.control.Data_tail, tail)
	}
}

func (r *mappingRecords) close() {
	for _, ring := range r.rings {
		_ = unix.Munmap(ring.memory)
	}
	for _, fd := range r.fds {
		_ = unix.Close(int(max(fd.Fd, ^fd.Fd)))
	}
	r.rings, r.fds = nil, nil
}
