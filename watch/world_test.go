// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/proc"
)

// world is a directory tree that looks like /proc, of processes that map files
// with probes, and a driver that only records what it should attach.
type world struct {
	t      *testing.T
	root   string      // of the file system of processes
	files  string      // the directory of the files
	ended  map[int]int // processes, by PID
	starts int         // calls of startAt

	mu          sync.Mutex
	names       map[procfs.FileID]string
	attached    map[*fake]bool
	room        int  // how much can be attached at a time
	share       bool // the room is shared out
	sites       map[string]int
	semaphores  int // of each part
	detaching   func()
	descriptors map[string]int    // of files, 1 of others
	opened      int               // files
	isWritten   map[string]func() // the written of Open, by file
	whileOpened func(written func())
	noLease     bool
	hasWriter   bool
	perFile     func(file string) bool
	fail        func(part int, file string) error

	records [][]byte      // of the kernel, as a watcher gets them
	woken   chan struct{} // has a value if there are some

	// "+0 a 7" and "-0 a" for part 0 of file a in process 7 and in every
	// process, "!" and errors.
	told []string
}

// fake is an attachment.
type fake struct {
	part int
	file string
	pid  int

	descriptors int
	*opening
}

// opening is an open file.
type opening struct {
	written bool // nothing is attached by it any more
}

func (a *fake) String() string {
	if a.pid == 0 {
		return fmt.Sprintf("%d %s", a.part, a.file)
	}
	return fmt.Sprintf("%d %s %d", a.part, a.file, a.pid)
}

var (
	errFull     = errors.New("no room")
	errStarting = errors.New("it has not started")
)

// whileNothingGoesOn runs a test in a bubble of synctest, in which time passes
// when nothing can go on. Waiting for a processor takes no time there.
func whileNothingGoesOn(t *testing.T, test func(t *testing.T)) {
	testneeds.Patience(0) // is made for a clock that goes on
	synctest.Test(t, test)
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, root: inMemory(t), files: inMemory(t), names: make(map[procfs.FileID]string),
		ended: make(map[int]int), attached: make(map[*fake]bool), room: 1000,
		isWritten: make(map[string]func()), woken: make(chan struct{}, 1),
		perFile: func(string) bool { return true }, fail: func(int, string) error { return nil },
	}
	w.write("self/status", fmt.Sprintf("NSpid:\t%d\n", os.Getpid()))
	return w
}

