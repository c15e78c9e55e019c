// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/usdt/proc"
)

// tree is a directory that looks like /proc.
type tree struct {
	t     *testing.T
	root  string
	added int // another stack for each program
}

func newTree(t *testing.T) *tree {
	root := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Symlink(strconv.Itoa(os.Getpid()), filepath.Join(root, "self"))))
	return &tree{t: t, root: root}
}

// add adds a process, or makes another one of it.
func (p *tree) add(pid, parent int, start, executable, cgroup, environment string) proc.Process {
	p.t.Helper()
	dir := filepath.Join(p.root, strconv.Itoa(pid))
	qt.Assert(p.t, qt.IsNil(os.RemoveAll(dir)))
	qt.Assert(p.t, qt.IsNil(os.Mkdir(dir, 0o755)))
	write := func(name, text string) {
		qt.Assert(p.t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)))
	}
	stat := strconv.Itoa(pid) + " (" + filepath.Base(executable) + ") S " + strconv.Itoa(parent)
	for range 17 {
		stat += " 0"
	}
	stat += " " + start
	p.added++
	for range 30 {
		stat += " " + strconv.Itoa(p.added)
	}
	write("stat", stat+"\n")
	write("cgroup", "0::"+cgroup+"\n")
	write("environ", environment)
	qt.Assert(p.t, qt.IsNil(os.Symlink("/", filepath.Join(dir, "root"))))
	qt.Assert(p.t, qt.IsNil(os.Symlink(executable, filepath.Join(dir, "exe"))))
	process, err := proc.Find(proc.FS(p.root), pid)
	qt.Assert(p.t, qt.IsNil(err))
	return process
}

func (ps *processes) change(appeared, disappeared []proc.Process) {
	var lists [2][]*proc.ProcessFile
	for i, processes := range [][]proc.Process{appeared, disappeared} {
		for _, p := range processes {
			lists[i] = append(lists[i], &proc.ProcessFile{Process: p})
		}
	}
	ps.changed(lists[0], lists[1])
}

const podScope = "/kubepods.slice/kubepods-pod0123abcd_1111_2222_3333_444455556666.slice/" +
	"cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope"

func TestProcessesAreResources(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), nil)
	server := files.add(10, 1, "500", "/bin/server", podScope, "OTEL_SERVICE_NAME=shop\x00")
	child := files.add(11, 10, "600", "/bin/server", podScope, "server: idle")
	other := files.add(12, 10, "700", "/bin/other", podScope, "")
	ps.change([]proc.Process{server, child, other}, nil)
	qt.Check(t, qt.Equals(ps.count(), 3))

	for _, test := range []struct {
		pid  int
		name any
		file string
	}{
		{10, "shop", "server"},
		{11, "shop", "server"}, // its parent's, which it has overwritten
		{12, nil, "other"},     // in a container others know it
	} {
		r := ps.resourceOf(test.pid, 7)
		got := attributesOf(r)
		qt.Check(t, qt.Equals(got["service.name"], test.name))
		qt.Check(t, qt.Equals(got["process.executable.name"], any(test.file)))
		qt.Check(t, qt.Equals(got["process.pid"], any(int64(test.pid))))
		qt.Check(t, qt.Equals(got["k8s.pod.uid"], any("0123abcd-1111-2222-3333-444455556666")))
		qt.Check(t, qt.Equals(got["container.id"],
			any("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")))
		qt.Check(t, qt.Equals(r, ps.resourceOf(test.pid, 7)))
	}

	unknown := attributesOf(ps.resourceOf(99, 7))
	qt.Check(t, qt.IsNil(unknown["process.pid"]))
	qt.Check(t, qt.Equals(unknown["service.instance.id"],
		attributesOf(ps.resourceOf(98, 7))["service.instance.id"]))
}

// The receiver may be in a container, and so in a cgroup namespace.
func TestServiceInCgroupNamespace(t *testing.T) {
	const unit = "/system.slice/shop.service"
	files := newTree(t)
	ps := newProcesses(ByContainer, procfs.FS(files.root), nil)
	ps.change([]proc.Process{
		files.add(10, 1, "500", "/bin/a", "/../.."+strings.TrimPrefix(podScope, "/kubepods.slice"),
			"OTEL_SERVICE_NAME=pod\x00"),
		files.add(11, 1, "600", "/bin/b", "/../../.."+unit, "OTEL_SERVICE_NAME=unit\x00"),
		files.add(12, 1, "700", "/bin/c", "/../other", "OTEL_SERVICE_NAME=other\x00"),
	}, nil)
	for path, want := range map[string]string{podScope: "pod", unit: "unit", "/system.slice": ""} {
		r := &resource{path: path}
		r.container, _ = proc.ContainerOf(path)
		qt.Check(t, qt.Equals(ps.serviceOf(r)["service.name"], want), qt.Commentf("%s", path))
	}
}

