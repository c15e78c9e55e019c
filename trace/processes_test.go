// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
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
	counts := &trace.Aggregation{By: []string{"cgroup"},
		Where: fmt.Sprintf("cgroup == %d", id)}
	s := open(t, process, "gousdt_test:three",
		&trace.SessionOptions{Aggregations: []*trace.Aggregation{counts}, Containers: new(proc.Cgroups),
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
	containers, err := proc.WatchCgroups("")
	qt.Assert(t, qt.IsNil(err))
	defer containers.Close()
	costs := testprog.StartCosts(t)
	process := start(t, "target-pie")
	counts := &trace.Aggregation{By: []string{"container"}}
	inside := &trace.Aggregation{Where: `container == "` + id[:12] + `"`}
	open(t, process, "gousdt_test:three", &trace.SessionOptions{
		Aggregations: []*trace.Aggregation{counts, inside}, Containers: containers,
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
	containers, err := proc.WatchCgroups("")
	qt.Assert(t, qt.IsNil(err))
	defer containers.Close()
	process := start(t, "target-pie")
	counts := &trace.Aggregation{By: []string{"container"}}
	inside := &trace.Aggregation{Where: `container == "` + id[:6] + `"`}
	outside := &trace.Aggregation{Where: `container != "` + id + `"`}
	opts := &trace.SessionOptions{
		Aggregations: []*trace.Aggregation{counts, inside, outside},
		Containers:   containers,
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

	_, err = trace.New(&trace.SessionOptions{Aggregations: []*trace.Aggregation{
		&trace.Aggregation{By: []string{"container"}},
	}})
	qt.Check(t, qt.ErrorMatches(err, `.*By: the key "container" needs SessionOptions.Containers`))
	missing := &trace.SessionOptions{Filter: `container == "fedc"`, Containers: containers}
	_, err = trace.New(missing)
	qt.Check(t, qt.ErrorMatches(err, `option Filter: .*there is no container "fedc" now`))
	qt.Check(t, qt.IsNil(missing.Validate())) // there may be one when the session is made
}

const inNamespace = "GOUSDT_TEST_IN_PID_NAMESPACE"

// The test runs itself in a namespace, where its numbers are small.
func TestPIDNamespace(t *testing.T) {
	testprog.RequireBPF(t)
	if path := os.Getenv(inNamespace); path != "" {
		testInNamespace(t, path)
		return
	}
	unshare := []string{testneeds.Tool(t, "unshare", "util-linux"), "--pid", "--fork",
		"--kill-child", "--mount-proc"}
	if out, err := exec.Command(unshare[0], append(unshare[1:],
		"true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make PID namespaces: %v: %s", err, out)
	}
	outside := start(t, "target-pie")
	cmd := exec.Command(unshare[0], append(unshare[1:], os.Args[0], "-test.run=^"+t.Name()+"$",
		"-test.v")...)
	cmd.Env = append(os.Environ(), inNamespace+"="+outside.path)
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = os.Stderr
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer func() { qt.Check(t, qt.IsNil(cmd.Wait())) }()
	defer stdin.Close()
	var told strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&told, lines.Text())
		if lines.Text() == attached {
			outside.Fire("three", 1)
			fmt.Fprintln(stdin)
		}
	}
	qt.Check(t, qt.StringContains(told.String(), "--- PASS: "+t.Name()))
}

const attached = "attached"

func testInNamespace(t *testing.T, path string) {
	process := startFile(t, path)
	qt.Assert(t, qt.IsTrue(os.Getpid() < 100), qt.Commentf("PID %d", os.Getpid()))
	filtered := open(t, process, "three",
		&trace.SessionOptions{Filter: fmt.Sprintf("pid == %d && tid == %[1]d", process.PID)})
	all := open(t, process, "three", nil)
	byPID := &trace.Aggregation{By: []string{"pid"}}
	open(t, process, "three", aggregating(byPID))
	fmt.Println(attached)
	_, err := os.Stdin.Read(make([]byte, 1)) // the process outside has hit the probe
	qt.Assert(t, qt.IsNil(err))
	process.Fire("three", 1)

	for i, event := range next(t, all, 2) {
		want := []int{0, process.PID}[i]
		qt.Check(t, qt.Equals(event.PID, want))
		qt.Check(t, qt.Equals(event.TID, want))
	}
	qt.Check(t, qt.Equals(next(t, filtered, 1)[0].PID, process.PID))
	silent(t, filtered)
	pids := map[string]uint64{}
	for _, row := range snapshot(t, byPID).Rows {
		pids[row.Keys[0].String()] = row.Count
	}
	qt.Check(t, qt.DeepEquals(pids, map[string]uint64{"0": 1, decimal(process.PID): 1}))
}

const inTimeNamespace = "GOUSDT_TEST_IN_TIME_NAMESPACE"

// The test runs itself in a namespace whose clocks are far ahead.
func TestTimeNamespace(t *testing.T) {
	testprog.RequireBPF(t)
	if birth := os.Getenv(inTimeNamespace); birth != "" {
		testInTimeNamespace(t, birth)
		return
	}
	unshare := testneeds.Tool(t, "unshare", "util-linux")
	namespace := []string{"--time", "--monotonic", "90000000", "--boottime", "180000000", "--fork",
		"--kill-child"}
	if out, err := exec.Command(unshare,
		append(namespace, "true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make time namespaces: %v: %s", err, out)
	}
	cmd := exec.Command(unshare,
		append(namespace, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), inTimeNamespace+"="+decimal(trace.ThreadBirth()))
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(string(out), "--- PASS: "+t.Name()))
}

func testInTimeNamespace(t *testing.T, birth string) {
	var own unix.Timespec
	qt.Assert(t, qt.IsNil(unix.ClockGettime(unix.CLOCK_MONOTONIC, &own)))
	qt.Assert(t, qt.IsTrue(own.Sec > 90_000_000))
	qt.Check(t, qt.Equals(decimal(trace.ThreadBirth()), birth))
	process := start(t, "target-pie")
	session := open(t, process, "three", nil)
	const rounding = time.Second // between clocks that are read one after the other
	before := time.Now().Add(-rounding)
	process.Fire("three", 1)
	event := next(t, session, 1)[0]
	qt.Check(t, qt.IsTrue(event.Time.After(before)),
		qt.Commentf("%v, after %v", event.Time, before))
	qt.Check(t, qt.IsFalse(event.Time.After(time.Now().Add(rounding))),
		qt.Commentf("%v", event.Time))
}

// A child fires at once, and ends: it is hit from its fork on.
func TestFamilyFollowsForks(t *testing.T) {
	testneeds.BTF(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		p := start(t, "target-pie")
		other := p.again(t)
		counted := &trace.Aggregation{By: []string{"pid"}}
		s := open(t, p, "gousdt_test:three", &trace.SessionOptions{
			Mode: mode, Family: p.PID, Aggregations: []*trace.Aggregation{counted},
			Events: &trace.EventOptions{},
		})
		p.Fire("three", 1)
		child := p.Fork("three", 3)
		other.Fire("three", 5)
		other.Fork("three", 5)
		events, lost := rest(t, s)
		qt.Check(t, qt.Equals(lost, 0))
		hits := make(map[int]int)
		for _, e := range events {
			hits[e.PID]++
		}
		qt.Check(t, qt.DeepEquals(hits, map[int]int{p.PID: 1, child: 3}))
		qt.Check(t, qt.HasLen(snapshot(t, counted).Rows, 2))
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses.Processes, 0))
	})
}

// The number may become that of any process.
func TestFamilyOfNoProcess(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.BTF(t)
	testprog.LeakCheck(t)
	// Linux has no greater number than 1<<22.
	_, err := trace.New(&trace.SessionOptions{Family: 1<<22 + 1})
	qt.Assert(t, qt.ErrorMatches(err, ".*Family: there is no process 4194305"))
}

func TestFamilyHasDescendantsThatAreThere(t *testing.T) {
	testneeds.BTF(t)
	p := start(t, "target-pie")
	s := newSession(t, &trace.SessionOptions{Family: 1}) // of which all are descendants
	attach(t, s, usdt.Target{Path: p.path}, "gousdt_test:three", nil)
	p.Fire("three", 2)
	events, _ := rest(t, s)
	qt.Check(t, qt.HasLen(events, 2))
}