// inMemory returns a directory that waits for no disk, if there is one.
func inMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "gousdt-world")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { qt.Check(t, qt.IsNil(os.RemoveAll(dir))) })
	return dir
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	qt.Assert(w.t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(w.t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
}

// Records that the kernel makes of what a process does, see perf_event.h.
const (
	recordLost   = 2
	recordExec   = 3 | 1<<13<<32 // the misc of the header
	recordExit   = 4
	recordFork   = 7
	recordMapped = 10
)

// happens has the watcher get a record about a process.
func (w *world) happens(kind uint64, body ...uint32) {
	size := 8 + (4*len(body)+7)&^7 + 8 // with a header and the time
	record := binary.NativeEndian.AppendUint32(nil, uint32(kind))
	record = binary.NativeEndian.AppendUint16(record, uint16(kind>>32))
	record = binary.NativeEndian.AppendUint16(record, uint16(size))
	for _, word := range body {
		record = binary.NativeEndian.AppendUint32(record, word)
	}
	record = append(record, make([]byte, size-8-len(record))...)
	record = binary.NativeEndian.AppendUint64(record, uint64(time.Now().UnixNano()))
	w.mu.Lock()
	w.records = append(w.records, record)
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// mapping is the record of a process that maps a file.
func (w *world) mapping(pid uint32, file string) []uint32 {
	var stat unix.Stat_t
	path := filepath.Join(w.files, file)
	qt.Assert(w.t, qt.IsNil(unix.Stat(path, &stat)))
	body := make([]uint32, 16+len(path)/4+1)
	body[0], body[1] = pid, pid
	body[8], body[9] = unix.Major(stat.Dev), unix.Minor(stat.Dev)
	words := unsafe.Slice((*byte)(unsafe.Pointer(&body[0])), 4*len(body))
	binary.NativeEndian.PutUint64(words[16:], 0x1000) // long
	binary.NativeEndian.PutUint64(words[40:], stat.Ino)
	copy(words[64:], path)
	return body
}

// Wait and the methods after it are those of the source of records. The
// kernel's holds a thread, and in a bubble no time would pass meanwhile.
type source struct {
	*world
	stopped chan struct{}
}

func (w *world) record() (procwatch.Recorder, error) {
	return source{w, make(chan struct{})}, nil
}

func (s source) Wait() bool {
	select {
	case <-s.woken:
		return true
	case <-s.stopped:
		return false
	}
}

func (s source) Stop() { close(s.stopped) }

func (s source) Each(each func([]byte)) {
	s.mu.Lock()
	records := s.records
	s.records = nil
	s.mu.Unlock()
	for _, record := range records {
		each(record)
	}
}

func (s source) Close() {}

// start has a process map files, given by their names, and no others.
func (w *world) start(pid int, files ...string) { w.startAt(pid, 0x1000, files...) }

// startAt is start with the address of the first mapping.
func (w *world) startAt(pid, address int, files ...string) {
	w.t.Helper()
	dir := "next"
	w.starts++
	var maps strings.Builder
	for _, name := range files {
		path := filepath.Join(w.files, name)
		if _, err := os.Stat(path); err != nil {
			testprog.WriteNotes(w.t, path, []testprog.Note{{Provider: "p", Name: name}})
			id := fileID(w.t, path)
			w.mu.Lock()
			w.names[id] = name
			w.mu.Unlock()
		}
		var stat unix.Stat_t // its number tells it from another file at the same address
		qt.Assert(w.t, qt.IsNil(unix.Stat(path, &stat)))
		fmt.Fprintf(&maps, "%08x-%08x r-xp 00000000 %02x:%02x %d %s\n", address, address+0x1000,
			unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino, path)
		link := filepath.Join(w.root, dir, "map_files",
			fmt.Sprintf("%x-%x", address, address+0x1000))
		qt.Assert(w.t, qt.IsNil(os.MkdirAll(filepath.Dir(link), 0o755)))
		qt.Assert(w.t, qt.IsNil(os.Symlink(path, link)))
		address += 0x1000
	}
	w.write(dir+"/maps", maps.String())
	qt.Assert(w.t, qt.IsNil(os.Symlink("/", filepath.Join(w.root, dir, "root"))))
	w.write(dir+"/stat",
		fmt.Sprintf("%d (program) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d %d 1 0 1 0 1 0 0\n",
			pid, pid+1000*w.ended[pid], 1+len(files)+16*w.starts))
	// A process that goes on is there all the time.
	to := filepath.Join(w.root, strconv.Itoa(pid))
	err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(w.root, dir), unix.AT_FDCWD, to,
		unix.RENAME_EXCHANGE)
	if errors.Is(err, os.ErrNotExist) {
		err = os.Rename(filepath.Join(w.root, dir), to)
	} else if err == nil {
		err = os.Rename(filepath.Join(w.root, dir), filepath.Join(w.root, fmt.Sprint("old", w.starts)))
	}
	qt.Assert(w.t, qt.IsNil(err))
}

func (w *world) end(pid int) {
	w.t.Helper()
	qt.Assert(w.t, qt.IsNil(os.RemoveAll(filepath.Join(w.root, strconv.Itoa(pid)))))
	w.ended[pid]++
}

func fileID(t *testing.T, path string) procfs.FileID {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	id, err := procfs.IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	return id.FileID
}

// fakeFile is a file that is open.
type fakeFile struct {
	*world
	name string
	*opening
}

// Open and the methods after it are those of the driver.
func (w *world) Open(pair *procwatch.ProcessFile, written func()) (openFile, error) {
	// Not by its path, which was read before the file if the process has mapped
	// another one in its place meanwhile.
	name := w.name(pair.File)
	held, release := pair.Kept(nil).Hold() // the pair may disappear meanwhile
	defer release()
	if held == nil {
		return nil, procfs.ErrChanged // it did before
	}
	if err := w.fail(wholeFile, name); err != nil {
		return nil, err
	}
	if err := pair.File.Verify(); err != nil {
		return nil, err
	}
	file := fakeFile{w, name, new(opening)}
	isWritten := func() {
		w.mu.Lock()
		file.written = true
		w.mu.Unlock()
		written()
	}
	if w.whileOpened != nil {
		w.whileOpened(isWritten)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	w.isWritten[name] = isWritten
	return file, nil
}

func (w fakeFile) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened--
	return nil
}

func (w *world) PerProcess(file *procwatch.CachedFile) bool {
	return w.perFile(w.name(file))
}

func (w *world) name(file *procwatch.CachedFile) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[file.ID()]
}

