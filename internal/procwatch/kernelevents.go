// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/procfs"
)

// Types of records, and a bit of their headers, from
// include/uapi/linux/perf_event.h.
const (
	recordLost  = 2  // u64 id, u64 lost
	recordComm  = 3  // u32 pid, tid; char name[]
	recordExit  = 4  // u32 pid, ppid, tid, ptid; u64 time
	recordFork  = 7  // as exit
	recordMmap2 = 10 // u32 pid, tid; u64 address, length, offset; u32 major, minor; u64 inode; ...

	recordHeader = 8       // u32 type; u16 misc, size
	commIsExec   = 1 << 13 // in misc
)

// happenings is what records of the kernel tell.
type happenings struct {
	pids    map[int]*told
	lost    uint64
	started int // how often a process has started, has executed a file or has ended
}

// told is what has happened to a process.
type told struct {
	parent      int  // that has forked it, 0 if it was there before
	executed    bool // another program
	ended       bool // with its first thread
	threadEnded bool // another one than the first
	mapped      []mappedFile
	many        bool // more than are in mapped
}

// mappedFile is a file as records tell it. The generation tells it from another
// one that had the same inode.
type mappedFile struct {
	mapKey
	generation uint64
}

// mapKey is a file as maps tells it. It can be one of several: see FileID.
type mapKey struct {
	major, minor uint32
	inode        uint64
}

// maxMapped bounds what is noted of a process between two looks.
const maxMapped = 32

// add notes what a record tells. It begins with its header. Records that are
// too short for their type tell nothing.
func (h *happenings) add(record []byte) {
	if len(record) < recordHeader {
		return
	}
	misc := binary.NativeEndian.Uint16(record[4:])
	body := record[recordHeader:]
	word := func(at int) uint32 {
		if at+4 > len(body) {
			return 0
		}
		return binary.NativeEndian.Uint32(body[at:])
	}
	switch binary.NativeEndian.Uint32(record) {
	case recordLost:
		h.lost++
	case recordComm:
		// Other names than those of exec matter to a filter, but they come from
		// every thread; passes find them.
		if misc&commIsExec != 0 {
			h.started++
			h.of(word(0)).executed = true
		}
	case recordFork:
		if word(0) != word(4) { // else it is a thread
			h.started++
			h.of(word(0)).parent = int(word(4))
		}
	case recordExit:
		// A process ends with its last thread, which is not always the first:
		// of those killed, any may be.
		if word(0) == word(8) {
			h.started++
			h.of(word(0)).ended = true
		} else {
			h.of(word(0)).threadEnded = true
		}
	case recordMmap2:
		// Only executable memory is reported. Anonymous memory has no file.
		if word(32)|word(36)|word(40)|word(44) != 0 {
			long := func(at int) uint64 { return uint64(word(at)) | uint64(word(at+4))<<32 }
			if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
				long = func(at int) uint64 { return uint64(word(at))<<32 | uint64(word(at+4)) }
			}
			h.of(word(0)).add(mappedFile{mapKey{word(32), word(36), long(40)}, long(48)})
		}
	}
}

// of returns what is noted of a process. What is said of 0 and -1, which are
// processes of other PID namespaces, is not kept.
func (h *happenings) of(pid uint32) *told {
	if pid == 0 || pid > 1<<30 {
		return new(told)
	}
	if h.pids == nil {
		h.pids = make(map[int]*told)
	}
	t := h.pids[int(pid)]
	if t == nil {
		t = new(told)
		h.pids[int(pid)] = t
	}
	return t
}

func (t *told) add(file mappedFile) {
	switch {
	case slices.Contains(t.mapped, file):
	case len(t.mapped) == maxMapped:
		t.many = true
	default:
		t.mapped = append(t.mapped, file)
	}
}

// drainRecords shows each record between tail and head of a ring of a power of
// two bytes, and returns the new tail. Positions only ever grow. scratch is for
// records that go around the end.
func drainRecords(
	data []byte, head, tail uint64, scratch *[]byte, each func(record []byte),
) uint64 {
	mask := uint64(len(data) - 1)
	for head-tail >= recordHeader {
		// Records are multiples of 8 bytes, so that a header is in one piece.
		at := tail & mask
		size := uint64(binary.NativeEndian.Uint16(data[at+6:]))
		if size < recordHeader || size%8 != 0 || size > head-tail || size > uint64(len(data)) {
			return head // not the kernel's doing; start afresh
		}
		if end := at + size; end <= uint64(len(data)) {
			each(data[at:end])
		} else {
			*scratch = append(append((*scratch)[:0], data[at:]...), data[:end-uint64(len(data))]...)
			each(*scratch)
		}
		tail += size
	}
	return head
}

// maxCPUs bounds the list: Linux has at most 8,192 CPUs.
const maxCPUs = 1 << 16

// parseCPUs reads a list as "0-3,5" from /sys/devices/system/cpu.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, ok := procfs.ParseDecimal(first)
		high, ok2 := procfs.ParseDecimal(last)
		if !ok || !ok2 || low > high || high >= maxCPUs {
			return nil, fmt.Errorf("%w list of CPUs: %q", procfs.ErrMalformed, list)
		}
		for cpu := low; cpu <= high; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// pace says how long records of the kernel are gathered before the processes
// that they name are scanned. What happens, happens in bursts: a program starts
// by mapping a dozen files. Without a delay it would be scanned for each.
//
// The delay is the least there is after a quiet time, so that a new program is
// scanned at once. It is longer while programs start and end all the time,
// because to be woken for each costs more than to scan it, longer still while
// programs that run already map files, and where the scans have taken more of
// the time than they are allowed.
type pace struct {
	delay    time.Duration // the last one
	gathered time.Time
	started  bool // a process has started or ended since the one before
	scans    fairness.Allowance
}

// next returns the delay for records that have begun to come.
func (p *pace) next(now time.Time) time.Duration {
	switch {
	case now.Sub(p.gathered) > eventDelay:
		p.delay = firstEventDelay
	case p.started:
		p.delay = min(2*p.delay, startsDelay)
	default:
		p.delay = min(2*p.delay, eventDelay)
	}
	return max(p.delay, min(p.scans.Wait(eventRate, now), eventDelay))
}

// after notes that records have been gathered, and whether processes have
// started or ended among them.
func (p *pace) after(now time.Time, started bool) { p.gathered, p.started = now, started }

// spend notes how long a scan took of what was gathered.
func (p *pace) spend(now time.Time, took time.Duration) { p.scans.Take(eventRate, now, took) }
