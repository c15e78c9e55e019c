// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

func newControlGroup(t *testing.T) (dir string, id uint64) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if fields[2] != "cgroup2" {
			continue
		}
		if dir, err = os.MkdirTemp(fields[1], "gousdt-test"); err != nil {
			continue
		}
		t.Cleanup(func() { qt.Check(t, qt.IsNil(os.Remove(dir))) })
		info, err := os.Stat(dir)
		qt.Assert(t, qt.IsNil(err))
		return dir, info.Sys().(*syscall.Stat_t).Ino
	}
	testneeds.Missing(t, "no hierarchy of control groups of version 2 that can be written to")
	return "", 0
}

func TestControlGroupsAreToldApart(t *testing.T) {
	testprog.RequireBPF(t)
	dir, id := newControlGroup(t)
	process := start(t, "target-pie")
	other := process.again(t)
	counts := trace.NewAggregator(trace.Aggregation{By: []string{"cgroup"},
		Where: fmt.Sprintf("cgroup == %d", id)})
	s := open(t, process, "gousdt_test:three",
		&trace.SessionOptions{Aggregators: []*trace.Aggregator{counts}, Containers: new(container.Cgroups),
			Events: &trace.EventOptions{}})
	join := func(dir string) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, process.PID), 0)
		qt.Assert(t, qt.IsNil(err))
	}
	join(dir)
	process.Fire("three", 3)
	join(filepath.Dir(dir)) // so that the group can be removed
	other.Fire("three", 2)
	process.Fire("three", 1)
	got := make(map[bool]int)
	for _, e := range next(t, s, 6) {
		qt.Check(t, qt.Equals(e.CgroupID == id, e.PID == process.PID && got[true] < 3))
		got[e.CgroupID == id]++
	}
	qt.Check(t, qt.DeepEquals(got, map[bool]int{true: 3, false: 3}))
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, counts)), []string{fmt.Sprintf("[%d] 3 ?", id)}))
}

// A user names a control group like the container of another user.
func TestHostileContainerNames(t *testing.T) {
	testprog.RequireBPF(t)
	dir, _ := newControlGroup(t)
	id := strings.Repeat("0123456789abcdef", 4)
	user := filepath.Join(dir, "user@1000.service")
	forged := filepath.Join(user, "lxc.payload."+id[:12])
	victim := filepath.Join(dir, "docker-"+id+".scope")
	for _, made := range []string{user, forged, victim} {
		qt.Assert(t, qt.IsNil(os.Mkdir(made, 0o755)))
		t.Cleanup(func() { os.Remove(made) })
	}
	containers, err := container.Watch("")
	qt.Assert(t, qt.IsNil(err))
	defer containers.Close()
	costs := testprog.StartCosts(t)
	process := start(t, "target-pie")
	counts := trace.NewAggregator(trace.Aggregation{By: []string{"container"}})
	inside := trace.NewAggregator(trace.Aggregation{Where: `container == "` + id[:12] + `"`})
	open(t, process, "gousdt_test:three", &trace.SessionOptions{
		Aggregators: []*trace.Aggregator{counts, inside}, Containers: containers,
	})
	for i, group := range []string{victim, forged, filepath.Dir(dir)} {
		err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, process.PID), 0)
		qt.Assert(t, qt.IsNil(err))
		process.Fire("three", 1<<i)
	}
	byName := rows(snapshot(t, counts))
	qt.Check(t, qt.SliceContains(byName, "["+id[:12]+"] 1 ?"))
	qt.Check(t, qt.SliceContains(byName, "[user@1000.service] 2 ?"))
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, inside)), []string{"[] 1 ?"}))
	costs.Report(7, "a control group of a user is named like a container",
		"0 of 94 hits of the container, and its row has those of both", "1 of 1, a row for each", 0)
}

func TestContainersHaveNames(t *testing.T) {
	testprog.RequireBPF(t)
	dir, _ := newControlGroup(t)
	id := strings.Repeat("0123456789abcdef", 4)
	outer := filepath.Join(dir, "docker-"+id+".scope")
	inner := filepath.Join(outer, "init.scope")
	for _, made := range []string{outer, inner} {
		qt.Assert(t, qt.IsNil(os.Mkdir(made, 0o755)))
		t.Cleanup(func() { os.Remove(made) })
	}
	containers, err := container.Watch("")
	qt.Assert(t, qt.IsNil(err))
	defer containers.Close()
	process := start(t, "target-pie")
	counts := trace.NewAggregator(trace.Aggregation{By: []string{"container"}})
	inside := trace.NewAggregator(trace.Aggregation{Where: `container == "` + id[:6] + `"`})
	outside := trace.NewAggregator(trace.Aggregation{Where: `container != "` + id + `"`})
	opts := &trace.SessionOptions{
		Aggregators: []*trace.Aggregator{counts, inside, outside},
		Containers:  containers,
	}
	open(t, process, "gousdt_test:three", opts)
	for i, group := range []string{outer, inner, filepath.Dir(dir)} {
		err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, process.PID), 0)
		qt.Assert(t, qt.IsNil(err))
		process.Fire("three", 1<<i)
	}
	// Both groups of the container are one row.
	qt.Check(t, qt.SliceContains(rows(snapshot(t, counts)), "["+id[:12]+"] 3 ?"))
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, inside)), []string{"[] 3 ?"}))
	qt.Check(t, qt.DeepEquals(rows(snapshot(t, outside)), []string{"[] 4 ?"}))

	_, err = trace.New(&trace.SessionOptions{Aggregators: []*trace.Aggregator{
		trace.NewAggregator(trace.Aggregation{By: []string{"container"}}),
	}})
	qt.Check(t, qt.ErrorMatches(err, `.*By: the key "container" needs SessionOptions.Containers`))
	missing := &trace.SessionOptions{Filter: `container == "fedc"`, Containers: containers}
	_, err = trace.New(missing)
	qt.Check(t, qt.ErrorMatches(err, `option Filter: .*there is no container "fedc" now`))
	qt.Check(t, qt.IsNil(missing.Validate())) // there may be one when the session is made
}