func (w fakeFile) Attach(
	part int, pair *procwatch.ProcessFile, pid int,
) (attached, bool, error) {
	if err := w.fail(part, w.name); err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.attached) == w.room {
		return nil, false, errFull
	}
	a := &fake{part, w.name, pid, max(1, w.descriptors[w.name]), w.opening}
	w.attached[a] = true
	return a, true, nil
}

func (w fakeFile) HoldsWriters() error {
	switch {
	case w.hasWriter:
		return syscall.EAGAIN
	case w.noLease:
		return errors.ErrUnsupported
	}
	return nil
}

func (w fakeFile) Semaphores(int) int { return w.semaphores }

func (w fakeFile) Sites(int) int { return max(1, w.sites[w.name]) }

func (a *fake) Descriptors() int { return a.descriptors }

func (w *world) Detach(attachments []attached) error {
	if w.detaching != nil {
		w.detaching()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range attachments {
		a := a.(*fake)
		if !w.attached[a] {
			w.t.Errorf("%v is detached and was not attached", a)
		}
		delete(w.attached, a)
	}
	return nil
}

func (w *world) Retry(err error) retryTime {
	if errors.Is(err, errFull) {
		if w.share {
			return withShare
		}
		return withRoom
	}
	if errors.Is(err, errStarting) {
		return whenReady
	}
	return classify(err)
}

func (w *world) Explain(part int, pair *procwatch.ProcessFile, err error) error {
	return fmt.Errorf("%d %s %d: %w", part, filepath.Base(pair.Path), pair.Process.PID, err)
}

func (w *world) Changed(changes *round) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range changes.attached {
		w.told = append(w.told, "+"+a.(*fake).String())
	}
	for _, a := range changes.detached {
		a := a.(*fake)
		if !w.attached[a] {
			w.t.Errorf("%v was detached before it was told", a)
		}
		w.told = append(w.told, "-"+a.String())
	}
	for _, pair := range changes.missed {
		w.told = append(w.told,
			fmt.Sprintf("missed %s %d", filepath.Base(pair.Path), pair.Process.PID))
	}
	for _, err := range changes.errors {
		w.told = append(w.told, "!"+err.Error())
	}
}

// tells asserts what has been told since it was called last, in any order: the
// order of processes is that of the directory.
func (w *world) tells(want ...string) {
	w.t.Helper()
	qt.Assert(w.t, qt.ContentEquals(w.takeTold(), want))
}

// tellsInOrder is tells where the order matters.
func (w *world) tellsInOrder(want ...string) {
	w.t.Helper()
	qt.Assert(w.t, qt.DeepEquals(w.takeTold(), want))
}

func (w *world) takeTold() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

// follower returns a watch of all processes of the world.
func (w *world) follower(opts Options) *Watch { return w.followerOf(1, opts) }

// followerOf is follower with a number of parts.
func (w *world) followerOf(parts int, opts Options) *Watch {
	w.t.Helper()
	opts.Proc = proc.FS(w.root)
	f, err := newWatch(w, opts, parts)
	qt.Assert(w.t, qt.IsNil(err))
	f.watcher.Record = w.record
	f.patience = time.Minute // no call takes longer because the machine is busy
	w.t.Cleanup(func() {
		qt.Check(w.t, qt.IsNil(f.Close()))
		qt.Check(w.t, qt.HasLen(f.attachments(), 0))
		qt.Check(w.t, qt.HasLen(w.attached, 0))
		// A file that a late call used is closed beside the rest.
		testneeds.Await(w.t, 10*time.Second, "all files are closed", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.opened == 0
		})
	})
	return f
}

// attachments returns what is attached, in no order.
func (f *Watch) attachments() []*fake {
	f.following.Lock()
	defer f.following.Unlock()
	var all []*fake
	for _, a := range f.attached {
		all = append(all, a.attached.(*fake))
	}
	return all
}

// everywhere has the driver attach files in every process.
func (w *world) everywhere() *world {
	w.perFile = func(string) bool { return false }
	return w
}
