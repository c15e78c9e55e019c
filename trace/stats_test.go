// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestStats(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:three",
			&trace.SessionOptions{Mode: mode, Events: &trace.EventOptions{RingSize: 1 << 20}})
		statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		qt.Assert(t, qt.IsNil(err))
		defer statistics.Close()
		process.Fire("three", 1000)
		stats, err := s.Stats()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(stats.Programs, 1))
		info := slices.Collect(maps.Keys(stats.Programs))[0]
		qt.Assert(t, qt.Equals(info.Name, "gousdt_te_three"))
		p := stats.Programs[info]
		qt.Assert(t, qt.Equals(p.RunCount, 1000))
		qt.Assert(t, qt.IsTrue(p.Runtime > 0))
		qt.Assert(t, qt.Equals(p.RecursionMisses, 0))
		size, err := info.TranslatedSize()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(size > 10*8 && size < 200*8), qt.Commentf("%d bytes", size))
		memory, _ := info.Memlock()
		qt.Assert(t, qt.IsTrue(memory > 0))
		qt.Assert(t, qt.IsTrue(stats.MapMemory > 1<<20 && stats.MapMemory < 2<<20),
			qt.Commentf("%d", stats.MapMemory))

		qt.Assert(t, qt.IsNil(s.Detach()))
		stats, err = s.Stats()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(stats.Programs, 0))
		qt.Assert(t, qt.IsNil(s.Close()))
		_, err = s.Stats()
		qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
		_, err = s.Losses()
		qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	})
}

func TestStatsWithoutStatistics(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:three", nil)
	needStatisticsOff(t)
	process.Fire("three", 10)
	stats, err := s.Stats()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(stats.Programs, 1))
	for _, p := range stats.Programs {
		qt.Assert(t, qt.Equals(p.RunCount, 0))
	}
}

// needStatisticsOff skips a test while another process has BPF statistics
// switched on: programs then have them without our asking.
func needStatisticsOff(t *testing.T) {
	t.Helper()
	testprog.RequireBPF(t)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	qt.Assert(t, qt.IsNil(err))
	defer prog.Close()
	_, err = prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	qt.Assert(t, qt.IsNil(err))
	stats, err := prog.Stats()
	qt.Assert(t, qt.IsNil(err))
	if stats.RunCount > 0 {
		testneeds.Missing(t, "needs BPF statistics off: another process has switched them on")
	}
}

// A container that passes its probes all the time fills the ring buffer but for
// the part of others, and the session says whose events are missing. The flood
// ends within some periods, also on emulated machines. In each period it may
// have some of the others' part.
func TestFloodLeavesRoomForTheEventsOfOthers(t *testing.T) {
	const flood, few = 2_000, 20
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
				dir, id := newControlGroup(t)
				noisy := start(t, "target-pie")
				modest := noisy.again(t)
				s := open(t, noisy, "gousdt_test:three",
					&trace.SessionOptions{Mode: mode,
						Events: &trace.EventOptions{RingSize: 64 << 10, ShareRing: shared}})
				join := func(dir string) {
					err := os.WriteFile(filepath.Join(dir, "cgroup.procs"),
						fmt.Append(nil, noisy.PID), 0)
					qt.Assert(t, qt.IsNil(err))
				}
				join(dir)
				noisy.Fire("three", flood)
				join(filepath.Dir(dir)) // so that the group can be removed
				modest.Fire("three", few)

				count := make(map[int]uint64)
				ctx, cancel := context.WithTimeout(context.Background(),
					testneeds.Patience(patience))
				defer cancel()
				var lost trace.LostError
				for event, err := range s.Events(ctx) {
					switch {
					case errors.As(err, &lost):
						continue
					case err != nil:
						t.Fatal(err)
					}
					if count[event.PID]++; event.PID == modest.PID && count[event.PID] == few {
						break
					}
					if !shared && count[noisy.PID] > 0 && len(count) == 1 {
						losses, err := s.Losses()
						qt.Assert(t, qt.IsNil(err))
						if losses.Events+count[noisy.PID] == flood+few {
							break // the others are lost
						}
					}
				}
				losses, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				stats, err := s.Stats()
				qt.Assert(t, qt.IsNil(err))
				if !shared {
					qt.Check(t, qt.Equals(count[modest.PID], 0))
					qt.Check(t, qt.HasLen(stats.LostBy, 0))
					return
				}
				qt.Check(t, qt.Equals(count[modest.PID], few))
				qt.Check(t, qt.Equals(count[noisy.PID]+losses.Events, flood))
				qt.Assert(t, qt.HasLen(stats.LostBy, 1))
				row := stats.LostBy[0]
				qt.Check(t, qt.Equals(fmt.Sprint(row.Keys, row.Count),
					fmt.Sprintf("[%d 0] %d", id, losses.Events)))
			})
		}
	})
}

func TestStatsWithoutEventsHaveNoLosses(t *testing.T) {
	testprog.RequireBPF(t)
	s := newSession(t, &trace.SessionOptions{})
	stats, err := s.Stats()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(stats.LostBy, 0))
}
