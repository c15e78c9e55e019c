// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestParseRecord(t *testing.T) {
	words := []uint32{100, 101, 0x1000, 0, 0x2000, 0, 0x3000, 0, 8, 1, 77, 0, 7, 0, 5, 2}
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		words = []uint32{100, 101, 0, 0x1000, 0, 0x2000, 0, 0x3000, 8, 1, 0, 77, 0, 7, 5, 2}
	}
	at := procfs.Mapping{Start: 0x1000, End: 0x3000, Offset: 0x3000}
	withBuildID := untimed(recordMmap2, mmapHasBuildID, words...)
	withBuildID[recordHeader+32] = 3
	copy(withBuildID[recordHeader+36:], "\xab\xcd\xef")
	tooLong := bytes.Clone(withBuildID)
	tooLong[recordHeader+32] = 255
	anonymous := untimed(recordMmap2, 0, words...)
	clear(anonymous[recordHeader+32:][:16])
	for _, test := range []struct {
		name   string
		record []byte
		want   Record
	}{
		{"mapping", timed(untimed(recordMmap2, 0, words...), "/a b", 5), Record{Kind: FileMapped,
			PID: 100, Time: 5, Mapping: at, Path: "/a b", file: mappedFile{key(8, 77), 7}}},
		{"with a build ID", timed(withBuildID, "/a", 5), Record{Kind: FileMapped, PID: 100, Time: 5,
			Mapping: at, Path: "/a", BuildID: "abcdef"}},
		{"anonymous memory", timed(anonymous, "//anon", 5), Record{Kind: MemoryMapped, PID: 100,
			Time: 5, Mapping: at, Path: "//anon", file: mappedFile{generation: 7}}},
		{"fork", timed(untimed(recordFork, 0, 100, 7, 100, 7, 0, 0), "", 5),
			Record{Kind: ProcessForked, PID: 100, Parent: 7, Time: 5}},
		{"exec", timed(untimed(recordComm, commIsExec, 100, 100, 0, 0), "", 5),
			Record{Kind: ProcessExecuted, PID: 100, Time: 5}},
		{"exit", timed(untimed(recordExit, 0, 100, 7, 100, 7, 0, 0), "", 5),
			Record{Kind: ProcessEnded, PID: 100, Time: 5}},
	} {
		got, path, ok := parseRecord(test.record)
		got.Path = string(path)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf(test.name))
		qt.Check(t, qt.Equals(got, test.want), qt.Commentf(test.name))
	}
	got, _, ok := parseRecord(timed(tooLong, "/a", 5))
	qt.Check(t, qt.IsTrue(ok))
	qt.Check(t, qt.HasLen(got.BuildID, 40))
	for name, record := range map[string][]byte{
		"empty":             nil,
		"the heap":          timed(anonymous, "[heap]", 5),
		"no path":           untimed(recordMmap2, 0, words...),
		"relative path":     timed(untimed(recordMmap2, 0, words...), "[vdso]", 5),
		"thread begins":     timed(untimed(recordFork, 0, 100, 100, 101, 100, 0, 0), "", 5),
		"another name":      timed(untimed(recordComm, 0, 100, 100, 0, 0), "", 5),
		"another namespace": timed(untimed(recordFork, 0, 0, 7, 0, 7, 0, 0), "", 5),
	} {
		_, _, ok := parseRecord(record)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf(name))
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(timed(untimed(recordMmap2, mmapHasBuildID, make([]uint32, 16)...), "/a", 5))
	f.Add(timed(untimed(recordFork, 0, 1, 2, 1, 2), "", 5))
	f.Fuzz(func(t *testing.T, record []byte) {
		if r, path, ok := parseRecord(record); ok && r.Kind != RecordsLost {
			qt.Assert(t, qt.IsTrue(r.PID > 0))
			qt.Assert(t, qt.IsTrue(len(path) < len(record) && len(r.BuildID) <= 40))
		}
	})
}

// Another file can have a recorded path by now.
func TestRecordedFileIsTheOneThatWasMapped(t *testing.T) {
	f := newFixture(t)
	jail := t.TempDir()
	f.put(fakeProcess{pid: 7, size: 1})
	f.link(7, "root", jail)
	noProbes.write(t, jail, "a.so")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(filepath.Join(jail, "fifo"), 0o600)))
	qt.Assert(t, qt.IsNil(os.Symlink("/etc/passwd", filepath.Join(jail, "out"))))
	var st unix.Stat_t
	qt.Assert(t, qt.IsNil(unix.Stat(filepath.Join(jail, "a.so"), &st)))
	is := mappedFile{procfs.FileKey{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino}, 0}
	another := is
	another.Inode++
	for _, test := range []struct {
		name   string
		record Record
		found  bool
	}{
		{"the file", Record{Path: "/a.so", Time: math.MaxInt64, file: is}, true},
		{"by its build ID", Record{Path: "/a.so", BuildID: "ab"}, true}, // which is compared later
		{"another number", Record{Path: "/a.so", Time: math.MaxInt64, file: another}, false},
		{"written since", Record{Path: "/a.so", Time: time.Now().Add(-time.Hour).UnixNano(), file: is},
			false},
		{"a FIFO", Record{Path: "/fifo", BuildID: "ab"}, false},
		{"a directory", Record{Path: "/", BuildID: "ab"}, false},
		{"a link out", Record{Path: "/out", BuildID: "ab"}, false},
		{"no file", Record{Path: "/b.so", BuildID: "ab"}, false},
	} {
		found := RecordedFile{f.fs(), 7, &test.record}
		_, err := found.Version()
		qt.Check(t, qt.Equals(err == nil, test.found), qt.Commentf("%s: %v", test.name, err))
		file, err := found.Open()
		qt.Check(t, qt.Equals(err == nil, test.found), qt.Commentf("%s: %v", test.name, err))
		file.Close()
	}
}

// Where the kernel refuses, as in a container, that is an error.
func TestRecordsOfNoThreadAreAnError(t *testing.T) {
	_, err := OpenRecords(1<<30, true)
	qt.Assert(t, qt.IsNotNil(err))
}

// What ends the waiting may come at any time: by then the descriptor can be
// that of another file. The race detector looks.
func TestRecordsAreStoppedAndClosedAtOnce(t *testing.T) {
	testneeds.Root(t)
	r, err := OpenRecords(unix.Getpid(), true)
	qt.Assert(t, qt.IsNil(err))
	var stopping sync.WaitGroup
	stopping.Go(r.Stop)
	stopping.Go(r.Close)
	r.Close()
	stopping.Wait()
	r.Stop()
}
