// SPDX-License-Identifier: BSD-2-Clause

package proc

import "encoding/binary"

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
	// pids are processes to scan: true if whatever is known about them,
	// false if only those whose first thread has ended.
	pids    map[int]bool
	lost    uint64
	started int // how often a process has started, has executed a file or has ended
}

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
			h.addPID(word(0), true)
		}
	case recordFork:
		if word(0) != word(4) { // else it is a thread
			h.started++
			h.addPID(word(0), true)
		}
	case recordExit:
		// A process ends with its last thread, which is not always the first:
		// of those killed, any may be.
		if word(0) == word(8) {
			h.started++
		}
		h.addPID(word(0), word(0) == word(8))
	case recordMmap2:
		// Only executable memory is reported. Anonymous memory has no file.
		if word(32)|word(36)|word(40)|word(44) != 0 {
			h.addPID(word(0), true)
		}
	}
}

// addPID leaves out 0 and -1: processes of other PID namespaces.
func (h *happenings) addPID(pid uint32, always bool) {
	if pid == 0 || pid > 1<<30 {
		return
	}
	if h.pids == nil {
		h.pids = make(map[int]bool)
	}
	h.pids[int(pid)] = h.pids[int(pid)] || always
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
