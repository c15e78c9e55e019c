// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// A libbpfHeader is a version of libbpf's header that objects are compiled
// with.
type libbpfHeader struct {
	name    string
	indexes bool // it knows index registers, and bpf_usdt_arg_size
}

func libbpfHeaders(t *testing.T) []libbpfHeader {
	t.Helper()
	var headers []libbpfHeader
	for _, name := range []string{"libbpf-installed", "libbpf-newest"} {
		spec, err := libbpf.LoadCollectionSpec(testprog.Path(t, name+"/values.bpf.o"))
		qt.Assert(t, qt.IsNil(err))
		headers = append(headers,
			libbpfHeader{name, spec.Maps["__bpf_usdt_specs"].ValueSize != 208})
	}
	return headers
}

func (h libbpfHeader) load(t *testing.T, object string) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := libbpf.LoadCollectionSpec(testprog.Path(t, h.name+"/"+object+".bpf.o"))
	qt.Assert(t, qt.IsNil(err))
	return spec
}

// forEachHeader runs a test with objects compiled with each header.
func forEachHeader(t *testing.T, test func(t *testing.T, header libbpfHeader)) {
	testprog.RequireBPF(t)
	for _, header := range libbpfHeaders(t) {
		t.Run(header.name, func(t *testing.T) {
			if header.indexes {
				testneeds.Kernel(t, "6.12",
					"a verifier that follows libbpf's newest reader through twelve arguments")
			}
			test(t, header)
		})
	}
}

// manage prepares and loads a collection.
func manage(t *testing.T, spec *ebpf.CollectionSpec, opts *usdt.ManagerOptions) (*usdt.Manager,
	*ebpf.Collection) {
	t.Helper()
	testprog.LeakCheck(t)
	mgr, err := usdt.NewManager(spec, opts)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { qt.Check(t, qt.IsNil(mgr.Close())) })
	collection, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() {
		collection.Close()
		*collection = ebpf.Collection{} // the memory of its maps is freed when nothing refers to it
	})
	return mgr, collection
}

// newLibbpfCollector is newCollector with an object for libbpf.
func newLibbpfCollector(t *testing.T, header libbpfHeader, opts *usdt.ManagerOptions) *collector {
	t.Helper()
	c := &collector{}
	var collection *ebpf.Collection
	c.Manager, collection = manage(t, header.load(t, "values"), opts)
	c.Collect, c.Collect3 = collection.Programs["collect"], collection.Programs["collect3"]
	c.Collect12, c.Events = collection.Programs["collect12"], collection.Maps["events"]
	var err error
	c.events, err = ringbuf.NewReader(c.Events)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { c.events.Close() })
	return c
}

// Every value of every argument, as TestArgumentsHaveTheRightValues has it for
// this module's header.
func TestAttachObjectsForLibbpf(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		for _, prog := range programs {
			t.Run(prog.name, func(t *testing.T) {
				process := testprog.Start(t, prog.run)
				checkLibbpfArguments(t, header, testprog.Path(t, prog.file), process)
			})
		}
	})
}

func TestAttachObjectsForLibbpfTo32BitPrograms(t *testing.T) {
	testneeds.Only(t, "an x86-64 kernel runs i386 programs", "amd64")
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		process := testprog.Start(t, testprog.CrossPath(t, "386", "target-pie"))
		checkLibbpfArguments(t, header, testprog.CrossPath(t, "386", "target-pie"), process)
	})
}

