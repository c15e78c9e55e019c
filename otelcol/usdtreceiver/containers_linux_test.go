// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// fleetVariable has the tests of many containers be as large as a busy node.
const fleetVariable = "GOUSDT_FLEET"

func isFleet() bool { return os.Getenv(fleetVariable) != "" }

// sizeOf returns how many there are of something: as usual, or as many as on a
// busy node.
func sizeOf(usual, all int) int {
	if isFleet() {
		return all
	}
	return usual
}

// node is a machine with containers, which have their own PID, mount and cgroup
// namespaces and control groups as runtimes name them.
type node struct {
	t      testing.TB
	group  string // directory of a control group
	images []image
	made   int
}

// image is a directory with a program, and what it is linked with.
type image struct {
	dir, program string // program is its path in a container
}

func newNode(t testing.TB, images int) *node {
	t.Helper()
	testneeds.Root(t)
	n := &node{t: t, group: newControlGroup(t)}
	for i := range images {
		dir := t.TempDir()
		name := fmt.Sprintf("image%d-%d", i, os.Getpid())
		program := "target-static"
		if isFleet() && i%2 == 1 {
			program = "target-musl"
			linkers, err := filepath.Glob("/lib/ld-musl-*.so.1")
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.HasLen(linkers, 1))
			qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, "lib"), 0o755)))
			copyProgram(t, linkers[0], filepath.Join(dir, linkers[0]))
		}
		copyProgram(t, testprog.Path(t, program), filepath.Join(dir, name))
		n.images = append(n.images, image{dir, "/" + name})
	}
	return n
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	program, err := os.ReadFile(from)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(to, program, 0o755)))
}

// newControlGroup makes a control group of version 2, which the end of the test
// removes with all inside.
func newControlGroup(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if fields[2] != "cgroup2" {
			continue
		}
		dir, err := os.MkdirTemp(fields[1], "gousdt-test")
		if err != nil {
			continue
		}
		t.Cleanup(func() { qt.Check(t, qt.IsNil(os.Remove(dir))) })
		return dir
	}
	testneeds.Missing(t, "no hierarchy of control groups of version 2 that can be written to")
	return ""
}

// box is a container: what its processes are in, and the hits they have had.
type box struct {
	node             *node
	image            image
	id, runtime, pod string
	group, root      string
	hits             uint64
}

// box makes a container of an image, as the one or the other runtime does.
func (n *node) box(image image) *box {
	n.t.Helper()
	n.made++
	b := &box{node: n, image: image, id: fmt.Sprintf("%056x%08x", os.Getpid(), n.made),
		root: n.t.TempDir()}
	if n.made%2 == 0 {
		b.runtime, b.group = "docker", filepath.Join(n.group, "docker-"+b.id+".scope")
	} else {
		b.runtime = "containerd"
		b.pod = fmt.Sprintf("%08x-0000-4000-8000-%012x", n.made, os.Getpid())
		slice := filepath.Join(n.group, "kubepods-besteffort-pod"+
			strings.ReplaceAll(b.pod, "-", "_")+".slice")
		n.makeGroup(slice)
		b.group = filepath.Join(slice, "cri-containerd-"+b.id+".scope")
	}
	n.makeGroup(b.group)
	// Two layers, of which the upper one is empty, and none that is written to.
	err := unix.Mount("overlay", b.root, "overlay", unix.MS_RDONLY, "lowerdir="+n.t.TempDir()+
		":"+image.dir)
	if err == unix.ENODEV {
		testneeds.Missing(n.t, "needs overlayfs in the kernel")
	}
	qt.Assert(n.t, qt.IsNil(err))
	n.t.Cleanup(func() { qt.Check(n.t, qt.IsNil(unix.Unmount(b.root, unix.MNT_DETACH))) })
	return b
}

func (n *node) makeGroup(dir string) {
	n.t.Helper()
	qt.Assert(n.t, qt.IsNil(os.Mkdir(dir, 0o755)))
	n.t.Cleanup(func() { os.Remove(dir) })
}

// command is a process of the container.
func (b *box) command() *exec.Cmd {
	b.node.t.Helper()
	group, err := os.Open(b.group)
	qt.Assert(b.node.t, qt.IsNil(err))
	b.node.t.Cleanup(func() { group.Close() })
	cmd := exec.Command(b.image.program)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: b.root, Cloneflags: syscall.CLONE_NEWPID,
		// in this order, so that the namespace begins at the container's group
		UseCgroupFD:  true,
		CgroupFD:     int(group.Fd()),
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP,
	}
	cmd.Dir = "/"
	return cmd
}

// live starts a process that lives until the end of the test.
func (b *box) live() *testprog.Process { return testprog.StartCommand(b.node.t, b.command()) }

// fire has a process pass its probe.
func (b *box) fire(p *testprog.Process, hits int) {
	p.Fire("three", hits)
	b.hits += uint64(hits)
}

