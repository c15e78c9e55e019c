// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

// A container passes its probes in processes and threads that are new again and
// again, each of which is a key, and more often than others do. Others have
// their rows all the same, and no hit is missing.
func TestHostileContainerThatMakesUpKeys(t *testing.T) {
	dir, _ := newControlGroup(t)
	noisy := start(t, "target-pie")
	modest := noisy.again(t)
	keys := trace.NewAggregator(trace.Aggregation{By: []string{"tid", "arg0"}, MaxKeys: 4096})
	open(t, noisy, "gousdt_test:*", aggregating(keys))
	group := filepath.Join(dir, "cgroup.procs")
	qt.Assert(t, qt.IsNil(os.WriteFile(group, fmt.Append(nil, noisy.PID), 0)))
	// The group can be removed when the process has left it.
	defer func() {
		group := filepath.Join(filepath.Dir(dir), "cgroup.procs")
		qt.Check(t, qt.IsNil(os.WriteFile(group, fmt.Append(nil, noisy.PID), 0)))
	}()

	costs := testprog.StartCosts(t)
	const few, specs, times, threads, rounds = 20, 300, 5, 32, 10
	began := time.Now()
	var late time.Duration
	for i := range few {
		done := make(chan error, 1)
		go func() {
			_, err := noisy.Command("thread specs " + decimal(threads))
			for range rounds {
				if err == nil {
					_, err = noisy.Command(fmt.Sprint("fork specs ", times))
				}
			}
			done <- err
		}()
		_, err := modest.Command("thread three 1")
		qt.Assert(t, qt.IsNil(err))
		if i == 0 {
			late = time.Since(began)
		}
		qt.Assert(t, qt.IsNil(<-done))
	}
	s := snapshot(t, keys)
	inRows, others := counted(s)
	qt.Check(t, qt.Equals(inRows+others, few*(1+specs*(threads+rounds*times))))
	qt.Check(t, qt.IsTrue(len(s.Rows) <= 4096))
	// The probe named three has an argument that no specs has.
	named := 0
	for i := range s.Rows {
		if s.Rows[i].Count == 1 && s.Rows[i].Keys[1].Uint() >= specs {
			named++
		}
	}
	qt.Check(t, qt.Equals(named, few))
	costs.Report(4, "a container makes up keys of an aggregation, of which there may be 4096",
		"0 of 20 rows of others",
		fmt.Sprintf("%d of %d; %d of its own hits in (other)", named, few, others), late)
}