func checkLibbpfArguments(
	t *testing.T, header libbpfHeader, path string, process *testprog.Process,
) {
	file, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	c := newLibbpfCollector(t, header, &usdt.ManagerOptions{MaxSpecs: 2048})
	expected := expectedIn(t, file, c.Mode())
	var patterns []elfnote.Pattern
	groups := make(map[string]int) // hits
	of := make(map[string]testprog.Probe)
	for _, probe := range expected {
		patterns = append(patterns, elfnote.Exact(probe.Provider, probe.Name))
		of[probe.Provider+":"+probe.Name] = probe
		groups[probe.Group] += len(probe.Hits)
	}

	// Each site has a cookie, which says what the layout can describe there.
	cookies := uint64(0)
	lnk, err := c.Attach(c.Collect, usdt.Target{ELF: file, PID: process.PID},
		&usdt.AttachOptions{SiteCookie: func(usdt.Site) uint64 { cookies++; return cookies - 1 }},
		patterns...)
	qt.Assert(t, qt.IsNil(err))
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", process.PID))
	qt.Assert(t, qt.IsNil(err))
	defer memory.Close()

	for group, hits := range groups {
		process.Fire(group, 1)
		seen := make(map[string]int)
		for _, event := range c.next(t, hits) {
			site := lnk.Selection().Sites()[event.Cookie]
			name := site.Provider + ":" + site.Name
			qt.Assert(t, qt.IsTrue(seen[name] < len(of[name].Hits)),
				qt.Commentf("%s is hit too often", name))
			want := slices.Clone(of[name].Hits[seen[name]])
			seen[name]++
			for i := range min(len(want), sitespec.MaxArgs) {
				switch {
				case site.Args[i].Err != nil:
					want[i].Kind = testprog.Unavailable
				case site.Name == "page_end":
					want[i].Kind = testprog.Fault // it reads 8 bytes of less
				}
			}
			checkLibbpfEvent(t, header, name, memory, want, &event)
		}
		c.silent(t)
	}
	checkLibbpfUnavailable(t, header, file, lnk)

	qt.Assert(t, qt.IsNil(lnk.Close()))
	process.Fire("three", 1)
	c.silent(t)
	used, _ := c.SpecsInUse()
	qt.Assert(t, qt.Equals(used, 0))
}

// checkLibbpfEvent is checkArguments with the errors that libbpf's header has.
func checkLibbpfEvent(t *testing.T, header libbpfHeader, name string, memory *os.File,
	want []testprog.Arg, event *testbpf.ArgsEvent) {
	t.Helper()
	qt.Check(t, qt.Equals(int(event.ArgCnt), min(len(want), sitespec.MaxArgs)),
		qt.Commentf("%s", name))
	for i := range event.Val {
		at := qt.Commentf("%s: argument %d", name, i)
		code, value := unix.Errno(-event.Err[i]), uint64(event.Val[i])
		size, none := 0, 0 // of a header that does not know sizes
		if header.indexes {
			none = -int(unix.ENOENT)
		}
		if i >= len(want) || i >= sitespec.MaxArgs {
			qt.Check(t, qt.Equals(code, unix.ENOENT), at)
			qt.Check(t, qt.Equals(value, 0), at)
			qt.Check(t, qt.Equals(int(event.Size[i]), none), at)
			continue
		}
		if header.indexes {
			size = want[i].Size
		}
		qt.Check(t, qt.Equals(int(event.Size[i]), size), at)
		expected := unix.Errno(0)
		switch want[i].Kind {
		case testprog.Unavailable:
			expected = unix.EINVAL
		case testprog.Fault:
			expected = unix.EFAULT
		case testprog.Value:
			qt.Check(t, qt.Equals(value, want[i].Value), at)
		case testprog.Text:
			qt.Check(t, qt.Equals(textAt(memory, value), want[i].Text), at)
		case testprog.Location:
			qt.Check(t, qt.Equals(value, event.Ip), at)
		}
		qt.Check(t, qt.Equals(code, expected), at)
		if expected != 0 {
			qt.Check(t, qt.Equals(value, 0), at)
		}
	}
}

// checkLibbpfUnavailable checks that the unavailable arguments are those that
// nobody can fetch, and those that the layout cannot describe.
func checkLibbpfUnavailable(t *testing.T, header libbpfHeader, file *elfnote.File, lnk *usdt.Link) {
	t.Helper()
	full, err := usdt.Select(usdt.Target{ELF: file})
	qt.Assert(t, qt.IsNil(err))
	defer full.Close()
	args := make(map[uint64][]argspec.Arg)
	for _, site := range full.Sites() {
		args[site.Location] = site.Args
	}
	for _, site := range lnk.Selection().Sites() {
		for i, arg := range site.Args {
			whole := args[site.Location][i]
			at := qt.Commentf("%s: %s", site.Name, whole.Raw)
			if whole.Err != nil {
				qt.Check(t, qt.IsNotNil(arg.Err), at)
				continue
			}
			lacks := whole.Kind == argspec.Address || whole.High.Name != "" ||
				whole.IndexSize != 0
			if whole.Kind == argspec.Memory && whole.Base.Name == "" {
				lacks = lacks || whole.Index.Name == "" || whole.Scale != 1
			} else {
				lacks = lacks || whole.Index.Name != "" && (!header.indexes || whole.Address32)
				lacks = lacks || whole.Address32 && file.Header().Machine == elf.EM_X86_64
			}
			qt.Check(t, qt.Equals(arg.Err != nil, lacks), at)
			if lacks {
				qt.Check(t,
					qt.ErrorMatches(arg.Err,
						`the usdt.bpf.h of libbpf .* does not know .*\(.*@.*\)`), at)
				qt.Check(t, qt.Equals(arg.Kind, argspec.Unavailable), at)
			}
		}
	}
}