// run runs a process that passes its probe and ends, and its container with it.
func (b *box) run(hits int) {
	b.node.t.Helper()
	cmd := b.command()
	cmd.Stdin = strings.NewReader(fmt.Sprintf("fire three %d\n", hits))
	out, err := cmd.CombinedOutput()
	qt.Assert(b.node.t, qt.IsNil(err), qt.Commentf("%s", out))
	b.hits += uint64(hits)
	qt.Assert(b.node.t, qt.IsNil(os.Remove(b.group)))
}

// attached returns how often a program was attached.
func (s *sinks) attached(program string) (times int) {
	for _, entry := range s.logged.FilterMessage("attached").AllUntimed() {
		for _, field := range entry.Context {
			if field.Equals(zap.String("file", program)) {
				times++
			}
		}
	}
	return times
}

// hitsOfContainers returns the sums of all deltas of a counter, and the last
// resource of each container.
func (s *sinks) hitsOfContainers(name string) (map[string]uint64, map[string]pcommon.Map) {
	hits, resources := make(map[string]uint64), make(map[string]pcommon.Map)
	points(s.metrics.AllMetrics(), name, func(resource pmetric.ResourceMetrics, m pmetric.Metric) {
		id, _ := resource.Resource().Attributes().Get("container.id")
		resources[id.Str()] = resource.Resource().Attributes()
		for _, p := range m.Sum().DataPoints().All() {
			hits[id.Str()] += uint64(p.IntValue())
		}
	})
	return hits, resources
}

// awaitHits waits until that many hits of a container have come.
func (s *sinks) awaitHits(b *box) {
	s.t.Helper()
	testneeds.Await(s.t, 30*time.Second, fmt.Sprintf("all %d hits of a container", b.hits), func() bool {
		hits, _ := s.hitsOfContainers("hits")
		return hits[b.id] >= b.hits
	})
}

// Each hit counts for the container that it was in, also if that has gone
// before the counts are read.
func TestContainersHaveTheirHits(t *testing.T) {
	for _, kind := range []string{"container", "process"} {
		t.Run(kind, func(t *testing.T) {
			containers := sizeOf(20, 200)
			n := newNode(t, containers/5)
			s, end := started(t, map[string]any{
				"resource": kind, "temporality": "delta", "collection_interval": "50ms",
				"cardinality_limit": 20_000,
				"metrics": []any{map[string]any{"name": "hits",
					"count": "gousdt_test:three"}},
			})

			// One that lives for long of each image, which is attached by it.
			var all []*box
			living := make(map[*box]*testprog.Process)
			for _, image := range n.images {
				b := n.box(image)
				all, living[b] = append(all, b), b.live()
				s.awaitAttached(image.program, "metrics")
			}
			// All others: every other one lives for long, too, and most are of
			// one image.
			var short []*box
			for i := len(all); i < containers; i++ {
				image := n.images[0]
				if i%4 == 0 {
					image = n.images[i%len(n.images)]
				}
				b := n.box(image)
				if all = append(all, b); i%2 == 0 {
					living[b] = b.live()
				} else {
					short = append(short, b)
				}
			}
			hits := 0
			for _, b := range all {
				if p := living[b]; p != nil {
					hits++
					b.fire(p, hits)
				}
			}
			// A group made later than theirs is known, so theirs are.
			last := n.box(n.images[0])
			last.run(7)
			s.awaitHits(last)
			for _, b := range append(short, last)[:len(short)] {
				hits++
				b.run(hits)
			}
			for b, p := range living {
				b.fire(p, 3)
			}
			end()

			got, resources := s.hitsOfContainers("hits")
			for _, b := range append(all, last) {
				qt.Check(t, qt.Equals(got[b.id], b.hits),
					qt.Commentf("container %s, short %v", b.id, living[b] == nil))
				if got[b.id] == 0 {
					continue
				}
				runtime, _ := resources[b.id].Get("container.runtime.name")
				qt.Check(t, qt.Equals(runtime.Str(), b.runtime))
				pod, _ := resources[b.id].Get("k8s.pod.uid")
				qt.Check(t, qt.Equals(pod.Str(), b.pod))
			}
			for _, image := range n.images {
				qt.Check(t, qt.Equals(s.attached(image.program), 1),
					qt.Commentf("containers share the file of their image"))
			}
		})
	}
}

// A receiver ends at once, also when processes that it has not seen have had
// the last hits.
func TestShutdownAfterHitsOfProcessesThatHaveEnded(t *testing.T) {
	n := newNode(t, 1)
	s, end := started(t, map[string]any{
		"logs": []any{map[string]any{"event": "gousdt_test:three"}},
	})
	n.box(n.images[0]).live()
	s.awaitAttached(n.images[0].program, "logs[0]")
	const short = 10
	for range short {
		n.box(n.images[0]).run(1)
	}
	began := time.Now()
	end()
	took := time.Since(began)
	qt.Check(t, qt.Equals(s.logs.LogRecordCount(), short))
	qt.Check(t, qt.IsTrue(took < 4*time.Second), qt.Commentf("%v", took))
}