func attributesOf(r *resource) map[string]any {
	b := builderOf(Cumulative)
	return b.all.ResourceMetrics().At(b.scopeIndex(r)).Resource().Attributes().AsRaw()
}

// scopeIndex makes the resource the last one of the metrics.
func (b *metricsBuilder) scopeIndex(r *resource) int {
	b.metric(r, "", "", "")
	return b.all.ResourceMetrics().Len() - 1
}

func TestProcessesComeAndGo(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), nil)
	first := files.add(10, 1, "500", "/bin/a", "/x", "")
	ps.change([]proc.Process{first, first}, nil) // it maps two files
	r := ps.resourceOf(10, 7)
	ps.change(nil, []proc.Process{first})
	qt.Check(t, qt.IsFalse(ps.hasGone(r)))
	ps.change(nil, []proc.Process{first})
	qt.Check(t, qt.IsTrue(ps.hasGone(r)))
	qt.Check(t, qt.Equals(ps.count(), 0))
	qt.Check(t, qt.Equals(ps.resourceOf(10, 7), r)) // for what is read later
	gone := ps.byPID[10].gone
	qt.Check(t, qt.IsTrue(ps.knows(10, gone.Add(-1))))
	qt.Check(t, qt.IsFalse(ps.knows(10, gone.Add(1)))) // of another process

	ps.change([]proc.Process{first}, nil) // it maps one again
	qt.Check(t, qt.IsFalse(ps.hasGone(r)))
	qt.Check(t, qt.Equals(ps.resourceOf(10, 7), r))
	qt.Check(t, qt.Equals(ps.count(), 1))

	second := files.add(10, 1, "900", "/bin/a", "/x", "") // the PID is used again
	ps.change([]proc.Process{second}, []proc.Process{first})
	qt.Check(t, qt.IsTrue(ps.hasGone(r)))
	now := ps.resourceOf(10, 7)
	qt.Check(t, qt.Not(qt.Equals(now, r)))
	qt.Check(t, qt.Not(qt.Equals(now.instance, r.instance)))
	qt.Check(t, qt.IsFalse(ps.hasGone(now)))
	qt.Check(t, qt.Equals(ps.count(), 1))
}

// A process that executes another program is another resource, also where both
// programs have wanted probes.
func TestProcessThatExecutesAnotherProgram(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), nil)
	first := files.add(10, 1, "500", "/bin/a", "/x", "")
	ps.change([]proc.Process{first, first}, nil)
	before := ps.resourceOf(10, 7)
	second := files.add(10, 1, "500", "/bin/a (deleted)", "/x", "")
	ps.change([]proc.Process{second}, nil)
	qt.Check(t, qt.Equals(ps.resourceOf(10, 7), before)) // no other program

	third := files.add(10, 1, "500", "/bin/b", "/x", "OTEL_SERVICE_NAME=shop\x00")
	ps.change([]proc.Process{third}, []proc.Process{first, first, second})
	after := ps.resourceOf(10, 7)
	qt.Check(t, qt.Equals(attributesOf(after)["process.executable.name"], any("b")))
	qt.Check(t, qt.Equals(attributesOf(after)["service.name"], any("shop")))
	qt.Check(t, qt.IsTrue(ps.hasGone(before)))
	qt.Check(t, qt.IsFalse(ps.hasGone(after)))
	qt.Check(t, qt.Equals(ps.count(), 1))

	// The same program again, as by opentelemetry-instrument: all its files
	// appear and disappear at once.
	again := files.add(10, 1, "500", "/bin/b", "/x", "OTEL_SERVICE_NAME=shop\x00")
	ps.change([]proc.Process{again}, []proc.Process{third})
	qt.Check(t, qt.Equals(ps.resourceOf(10, 7), after)) // with the same environment
	again = files.add(10, 1, "500", "/bin/b", "/x", "OTEL_SERVICE_NAME=cart\x00")
	ps.change([]proc.Process{again}, []proc.Process{again})
	qt.Check(t, qt.IsTrue(ps.hasGone(after)))
	after = ps.resourceOf(10, 7)
	qt.Check(t, qt.Equals(attributesOf(after)["service.name"], any("cart")))
	qt.Check(t, qt.Equals(ps.count(), 1))
	ps.change(nil, []proc.Process{again})
	qt.Check(t, qt.IsTrue(ps.hasGone(after)))
	qt.Check(t, qt.Equals(ps.count(), 0))
}