// These tests state the guarantees for programs made for libbpf, with objects
// that were compiled with libbpf's header and loaded as they are.

// needsCookies skips a test on kernels where a site can have one spec alone.
func needsCookies(t *testing.T) {
	t.Helper()
	needsMode(t, usdt.ModeSingle)
}

func TestObjectsForLibbpfHaveTheirCookies(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		needsCookies(t)
		c := newLibbpfCollector(t, header, nil)
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		cookies := []uint64{0, 7, 1<<64 - 1}
		for i, prog := range []*ebpf.Program{c.Collect, c.Collect3, c.Collect12} {
			c.attach(t, prog, target, "three", &usdt.AttachOptions{Cookie: cookies[i]})
		}
		process.Fire("three", 1)
		want := map[int32]uint64{0: cookies[0], 1: cookies[1], 2: cookies[2]}
		got := make(map[int32]uint64)
		for _, event := range c.next(t, 3) {
			got[event.Program] = event.Cookie
		}
		qt.Assert(t, qt.DeepEquals(got, want))
	})
}

func TestObjectsForLibbpfCountSemaphores(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		c := newLibbpfCollector(t, header, nil)
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}

		process.Fire("guarded", 1) // no program is attached
		c.silent(t)
		for _, group := range []string{"guarded", "split"} {
			for _, count := range process.Semaphores(group) {
				qt.Assert(t, qt.Equals(count, 0))
			}
			lnk := c.attach(t, c.Collect, target, group, nil)
			qt.Check(t, qt.DeepEquals(process.Semaphores(group),
				semaphoresWhenAttached(t, process, lnk)))
			process.Fire(group, 1)
			qt.Check(t, qt.Equals(c.next(t, 1)[0].Val[0], -2000000000))
			c.drain()
			qt.Assert(t, qt.IsNil(lnk.Close()))
			for _, count := range process.Semaphores(group) {
				qt.Assert(t, qt.Equals(count, 0))
			}
		}
	})
}

func (c *collector) drain() {
	c.events.SetDeadline(time.Unix(1, 0)) // what is there is read, nothing is waited for
	for {
		if _, err := c.events.Read(); err != nil {
			return
		}
	}
}

// Sites with the same arguments share a spec, however many they are.
func TestObjectsForLibbpfWithManySites(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		for _, everywhere := range []bool{false, true} {
			c := newLibbpfCollector(t, header, nil)
			process := testprog.Start(t, "target-static")
			target := usdt.Target{Path: testprog.Path(t, "target-static"), PID: process.PID}
			if everywhere {
				target.PID = 0
			}
			lnk := c.attach(t, c.Collect3, target, "many", nil)
			qt.Assert(t, qt.Equals(len(lnk.Selection().Sites()), 400))
			used, capacity := c.SpecsInUse()
			qt.Check(t, qt.Equals(used, 1))
			qt.Check(t, qt.Equals(capacity, 256))
			process.Fire("many", 1)
			for _, event := range c.next(t, 400) {
				qt.Assert(t, qt.Equals(event.Val[0], 42))
			}
			c.silent(t)
		}
	})
}

