// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// If any system call fails while a session is opened, read and closed, there is
// an error or the numbers are right, and nothing stays attached.
func TestFaultsOfASession(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := start(t, "target-pie")
	faults := testprog.NewFaults(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		faults.Each(t, func(t *testing.T) (err error) {
			counted := &trace.Aggregation{Value: "arg0", Sum: true}
			s, err := trace.Open(usdt.Target{Path: process.path, PID: process.PID},
				&trace.SessionOptions{Mode: mode, Family: process.PID,
					Aggregations: []*trace.Aggregation{counted},
					Events:       &trace.EventOptions{}}, elfnote.Exact("gousdt_test",
					"three"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			process.Fire("three", 3)
			ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(patience))
			defer cancel()
			events := 0
			for _, err := range s.Events(ctx) {
				if err != nil {
					return err
				}
				if events++; events == 3 {
					break
				}
			}
			qt.Check(t, qt.Equals(events, 3))
			snapshot, err := s.Snapshot(counted)
			if err != nil {
				return err
			}
			if len(snapshot.Rows) != 1 || snapshot.Rows[0].Count != 3 {
				t.Errorf("rows: %v", fmt.Sprint(snapshot.Rows))
			}
			return nil
		}, func(t *testing.T, _ error) { process.Fire("three", 1) })
	})
}

// A file that a watch cannot attach because of a passing fault is attached at
// the next scan.
func TestFaultsOfAWatch(t *testing.T) {
	if !testprog.WithFaults(t) {
		return
	}
	process := start(t, "target-pie")
	faults := testprog.NewFaults(t)
	faults.FirstErrors = true
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		s, err := trace.New(&trace.SessionOptions{Mode: mode})
		qt.Assert(t, qt.IsNil(err))
		defer s.Close()
		faults.Each(t, func(t *testing.T) (err error) {
			w, err := s.Watch(&watch.Options{
				Filter: func(p proc.Process) bool {
					return p.PID == process.PID
				},
			}, func(c *watch.Changes[*trace.Attachment]) {
				err = errors.Join(err,
					errors.Join(c.Errors...))
			}, elfnote.Exact("gousdt_test", "three"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
			err = errors.Join(err, w.Sync(t.Context(), 0))
			if len(s.Attachments()) == 0 {
				qt.Check(t, qt.IsNotNil(err), qt.Commentf("nothing attached, and no error"))
				qt.Check(t, qt.IsNil(w.Sync(t.Context(), 0)))
			}
			// Only what a busy machine has set aside takes more than two scans.
			if len(s.Attachments()) == 0 && errors.Is(err, proc.ErrBlocked) {
				testneeds.Await(t, 20*time.Second, "it is attached", func() bool {
					qt.Check(t, qt.IsNil(w.Sync(t.Context(), 0)))
					return len(s.Attachments()) > 0
				})
			}
			qt.Assert(t, qt.HasLen(s.Attachments(), 1), qt.Commentf("%v", err))
			process.Fire("three", 2)
			next(t, s, 2)
			return err
		}, func(t *testing.T, _ error) { process.Fire("three", 1) })
	})
}

// The kernel reports each program that is loaded and unloaded. It must report
// both of each program of a session, however the session ends.
func TestCloseLeavesNothingBehind(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Root(t)
	testprog.LeakCheck(t)
	process := start(t, "target-pie")
	kernel := watchPrograms(t)

	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		opts := &trace.SessionOptions{Mode: mode, Aggregations: []*trace.Aggregation{
			&trace.Aggregation{Value: "arg0", Min: true},
			&trace.Aggregation{By: []string{"stack"}},
			&trace.Aggregation{Latency: &trace.Latency{
				Pair: "three..twelve",
			}},
		},
			Events: &trace.EventOptions{StackDepth: 10}}
		target := usdt.Target{Path: process.path, PID: process.PID}
		ours := make(map[string]bool) // tags of the programs: equal for equal code

		for name, end := range map[string]func(*trace.Session){
			"closed":            func(s *trace.Session) { s.Close() },
			"detached":          func(s *trace.Session) { s.Detach(); s.Close() },
			"attachment closed": func(s *trace.Session) { s.Attachments()[0].Close(); s.Close() },
			"closed in the loop": func(s *trace.Session) {
				process.Fire("three", 10)
				for range s.Events(context.Background()) {
					s.Close()
				}
			},
		} {
			s, err := trace.Open(target, opts, elfnote.MustParsePattern("gousdt_test:t[hw]*"))
			qt.Assert(t, qt.IsNil(err))
			stats, err := s.Stats()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsTrue(len(stats.Programs) > 0))
			for p := range stats.Programs {
				id, _ := p.ID()
				ours[tagOf(t, id)] = true
			}
			end(s)
			loaded := kernel.expectUnloaded(t, ours)
			qt.Assert(t, qt.IsTrue(loaded >= len(stats.Programs)),
				qt.Commentf("%s: %d programs loaded", name, loaded))
		}

		// The process ends before its probes are attached: the programs have
		// been loaded then.
		gone := process.again(t)
		sel, err := usdt.Select(usdt.Target{Path: process.path, PID: gone.PID},
			elfnote.Exact("gousdt_test", "three"), elfnote.Exact("gousdt_test", "twelve"))
		qt.Assert(t, qt.IsNil(err))
		gone.Kill()
		s, err := trace.New(opts)
		qt.Assert(t, qt.IsNil(err))
		_, err = s.Attach(usdt.Target{Selection: sel}, nil)
		qt.Assert(t, qt.IsNotNil(err))
		qt.Assert(t, qt.IsNil(sel.Close()))
		qt.Assert(t, qt.IsNil(s.Close()))
		loaded := kernel.expectUnloaded(t, ours)
		if mode != usdt.ModeSingleIPMap {
			qt.Assert(t, qt.IsTrue(loaded > 0))
		}
	})
}