// What was sent of a container before its service was known stays what it was:
// it ends, and another series goes on.
func TestServiceThatIsKnownLater(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByContainer, procfs.FS(files.root), nil)
	first := files.add(10, 1, "500", "/bin/a", podScope, "")
	second := files.add(11, 1, "600", "/bin/b", podScope, "OTEL_SERVICE_NAME=shop\x00")
	ps.resources[resourceID{group: 7}] = &resource{path: podScope, group: 7, instance: "i"}
	ps.resources[resourceID{group: 7}].container, _ = proc.ContainerOf(podScope)
	before := ps.resourceOf(0, 7)
	ps.change([]proc.Process{first}, nil)
	qt.Check(t, qt.Equals(ps.resourceOf(0, 7), before))
	ps.change([]proc.Process{second}, nil)
	after := ps.resourceOf(0, 7)
	qt.Check(t, qt.Equals(attributesOf(after)["service.name"], any("shop")))
	qt.Check(t,
		qt.Equals(attributesOf(after)["container.id"], attributesOf(before)["container.id"]))
	qt.Check(t, qt.Equals(ps.resourceOf(0, 7), after))
	qt.Check(t, qt.IsTrue(ps.hasGone(before)))
	qt.Check(t, qt.IsNil(attributesOf(before)["service.name"]))
}

// A receiver that runs for months forgets resources, whatever it sends.
func TestResourcesAreForgotten(t *testing.T) {
	testneeds.Root(t)
	config := defaultConfig()
	config.CollectionInterval = time.Millisecond
	config.Logs = []LogConfig{{Event: "gousdt_test:none"}}
	r := newReceiver(receivertest.NewNopSettings(metadata.Type), config)
	r.next.logs = consumertest.NewNop()
	qt.Assert(t, qt.IsNil(r.start(t.Context(), componenttest.NewNopHost())))
	defer func() { qt.Check(t, qt.IsNil(errors.Join(r.shutdown(t.Context()), r.close()))) }()
	const noGroup = 1 << 62
	r.processes.resourceOf(0, noGroup)
	known := func(used time.Time) bool {
		r.processes.mu.Lock()
		defer r.processes.mu.Unlock()
		old := r.processes.resources[resourceID{group: noGroup}]
		if old != nil {
			old.used = used
		}
		return old != nil
	}
	qt.Check(t, qt.IsTrue(known(time.Time{})))
	testneeds.Await(t, 10*time.Second, "it is forgotten", func() bool { return !known(time.Time{}) })
}

// A program that forks all the time takes no more memory than maxGone allows.
func TestResourcesOfProcessesAreForgottenWithThem(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), nil)
	first := files.add(10, 1, "500", "/bin/a", "/x", "")
	second := files.add(11, 1, "500", "/bin/a", "/x", "")
	ps.change([]proc.Process{first, second}, nil)
	for pid := 10; pid <= 11; pid++ {
		ps.resourceOf(pid, 7)
		ps.resourceOf(pid, 8)
	}
	qt.Check(t, qt.HasLen(ps.resources, 4))
	ps.change(nil, []proc.Process{first})
	qt.Check(t, qt.HasLen(ps.resources, 4)) // for what is read later
	ps.gone[0].gone = ps.gone[0].gone.Add(-keepGone)
	ps.change(nil, nil)
	qt.Check(t, qt.HasLen(ps.resources, 2))
}

func TestProcessInAnotherControlGroup(t *testing.T) {
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), nil)
	ps.change([]proc.Process{files.add(10, 1, "500", "/bin/a", podScope, "")}, nil)
	here, there := ps.resourceOf(10, 7), ps.resourceOf(10, 8)
	qt.Check(t, qt.Not(qt.Equals(here.instance, there.instance)))
}

// A process that goes from one new control group to the next keeps the resource
// of the one where it is.
func TestResourcesOfGroupsThatAProcessHasLeft(t *testing.T) {
	testneeds.Root(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	qt.Assert(t, qt.IsNil(err))
	parent := ""
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); fields[2] == "cgroup2" && parent == "" {
			parent, _ = os.MkdirTemp(fields[1], "gousdt-test")
		}
	}
	if parent == "" {
		testneeds.Missing(t, "no hierarchy of control groups of version 2 that can be written to")
	}
	defer os.Remove(parent)
	cgroups, err := proc.WatchCgroups("")
	qt.Assert(t, qt.IsNil(err))
	defer cgroups.Close()
	files := newTree(t)
	ps := newProcesses(ByProcess, procfs.FS(files.root), cgroups)
	ps.change([]proc.Process{files.add(10, 1, "500", "/bin/a", "/x", "")}, nil)
	for n := range 20 {
		dir := filepath.Join(parent, strconv.Itoa(n))
		qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o755)))
		defer os.Remove(dir)
		info, err := os.Stat(dir)
		qt.Assert(t, qt.IsNil(err))
		group := info.Sys().(*syscall.Stat_t).Ino
		testneeds.Await(t, 10*time.Second, "the control group is found",
			func() bool { return cgroups.Exists(group) })
		here := ps.resourceOf(10, group)
		ps.forget(time.Now().Add(time.Hour))
		qt.Assert(t, qt.Equals(ps.resourceOf(10, group), here), qt.Commentf("the process is there"))
		qt.Assert(t, qt.HasLen(ps.resources, 1))
		qt.Assert(t, qt.HasLen(ps.byPID[10].groups, 1))
		qt.Assert(t, qt.IsNil(os.Remove(dir)))
		ps.forget(time.Now().Add(time.Hour))
	}
}