// A program that needs more specs than there is room for is attached nowhere,
// and holds none.
func TestObjectsForLibbpfWithAFullMapOfSpecs(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		for _, everywhere := range []bool{false, true} {
			c := newLibbpfCollector(t, header, nil)
			process := testprog.Start(t, "target-static")
			target := usdt.Target{Path: testprog.Path(t, "target-static"), PID: process.PID}
			if everywhere {
				target.PID = 0
			}
			first := c.attach(t, c.Collect3, target, "three", nil)
			for range 2 {
				_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "specs"),
					elfnote.Exact(provider, "guarded"))
				var limit *usdt.LimitError
				qt.Assert(t, qt.ErrorAs(err, &limit))
				qt.Check(t, qt.DeepEquals(limit, &usdt.LimitError{
					Limit:    "specs",
					Option:   "ManagerOptions.MaxSpecs",
					Capacity: 256,
					InUse:    1,
					Needed:   301,
				}))
				used, _ := c.SpecsInUse()
				qt.Check(t, qt.Equals(used, 1))
				qt.Check(t, qt.Equals(process.Semaphore("guarded"), 0))
			}
			process.Fire("specs", 1)
			c.silent(t)
			process.Fire("three", 1)
			qt.Check(t, qt.Equals(c.next(t, 1)[0].Val[0], -2000000000))

			// There is room for as many as the map has entries, again and
			// again.
			qt.Assert(t, qt.IsNil(first.Close()))
			for range 3 {
				lnk := c.attach(t, c.Collect12, target, "fourteen", nil)
				process.Fire("fourteen", 1)
				for i, value := range c.next(t, 1)[0].Val[:12] {
					qt.Check(t, qt.Equals(value, int64(101+i)))
				}
				qt.Assert(t, qt.IsNil(lnk.Close()))
			}
			used, _ := c.SpecsInUse()
			qt.Check(t, qt.Equals(used, 0))
		}
	})
}

func TestObjectsForLibbpfWithManySpecs(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		c := newLibbpfCollector(t, header, &usdt.ManagerOptions{MaxSpecs: 300})
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		lnk := c.attach(t, c.Collect, target, "specs", nil)
		used, capacity := c.SpecsInUse()
		qt.Check(t, qt.Equals(used, 300))
		qt.Check(t, qt.Equals(capacity, 300))
		process.Fire("specs", 1)
		for i, event := range c.next(t, 300) {
			qt.Assert(t, qt.Equals(event.Val[0], int64(i)))
		}
		_, err := c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.ErrorAs(err, new(*usdt.LimitError)))
		qt.Assert(t, qt.IsNil(lnk.Close()))
		c.attach(t, c.Collect, target, "three", nil)
	})
}

// Two files have a probe of the same name, in one process.
func TestObjectsForLibbpfWithOneNameInSeveralFiles(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		c := newLibbpfCollector(t, header, nil)
		executable, library := testprog.Path(t, "target-pie"), testprog.Path(t, "libtarget.so")
		one, other := testprog.Start(t, "target-pie"), testprog.Start(t, "target-shared")
		one.Do("load " + library)
		type file struct {
			path   string
			pid    int
			cookie uint64
		}
		for _, f := range []file{{executable, one.PID, 1}, {library, one.PID, 2},
			{library, other.PID, 3}} {
			c.attach(t, c.Collect3, usdt.Target{Path: f.path, PID: f.pid}, "three",
				&usdt.AttachOptions{Cookie: f.cookie})
		}
		one.Fire("three", 1)
		event := c.next(t, 1)[0]
		qt.Check(t, qt.Equals(event.Cookie, 1))
		qt.Check(t, qt.Equals(int(event.Pid), one.PID))
		other.Fire("three", 1)
		event = c.next(t, 1)[0]
		qt.Check(t, qt.Equals(event.Cookie, 3))
		qt.Check(t, qt.Equals(int(event.Pid), other.PID))
		qt.Check(t, qt.Equals(event.Val[0], -2000000000))
		c.silent(t)
	})
}

// needsTailCallsBesideFunctions skips where the kernel's compiler refuses a
// program that has both. The header's readers are functions.
func needsTailCallsBesideFunctions(t *testing.T) {
	t.Helper()
	testneeds.Only(t, "other kernels refuse tail calls in programs with functions",
		"amd64", "arm64")
	if runtime.GOARCH == "arm64" {
		testneeds.Kernel(t, "6.0", "tail calls in programs with functions on arm64")
	}
}

