// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/procfs"
)

// Record is what the kernel has recorded of a process.
type Record struct {
	Kind RecordKind
	PID  int
	Time int64 // in nanoseconds after 1970

	Parent int // of what was forked

	// What was mapped: where, and the file by the path that the process uses.
	Mapping procfs.Mapping
	Path    string
	BuildID string // "" if the kernel does not tell it: then there is file

	file mappedFile
}

// RecordKind is what has happened.
type RecordKind int

// The kinds of records. Others are not shown.
const (
	RecordsLost     RecordKind = iota // of any process
	ProcessForked                     // and has what its parent has mapped
	ProcessExecuted                   // another program
	ProcessEnded
	FileMapped // to be executed
)

// mmapHasBuildID says that the identity of the file has been replaced. It is a
// bit of the header, from include/uapi/linux/perf_event.h.
const mmapHasBuildID = 1 << 14

// ParseRecord returns what a record tells that ends with a time. What it says
// of threads, and of processes of other PID namespaces, is left out.
func ParseRecord(record []byte) (r Record, ok bool) {
	const shortest = recordHeader + 16 + 8
	if len(record) < shortest {
		return r, false
	}
	body, time := record[recordHeader:len(record)-8], record[len(record)-8:]
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(body[at:]) }
	long := func(at int) uint64 { return binary.NativeEndian.Uint64(body[at:]) }
	kind, misc := binary.NativeEndian.Uint32(record), binary.NativeEndian.Uint16(record[4:])
	if kind == recordLost {
		return r, true
	}
	r.Time, r.PID = int64(binary.NativeEndian.Uint64(time)), int(int32(word(0)))
	if r.PID <= 0 {
		return r, false
	}
	switch kind {
	case recordFork:
		r.Kind, r.Parent = ProcessForked, int(int32(word(4)))
		return r, r.Parent != r.PID
	case recordComm:
		r.Kind = ProcessExecuted
		return r, misc&commIsExec != 0
	case recordExit:
		r.Kind = ProcessEnded
		return r, word(0) == word(8)
	case recordMmap2:
		const pathAt = 64
		if len(body) <= pathAt {
			return r, false
		}
		r.Kind = FileMapped
		r.Mapping = procfs.Mapping{Start: long(8), End: long(8) + long(16), Offset: long(24)}
		path, _, _ := bytes.Cut(body[pathAt:], []byte{0})
		if misc&mmapHasBuildID != 0 {
			r.BuildID = hex.EncodeToString(body[36:][:min(body[32], 20)])
		} else {
			r.file = mappedFile{mapKey{word(32), word(36), long(40)}, long(48)}
		}
		isFile := r.BuildID != "" || r.file.mapKey != mapKey{}
		r.Path = string(path)
		return r, isFile && strings.HasPrefix(r.Path, "/") && r.Mapping.End > r.Mapping.Start
	}
	return r, false
}

// Drain returns what has been recorded since it was called last, in the order
// in which it has happened as far as processors agree on that.
func (r *Records) Drain() (all []Record) {
	r.each(func(record []byte) {
		if parsed, ok := ParseRecord(record); ok {
			all = append(all, parsed)
		}
	})
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.Time, b.Time) })
	return all
}

// RecordedFile is a file that a process has mapped, as another process finds it
// by its path.
type RecordedFile struct {
	fs     *procfs.FS
	pid    int
	record *Record
}

// In returns the file that a process finds by the path: the one that has mapped
// it, or when that has ended another one of the same mount namespace.
func (r *Record) In(fs *procfs.FS, pid int) RecordedFile { return RecordedFile{fs, pid, r} }

// Open opens the file if it is the one that ID has identified.
func (f RecordedFile) Open() (*os.File, error) {
	id, err := f.ID()
	if err != nil {
		return nil, err
	}
	file, err := OpenIn(f.fs, f.pid, f.record.Path)
	if err != nil {
		return nil, err
	}
	if opened, err := IdentifyFile(file); err != nil || opened != id {
		file.Close()
		return nil, f.wrap(procfs.ErrChanged)
	}
	return file, nil
}

// mayBeOf reports whether a file is the one that was mapped, as far as that can
// be said without its build ID. Its number may have been given to another one
// meanwhile, and its contents may have been replaced, but not before it was
// mapped. Devices of overlayfs have other numbers in records.
func (r *Record) mayBeOf(id identity) bool {
	return r.BuildID != "" || id.inode == r.file.inode &&
		(id.overlay || id.device == uint64(r.file.major)<<32|uint64(r.file.minor)) &&
		id.born <= r.Time && id.modified <= r.Time
}

func (f RecordedFile) wrap(err error) error {
	return fmt.Errorf("%s as process %d sees it: %w", f.record.Path, f.pid, err)
}
