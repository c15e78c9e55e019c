// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mappedRing is a ring buffer's memory, read by as little as Go can: what a
// loop over records takes that decodes nothing, waits for nothing and can not
// be ended.
type mappedRing struct {
	consumer, producer *uint64
	data               []byte
	mask               uint64
}

// The kernel's header of a record: its length, with flags in the two highest
// bits, and four bytes that are the kernel's.
const (
	ringHeader = 8
	ringFlags  = 3 << 30
)

func (e *env) mapRing(id ebpf.MapID) (*mappedRing, error) {
	ring, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer ring.Close()
	page, size := os.Getpagesize(), int(ring.MaxEntries())
	consumer, err := unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	e.cleanup(func() { unix.Munmap(consumer) })
	rest, err := unix.Mmap(ring.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	e.cleanup(func() { unix.Munmap(rest) })
	return &mappedRing{
		consumer: (*uint64)(unsafe.Pointer(&consumer[0])),
		producer: (*uint64)(unsafe.Pointer(&rest[0])),
		data:     rest[page:], mask: uint64(size) - 1,
	}, nil
}

// records iterates over what is there.
func (r *mappedRing) records() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		read := atomic.LoadUint64(r.consumer)
		for end := atomic.LoadUint64(r.producer); read != end; {
			at := read & r.mask
			length := uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[at]))))
			if length&ringFlags != 0 {
				break
			}
			read += ringHeader + (length+7)&^7
			if !yield(r.data[at+ringHeader:at+ringHeader+length], nil) {
				break
			}
		}
		atomic.StoreUint64(r.consumer, read)
	}
}

// readAll adds up what is there, as libbpf's program does that decodes nothing.
func (r *mappedRing) readAll(count int) error {
	sum, came := uint64(0), 0
	for record, err := range r.records() {
		if err != nil {
			return err
		}
		of := uint64(0)
		// As words, because then nothing is checked for each.
		for _, word := range unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(record))),
			len(record)/8) {
			of += word
		}
		sum += of
		came++
	}
	runtime.KeepAlive(sum) // so that reading cannot be left out
	if came != count {
		return fmt.Errorf("%d of %d events came", came, count)
	}
	return nil
}