// Both programs read arguments, and one calls the other.
func TestObjectsForLibbpfWithTailCalls(t *testing.T) {
	needsTailCallsBesideFunctions(t)
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		mgr, collection := manage(t, header.load(t, "tail"), nil)
		best, err := usdt.ModeAuto.Resolve()
		qt.Assert(t, qt.IsNil(err))
		if best == usdt.ModeMulti {
			best = usdt.ModeSingle
		}
		qt.Check(t, qt.Equals(mgr.Mode(), best))
		qt.Assert(t,
			qt.IsNil(collection.Maps["programs"].Put(uint32(0), collection.Programs["next"])))

		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		lnk, err := mgr.Attach(collection.Programs["entry"], target, nil,
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		process.Fire("three", 3)
		var hits [2]uint64
		qt.Assert(t, qt.IsNil(collection.Variables["hits"].Get(&hits)))
		qt.Check(t, qt.Equals(hits, [2]uint64{3, 3}))
		qt.Check(t, qt.Equals(variable[int64](t, collection, "first"), -2000000000))
		qt.Check(t, qt.Equals(variable[int64](t, collection, "after"), -2000000000))
		qt.Assert(t, qt.IsNil(lnk.Close()))
	})
}

// withDispatcher adds a program to a collection that only tail-calls another
// one, in the array "chain".
func withDispatcher(spec *ebpf.CollectionSpec) *ebpf.CollectionSpec {
	spec.Maps["chain"] = &ebpf.MapSpec{Name: "chain", Type: ebpf.ProgramArray, KeySize: 4,
		ValueSize: 4, MaxEntries: 1}
	spec.Programs["dispatch"] = &ebpf.ProgramSpec{Name: "dispatch", Type: ebpf.Kprobe,
		SectionName: "usdt", License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R2, 0).WithReference("chain"),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		}}
	return spec
}

// A program that reads nothing itself, but tail-calls one that does, gives that
// its arguments and its cookie, whatever other probes and cookies there are.
func TestDispatchersReachTheirReaders(t *testing.T) {
	needsTailCallsBesideFunctions(t)
	objects := map[string]func(t *testing.T) *ebpf.CollectionSpec{
		"own": func(t *testing.T) *ebpf.CollectionSpec {
			spec, err := testbpf.LoadArgs()
			qt.Assert(t, qt.IsNil(err))
			return spec
		},
	}
	for _, header := range libbpfHeaders(t) {
		objects[header.name] = func(t *testing.T) *ebpf.CollectionSpec {
			if header.indexes {
				testneeds.Kernel(t, "6.12", "a verifier that follows libbpf's newest reader")
			}
			return header.load(t, "values")
		}
	}
	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	check := func(t *testing.T, spec *ebpf.CollectionSpec, opts usdt.ManagerOptions, capabilities []int) {
		mgr, collection := manage(t, withDispatcher(spec), &opts)
		qt.Assert(t, qt.IsNil(collection.Maps["chain"].Put(uint32(0), collection.Programs["collect"])))
		events, err := ringbuf.NewReader(collection.Maps["events"])
		qt.Assert(t, qt.IsNil(err))
		defer events.Close()
		c := &collector{Manager: mgr, events: events}
		attach := func(program, name string, cookie uint64) *usdt.Link {
			lnk, err := mgr.Attach(collection.Programs[program], target,
				&usdt.AttachOptions{Cookie: cookie}, elfnote.Exact(provider, name))
			qt.Assert(t, qt.IsNil(err))
			return lnk
		}
		if capabilities != nil {
			inner := attach
			attach = func(program, name string, cookie uint64) (lnk *usdt.Link) {
				withCapabilities(t, capabilities, func() { lnk = inner(program, name, cookie) })
				return lnk
			}
		}
		// Their specs have the IDs 1 and 2.
		defer attach("collect3", "twelve", 100).Close()
		defer attach("collect12", "narrow", 200).Close()
		for _, cookie := range []uint64{2, 0, 1<<40 | 1} {
			lnk := attach("dispatch", "three", cookie)
			process.Fire("three", 1)
			event := c.next(t, 1)[0]
			qt.Check(t, qt.Equals(event.Cookie, cookie))
			qt.Check(t, qt.Equals(event.ArgCnt, 3))
			qt.Check(t, qt.Equals(event.Val[0], -2000000000))
			process.Fire("twelve", 1)
			event = c.next(t, 1)[0]
			qt.Check(t, qt.Equals(event.Cookie, 100))
			qt.Check(t, qt.Equals(event.Val[0], -100))
			qt.Assert(t, qt.IsNil(lnk.Close()))
		}
		c.silent(t)
	}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for name, load := range objects {
			t.Run(name, func(t *testing.T) {
				check(t, load(t), usdt.ManagerOptions{Mode: mode}, nil)
			})
		}
	})
	t.Run("privileges", func(t *testing.T) {
		needsMode(t, usdt.ModeMulti)
		check(t, objects["own"](t), usdt.ManagerOptions{Mode: usdt.ModeMulti},
			[]int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE})
	})
}

