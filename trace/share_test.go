// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

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
				qt.Check(t,
					qt.DeepEquals(stats.LostBy, []trace.OwnerLoss{{CgroupID: id, Events: losses.Events}}))
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
