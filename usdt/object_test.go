// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
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
			site := sitesOf(lnk.Selection())[event.Cookie]
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