// The kernel's cookie is the caller's in programs that can reach no reader.
func TestProgramsWithoutArgumentsHaveTheKernelsCookie(t *testing.T) {
	forEach(t, []usdt.Mode{usdt.ModeMulti, usdt.ModeSingle}, func(t *testing.T, mode usdt.Mode) {
		for _, replaces := range []bool{false, true} {
			spec, err := testbpf.LoadArgs()
			qt.Assert(t, qt.IsNil(err))
			spec = withDispatcher(spec)
			dispatch := spec.Programs["dispatch"]
			spec.Maps["seen"] = &ebpf.MapSpec{Name: "seen", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
				MaxEntries: 1}
			dispatch.Instructions = asm.Instructions{
				asm.FnGetAttachCookie.Call(),
				asm.Mov.Reg(asm.R6, asm.R0),
				asm.StoreImm(asm.R10, -4, 0, asm.Word),
				asm.LoadMapPtr(asm.R1, 0).WithReference("seen"),
				asm.Mov.Reg(asm.R2, asm.R10),
				asm.Add.Imm(asm.R2, -4),
				asm.FnMapLookupElem.Call(),
				asm.JEq.Imm(asm.R0, 0, "none"),
				asm.StoreMem(asm.R0, 0, asm.R6, asm.DWord),
				asm.Mov.Imm(asm.R0, 0).WithSymbol("none"),
				asm.Return(),
			}
			if replaces { // which is loaded later, for a program that has been loaded
				spec.Programs["replacement"] = &ebpf.ProgramSpec{Name: "replacement", Type: ebpf.Extension}
			}
			mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Mode: mode})
			qt.Assert(t, qt.IsNil(err))
			defer mgr.Close()
			var objs struct {
				Dispatch *ebpf.Program `ebpf:"dispatch"`
				Seen     *ebpf.Map     `ebpf:"seen"`
			}
			qt.Assert(t, qt.IsNil(spec.LoadAndAssign(&objs, mgr.CollectionOptions())))
			defer objs.Dispatch.Close()
			defer objs.Seen.Close()
			process := testprog.Start(t, "target-pie")
			target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
			lnk, err := mgr.Attach(objs.Dispatch, target, &usdt.AttachOptions{Cookie: 1 << 40},
				elfnote.Exact(provider, "three"))
			qt.Assert(t, qt.IsNil(err))
			process.Fire("three", 1)
			var seen uint64
			qt.Assert(t, qt.IsNil(objs.Seen.Lookup(uint32(0), &seen)))
			want, specs := uint64(1<<40), 0
			if replaces {
				want, specs = 1, 1
			}
			qt.Check(t, qt.Equals(seen, want))
			used, _ := mgr.SpecsInUse()
			qt.Check(t, qt.Equals(used, specs))
			qt.Assert(t, qt.IsNil(lnk.Close()))
		}
	})
}

func variable[T any](t *testing.T, collection *ebpf.Collection, name string) (value T) {
	t.Helper()
	qt.Assert(t, qt.IsNil(collection.Variables[name].Get(&value)))
	return value
}

func TestObjectsForLibbpfThatSleep(t *testing.T) {
	testneeds.Kernel(t, "6.0", "sleepable programs on uprobes")
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		mgr, collection := manage(t, header.load(t, "sleepable"), nil)
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		lnk, err := mgr.Attach(collection.Programs["sleeper"], target, nil,
			elfnote.Exact(provider, "cold"))
		qt.Assert(t, qt.IsNil(err))
		defer lnk.Close()
		process.Fire("cold", 1)
		qt.Check(t, qt.Equals(variable[uint64](t, collection, "hits"), 1))
		copied := variable[[8]byte](t, collection, "copied")
		qt.Check(t, qt.Equals(string(copied[:4]), "\x7fELF"))
	})
}

