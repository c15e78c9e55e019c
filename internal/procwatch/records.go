// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"os"
	"slices"

	"github.com/gousdt/gousdt/internal/procfs"
)

// Record is a record of the kernel about a process.
type Record struct {
	Kind RecordKind
	PID  int
	Time int64 // in nanoseconds after 1970

	Parent int // of a process that was forked

	// What was mapped: where, and the file by the path that the process uses.
	Mapping procfs.Mapping
	Path    string
	BuildID string // "" if the kernel does not tell it: then there is file

	file mappedFile
}

// RecordKind is the kind of a record.
type RecordKind int

// The kinds of records. [Drain] returns all but those of threads.
const (
	RecordsLost     RecordKind = iota // of any process
	ProcessForked                     // and has what its parent has mapped
	ProcessExecuted                   // another program
	ProcessEnded                      // with its first thread
	FileMapped                        // to be executed
	MemoryMapped                      // to be executed, anonymous
	threadEnded                       // another one than the first
)

// mappedFile is a file as records name it. The generation distinguishes it from
// another one that had the same inode.
type mappedFile struct {
	procfs.FileKey
	generation uint64
}

// Types of records, and bits of misc in their headers, from
// include/uapi/linux/perf_event.h. Each record ends with a time.
const (
	recordLost  = 2  // u64 id, u64 lost
	recordComm  = 3  // u32 pid, tid; char name[]
	recordExit  = 4  // u32 pid, ppid, tid, ptid; u64 time
	recordFork  = 7  // as exit
	recordMmap2 = 10 // u32 pid, tid; u64 address, length, offset; u32 major, minor; u64 inode, generation; u32 prot, flags; ...

	recordHeader   = 8       // u32 type; u16 misc, size
	commIsExec     = 1 << 13 // else the thread has another name
	mmapHasBuildID = 1 << 14 // in place of major, minor, inode and generation
)

// parseRecord returns what a record tells, and separately the path of a mapped
// file or the name of a program that was executed, which point into the record.
// ok is false for records that are too short for their type, and for those of
// new threads, of new names, and of processes of other PID namespaces.
func parseRecord(record []byte) (r Record, text []byte, ok bool) {
	const shortest, pathAt = recordHeader + 16 + 8, 64
	if len(record) < shortest {
		return r, nil, false
	}
	body, time := record[recordHeader:len(record)-8], record[len(record)-8:]
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(body[at:]) }
	long := func(at int) uint64 { return binary.NativeEndian.Uint64(body[at:]) }
	kind, misc := binary.NativeEndian.Uint32(record), binary.NativeEndian.Uint16(record[4:])
	if kind == recordLost {
		return r, nil, true
	}
	r.Time, r.PID = int64(binary.NativeEndian.Uint64(time)), int(int32(word(0)))
	if r.PID <= 0 {
		return r, nil, false
	}
	switch kind {
	case recordFork:
		r.Kind, r.Parent = ProcessForked, int(int32(word(4)))
		return r, nil, r.Parent != r.PID // else it is a thread
	case recordComm:
		r.Kind = ProcessExecuted
		text, _, _ = bytes.Cut(body[8:], []byte{0})
		return r, text, misc&commIsExec != 0
	case recordExit:
		// A process ends with its last thread, which is not always the first:
		// of those killed, any may be.
		if r.Kind = ProcessEnded; word(0) != word(8) {
			r.Kind = threadEnded
		}
		return r, nil, true
	case recordMmap2:
		if len(body) <= pathAt {
			return r, nil, false
		}
		r.Kind = FileMapped
		const protWrite, mapShared = 2, 1
		r.Mapping = procfs.Mapping{Start: long(8), End: long(8) + long(16), Offset: long(24),
			Writable: word(56)&protWrite != 0, Shared: word(60)&mapShared != 0}
		if misc&mmapHasBuildID != 0 {
			r.BuildID = hex.EncodeToString(body[36:][:min(body[32], 20)])
		} else {
			r.file = mappedFile{procfs.FileKey{Major: word(32), Minor: word(36), Inode: long(40)}, long(48)}
		}
		isKnown := r.BuildID != "" || r.file.FileKey != procfs.FileKey{}
		text, _, _ = bytes.Cut(body[pathAt:], []byte{0})
		if !isKnown && string(text) == "//anon" {
			r.Kind, isKnown = MemoryMapped, true
		}
		isKnown = isKnown && bytes.HasPrefix(text, []byte("/"))
		return r, text, isKnown && r.Mapping.End > r.Mapping.Start
	}
	return r, nil, false
}

// Drain returns the records since it was called last. They are in the order of
// their times, on which processors do not quite agree.
func Drain(r Recorder) (all []Record) {
	r.Each(func(record []byte) {
		if parsed, text, ok := parseRecord(record); ok && parsed.Kind != threadEnded {
			if parsed.Kind != ProcessExecuted {
				parsed.Path = string(text)
			}
			all = append(all, parsed)
		}
	})
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.Time, b.Time) })
	return all
}

// drainRecords shows each record between tail and head of a ring of a power of
// two bytes, and returns the new tail. Positions only ever grow. scratch is for
// records that go around the end.
func drainRecords(data []byte, head, tail uint64, scratch *[]byte, each func([]byte)) uint64 {
	mask := uint64(len(data) - 1)
	for head-tail >= recordHeader {
		// Records are multiples of 8 bytes, so that a header is in one piece.
		at := tail & mask
		size := uint64(binary.NativeEndian.Uint16(data[at+6:]))
		if size < recordHeader || size%8 != 0 || size > head-tail || size > uint64(len(data)) {
			return head // the kernel does not write that: start afresh
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

// RecordedFile is the file of a record as a process finds it by its path. That
// is the process that has mapped it or, when that has ended, another one of the
// same mount namespace.
type RecordedFile struct {
	FS     procfs.FS
	PID    int
	Record *Record
}

// Version identifies the file without opening it. The error says that there is
// none, or another one.
func (f RecordedFile) Version() (Version, error) {
	file, id, err := f.find()
	if err != nil {
		return Version{}, err
	}
	return Version{id.FileID, id.Size, id.Modified}, file.Close()
}

// Open opens the file. The errors are those of Version.
func (f RecordedFile) Open() (*os.File, error) {
	found, _, err := f.find()
	if err != nil {
		return nil, err
	}
	return procfs.Reopen(found)
}

func (f RecordedFile) find() (*os.File, procfs.Identity, error) {
	file, id, err := procfs.FindIn(f.FS, f.PID, f.Record.Path)
	// It is the one that was mapped, as far as that can be said without its
	// build ID.
	if err == nil && f.Record.BuildID == "" && !mayHaveBeen(id, f.Record.file.FileKey, f.Record.Time) {
		file.Close()
		return nil, id, procfs.ErrChanged
	}
	return file, id, err
}

// mayHaveBeen reports whether the file may be the one that was mapped at a time
// in nanoseconds after 1970, when maps would have had the key for it. The inode
// may have been given to another file since, and the contents replaced, but not
// before. Devices of overlayfs have other numbers in keys.
func mayHaveBeen(id procfs.Identity, key procfs.FileKey, time int64) bool {
	return id.Inode == key.Inode && (id.Overlay || id.Device == uint64(key.Major)<<32|uint64(key.Minor)) &&
		id.Born <= time && id.Modified <= time
}