func tagOf(t *testing.T, id ebpf.ProgramID) string {
	t.Helper()
	prog, err := ebpf.NewProgramFromID(id)
	qt.Assert(t, qt.IsNil(err))
	defer prog.Close()
	info, err := prog.Info()
	qt.Assert(t, qt.IsNil(err))
	return info.Tag
}

// programWatch reads the records that the kernel writes for each program on
// each processor.
type programWatch struct {
	rings  [][]byte
	polled []unix.PollFd

	// The records of one processor are in order, those of several are not: a
	// program may be seen to be unloaded before it is seen to be loaded.
	loaded   map[uint32]string // with their tags
	unloaded map[uint32]bool
}

const ringPages = 64

// attrBPFEvent returns bpf_event of struct perf_event_attr: bit number 30,
// counted from the end where C begins to fill a word.
func attrBPFEvent() uint64 {
	const number = 30
	if unix.PerfBitDisabled == 1 {
		return 1 << number
	}
	return 1 << (63 - number)
}

func watchPrograms(t *testing.T) *programWatch {
	t.Helper()
	w := &programWatch{loaded: make(map[uint32]string), unloaded: make(map[uint32]bool)}
	attr := &unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: attrBPFEvent() | unix.PerfBitWatermark, Wakeup: 1,
	}
	for cpu := range ebpf.MustPossibleCPU() {
		fd, err := unix.PerfEventOpen(attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == unix.ENODEV || err == unix.ENXIO {
			continue // a processor that is not there
		}
		qt.Assert(t, qt.IsNil(err))
		ring, err := unix.Mmap(fd, 0, (1+ringPages)*unix.Getpagesize(),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() {
			unix.Munmap(ring)
			unix.Close(fd)
		})
		w.rings = append(w.rings, ring)
		w.polled = append(w.polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return w
}

// expectUnloaded waits until every program with one of the tags has been
// unloaded, and returns how many such programs were loaded since the last call.
func (w *programWatch) expectUnloaded(t *testing.T, tags map[string]bool) (loads int) {
	t.Helper()
	deadline := time.Now().Add(testneeds.Patience(patience))
	for {
		loads += w.read(tags)
		left := 0
		for id, tag := range w.loaded {
			if tags[tag] && !w.unloaded[id] {
				left++
			}
		}
		if left == 0 && loads > 0 {
			return loads
		}
		if time.Now().After(deadline) {
			if left > 0 {
				t.Fatalf("%d programs have been loaded and not unloaded", left)
			}
			return loads
		}
		if left == 0 {
			// Nothing of ours was loaded, which some callers do not expect. All
			// reports have come by now.
			return loads
		}
		_, err := unix.Poll(w.polled, 100)
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

func (w *programWatch) read(tags map[string]bool) (loads int) {
	order := binary.NativeEndian
	for _, ring := range w.rings {
		page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&ring[0]))
		data := ring[unix.Getpagesize():]
		head, tail := atomic.LoadUint64(&page.Data_head), page.Data_tail
		at := func(offset uint64, size int) []byte {
			var b []byte
			for i := range uint64(size) {
				b = append(b, data[(tail+offset+i)%uint64(len(data))])
			}
			return b
		}
		for tail < head {
			kind, size := order.Uint32(at(0, 4)), order.Uint16(at(6, 2))
			if kind == unix.PERF_RECORD_BPF_EVENT {
				id, tag := order.Uint32(at(12, 4)), hex.EncodeToString(at(16, 8))
				switch order.Uint16(at(8, 2)) {
				case 1:
					w.loaded[id] = tag
					if tags[tag] {
						loads++
					}
				case 2:
					w.unloaded[id] = true
				}
			}
			tail += uint64(size)
		}
		atomic.StoreUint64(&page.Data_tail, tail)
	}
	runtime.KeepAlive(w)
	return loads
}