func TestObjectsForLibbpfLinkedFromTwoFiles(t *testing.T) {
	testneeds.Only(t, "bpftool links objects of its own byte order alone", "amd64",
		"arm64", "riscv64")
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		mgr, collection := manage(t, header.load(t, "linked"), nil)
		process := testprog.Start(t, "target-pie")
		target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
		attach := func(name string, cookie uint64) *usdt.Link {
			lnk, err := mgr.Attach(collection.Programs[name], target,
				&usdt.AttachOptions{Cookie: cookie}, elfnote.Exact(provider, "narrow"))
			qt.Assert(t, qt.IsNil(err))
			return lnk
		}
		const a, b = -0x3d, 0xc3 // the first arguments of the probe

		lnk := attach("first", 5)
		process.Fire("narrow", 1)
		qt.Check(t, qt.Equals(variable[int64](t, collection, "sum"), a+b+a))
		qt.Assert(t, qt.IsNil(lnk.Close()))

		defer attach("second", 1000).Close()
		process.Fire("narrow", 1)
		qt.Check(t, qt.Equals(variable[int64](t, collection, "sum"), a-b+a+1000))
		qt.Check(t, qt.Equals(int(variable[int32](t, collection, "process")), process.PID))
		qt.Check(t, qt.Not(qt.Equals(variable[uint32](t, collection, "kernel_version"), 0)))
	})
}

// A program whose section names a file and a probe is attached to that. The
// others are for the caller.
func TestObjectsForLibbpfAttachTheirSections(t *testing.T) {
	forEachHeader(t, func(t *testing.T, header libbpfHeader) {
		spec := header.load(t, "sections")
		path := testprog.Path(t, "target-pie")
		types := make(map[string]ebpf.ProgramType)
		for name, program := range spec.Programs {
			types[name] = program.Type
			if name == "placed" || name == "optional" {
				program.SectionName = strings.Replace(program.SectionName, "TARGET", path, 1)
			}
		}
		mgr, collection := manage(t, spec, nil)
		for _, name := range []string{"other_kprobe", "other_tracepoint", "other_uprobe"} {
			qt.Check(t, qt.Equals(spec.Programs[name].Type, types[name]))
			qt.Check(t, qt.Equals(spec.Programs[name].AttachType, ebpf.AttachNone))
		}

		process := testprog.Start(t, "target-pie")
		links, err := libbpf.AttachSections(mgr, spec, collection, usdt.Target{PID: process.PID}, nil)
		qt.Assert(t, qt.IsNil(err))
		defer sys.CloseTogether(links)
		qt.Assert(t, qt.HasLen(links, 1)) // a "?" leaves the other one to the caller
		process.Fire("three", 1)
		process.Fire("twelve", 1)
		qt.Check(t, qt.Equals(variable[[8]uint64](t, collection, "hits"), [8]uint64{1: 1}))
		target := usdt.Target{Path: path, PID: process.PID}
		lnk, err := mgr.Attach(collection.Programs["optional"], target, nil,
			elfnote.Exact(provider, "twelve"))
		qt.Assert(t, qt.IsNil(err))
		defer lnk.Close()
		process.Fire("twelve", 1)
		qt.Check(t, qt.Equals(variable[[8]uint64](t, collection, "hits"), [8]uint64{1: 1, 2: 1}))
		qt.Check(t, qt.Equals(variable[[8]int64](t, collection, "last"),
			[8]int64{1: -2000000000, 2: 200}))

		for _, name := range []string{"named_otherwise", "without_place"} {
			lnk, err := mgr.Attach(collection.Programs[name], target, nil,
				elfnote.Exact(provider, "narrow"))
			qt.Assert(t, qt.IsNil(err))
			defer lnk.Close()
		}
		process.Fire("narrow", 2)
		qt.Check(t, qt.Equals(variable[[8]uint64](t, collection, "hits"),
			[8]uint64{0: 2, 1: 1, 2: 1, 3: 2}))
		qt.Check(t, qt.Equals(variable[[8]int64](t, collection, "last"),
			[8]int64{0: -0x3d, 1: -2000000000, 2: 200, 3: 0xc3}))
		qt.Check(t, qt.Not(qt.Equals(variable[uint32](t, collection, "kernel_version"), 0)))
	})
}
