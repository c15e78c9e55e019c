// SPDX-License-Identifier: BSD-2-Clause

package attaching_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestAttach(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	t.Run("defines any number of places", func(t *testing.T) {
		event := attach(t, 3000)
		events := testprog.SharedEvents(t)
		qt.Check(t, qt.HasLen(events, 1))
		for _, places := range events {
			qt.Check(t, qt.HasLen(places, 3000))
		}
		qt.Assert(t, qt.IsNil(event.Close()))
		qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
	})

	t.Run("refuses a cookie that it cannot give", func(t *testing.T) {
		_, err := attaching.AttachEvent("/file", nil, nil, attaching.EventOptions{Cookie: 1})
		qt.Check(t, qt.ErrorMatches(err, `.*no cookie`))
	})
}

// Otherwise the kernel would use memory that it has freed.
func TestCloseWaitsForThoseWhoHaveInheritedTheEvent(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	event := attach(t, 2)
	inherited := perfEvents(t)
	qt.Assert(t, qt.HasLen(inherited, 1))
	dup, err := unix.Dup(inherited[0])
	qt.Assert(t, qt.IsNil(err))
	var closed atomic.Bool
	time.AfterFunc(50*time.Millisecond, func() {
		closed.Store(true)
		unix.Close(dup)
	})
	qt.Assert(t, qt.IsNil(event.Close()))
	qt.Check(t, qt.IsTrue(closed.Load()))
	qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
}

// attach attaches a program to places of a file that no process runs.
func attach(t *testing.T, places int) *attaching.Event {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, make([]byte, 16*(places+1)), 0o600)))
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.Kprobe,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { prog.Close() })
	wanted := make([]attaching.Place, places)
	for i := range wanted {
		wanted[i].Offset = uint64(16 * (i + 1))
	}
	event, err := attaching.AttachEvent(path, wanted, prog, attaching.EventOptions{})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { event.Close() })
	return event
}

// perfEvents returns the descriptors of this process that are perf events.
func perfEvents(t *testing.T) (found []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	qt.Assert(t, qt.IsNil(err))
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || target != "anon_inode:[perf_event]" {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		qt.Assert(t, qt.IsNil(err))
		found = append(found, fd)
	}
	return found
}
