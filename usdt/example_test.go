// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Count the exceptions that C++ programs throw in a second, with a program that
// bpf2go has made of C.
func Example() {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil) // after reading, before loading
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
	var objs tracerObjects
	if err := spec.LoadAndAssign(&objs, mgr.CollectionOptions()); err != nil {
		log.Fatal(err)
	}
	defer objs.Close()

	path, err := libbpf.FindFile("libstdc++.so.6")
	if err != nil {
		log.Fatal(err)
	}
	target := usdt.Target{Path: path} // in every process; a PID restricts it to one
	lnk, err := mgr.Attach(objs.Count, target, nil, elfnote.Exact("libstdcxx", "throw"))
	if err != nil {
		log.Fatal(err)
	}
	defer lnk.Close()
	fmt.Println("attached to", lnk)

	time.Sleep(time.Second)
	var hit tracerHit
	var count uint64
	for hits := objs.Hits.Iterate(); hits.Next(&hit, &count); {
		fmt.Printf("process %d: %d exceptions\n", hit.Pid, count)
	}
}

// Attach to all probes that match a pattern. A cookie for each site tells the
// program which probe it is.
func ExampleManager_Attach() {
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()
	defer objs.Close()

	path, err := libbpf.FindFile("libstdc++.so.6")
	if err != nil {
		log.Fatal(err)
	}
	target := usdt.Target{Path: path}
	number := map[string]uint64{"throw": 1, "catch": 2, "rethrow": 3}
	options := &usdt.AttachOptions{
		SiteCookie: func(site usdt.Site) uint64 { return number[site.Name] },
	}
	lnk, err := mgr.Attach(objs.Count, target, options, elfnote.MustParsePattern("libstdcxx:*"))
	var notFound *usdt.NotFoundError
	switch {
	case errors.As(err, &notFound):
		log.Fatalf("no such probe, but %d others", len(notFound.Probes))
	case err != nil:
		log.Fatal(err)
	}
	defer lnk.Close()

	// One Link stands for all probes that match.
	for _, site := range lnk.Selection().Sites() {
		fmt.Printf("%s:%s is attached with cookie %d\n", site.Provider, site.Name,
			number[site.Name])
	}
}

// List the sites that would be attached or skipped, and why, without attaching
// anything. This needs no privileges.
func ExampleSelect() {
	path, err := libbpf.FindFile("libstdc++.so.6")
	if err != nil {
		log.Fatal(err)
	}
	sel, err := usdt.Select(usdt.Target{Path: path},
		elfnote.MustParsePattern("libstdcxx:*"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()

	for _, site := range sel.Sites() {
		fmt.Printf("%s:%s can be attached at %#x\n", site.Provider, site.Name, site.Location)
		for n, arg := range site.Args {
			if arg.Err != nil {
				fmt.Printf("\targument %d cannot be read: %v\n", n, arg.Err)
			}
		}
	}
	skipped, _ := sel.Skipped()
	for _, site := range skipped {
		fmt.Println("skipped:", site) // the error says where and why
	}
	switch err := sel.HoldsWriters(); {
	case errors.Is(err, syscall.EAGAIN):
		fmt.Println("wait until it is written: a breakpoint could get into other code")
	case err != nil:
		fmt.Println("a process that writes to the file is not held up until it is detached:", err)
	}
}

// Attach a program to the same probes of several processes, each with a cookie.
// The file is read and checked once.
func ExampleManager_Attach_selection() {
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()          // closes the links, too
	defer objs.Close()

	sel, err := usdt.Select(usdt.Target{Path: "/usr/bin/python3"},
		elfnote.Exact("python", "line"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	for _, pid := range []int{1234, 5678} {
		_, err := mgr.Attach(objs.Count, usdt.Target{Selection: sel.ForPID(pid, "")},
			&usdt.AttachOptions{Cookie: uint64(pid)})
		switch {
		case errors.Is(err, proc.ErrGone):
			log.Printf("process %d has exited meanwhile", pid)
		case errors.Is(err, usdt.ErrNotStarted):
			log.Printf("process %d is still starting: try again later", pid)
		case err != nil:
			log.Fatal(err)
		}
	}
}

// The features of the kernel decide how programs are attached.
func ExampleMode_Resolve() {
	mode, err := usdt.ModeAuto.Resolve()
	if errors.Is(err, os.ErrPermission) {
		log.Fatal("run it as root")
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("programs are attached in the mode", mode)
	if _, err := usdt.ModeSingle.Resolve(); errors.Is(err, errors.ErrUnsupported) {
		fmt.Println(err)
	}
}

// Have a program go on when this one has ended.
func ExampleLink_Links() {
	var lnk *usdt.Link // by Manager.Attach
	links, err := lnk.Links()
	if err != nil {
		log.Fatal(err) // by perf events, see Mode
	}
	for i, kernel := range links { // one, for up to a million sites
		if err := kernel.Pin(fmt.Sprintf("/sys/fs/bpf/throws-%d", i)); err != nil {
			log.Fatal(err)
		}
	}
}

// A file that is written to is detached before, so that the breakpoints do not
// get into other code. Attach to it again once it has been written.
func ExampleLink_Done() {
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()
	defer objs.Close()
	for {
		lnk, err := mgr.Attach(objs.Count, usdt.Target{Path: "/opt/server"}, nil)
		if err != nil {
			fmt.Println(err) // perhaps only a part of it has been written
			time.Sleep(time.Second)
			continue
		}
		<-lnk.Done()
		if !errors.Is(lnk.Err(), usdt.ErrWritten) {
			return
		}
	}
}

// Tell a missing probe from other errors.
func ExampleNotFoundError() {
	sel, err := usdt.Select(usdt.Target{Path: "/usr/bin/python3"},
		elfnote.MustParsePattern("python:function__*"))
	var notFound *usdt.NotFoundError
	switch {
	case errors.As(err, &notFound):
		for _, probe := range notFound.Probes {
			fmt.Printf("there is no such probe, but %s:%s\n", probe.Provider, probe.Name)
		}
	case err != nil:
		fmt.Println(err)
	default:
		defer sel.Close()
		fmt.Println(len(sel.Sites()), "sites can be attached")
	}
}

// Room for many probes that all have different arguments, on any kernel.
func ExampleNewManager() {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{
		Mode:     usdt.ModeAuto,
		MaxSpecs: 4096,
		Programs: []string{"count"}, // with any section
	})
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
}

// The types that bpf2go generates have these names in the examples.
type (
	tracerObjects struct {
		Count *ebpf.Program `ebpf:"count"`
		Hits  *ebpf.Map     `ebpf:"hits"`
	}
	tracerHit = testbpf.CountsHit
)

func loadTracer() (*ebpf.CollectionSpec, error) { return testbpf.LoadCounts() }

func (o *tracerObjects) Close() {
	o.Count.Close()
	o.Hits.Close()
}

// loadExample is the beginning of the package's example.
func loadExample() (*usdt.Manager, *tracerObjects) {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		log.Fatal(err)
	}
	objs := &tracerObjects{}
	if err := spec.LoadAndAssign(objs, mgr.CollectionOptions()); err != nil {
		log.Fatal(err)
	}
	return mgr, objs
}

// The examples do what they say, with a C++ program that throws.
func TestExamples(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.NoGuest(t, "it has no /etc/ld.so.cache, by which a library is found by its name")
	testneeds.Kernel(t, "5.15", "BPF cookies on uprobes, to attach a library for every process")
	throw := testprog.StartThrow(t)
	for _, tc := range []struct {
		name    string
		example func()
		during  string // a line that is printed while the example runs, "" to wait for none
		meet    func() // what happens then
		want    string
	}{
		{"package", Example, "attached to ", func() { throw.Do("throw") }, "exceptions\n"},
		{"Manager.Attach", ExampleManager_Attach, "", nil,
			"libstdcxx:rethrow is attached with cookie 3\n"},
		{"Select", ExampleSelect, "", nil, "libstdcxx:throw can be attached at 0x"},
		{"Mode_Resolve", ExampleMode_Resolve, "", nil, "programs are attached in the mode "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			printed := testprog.Printed(t, tc.example, tc.during, tc.meet)
			qt.Check(t, qt.StringContains(printed, tc.want))
		})
	}
}

// A program that reads arguments with code of its own gets a number for each
// site, here an index into a table that the agent has filled.
func ExampleSelection_AttachRaw() {
	var objs struct{ Generic *ebpf.Program } // loaded by the agent, for perf events or uprobe_multi links
	var configs *ebpf.Map                    // its table: an event_config for each index
	type eventConfig struct {
		Kind     [5]uint8 // 0: the program reports that it cannot read the argument
		Register [5]int16 // -1 for none
		Value    [5]uint64
	}
	sel, err := usdt.Select(usdt.Target{Path: "/usr/sbin/app"}, elfnote.Exact("app", "request"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	var cookies []uint64
	for i, site := range sel.Sites() {
		var config eventConfig
		for n, arg := range site.Args[:min(len(site.Args), len(config.Value))] {
			where, err := arg.Encode(elf.EM_X86_64)
			if err != nil || arg.Err != nil || where.Index >= 0 || where.Shift != 0 || arg.Address32 {
				log.Printf("argument %d cannot be read: %v", n, arg) // the others can
				continue
			}
			config.Kind[n], config.Register[n], config.Value[n] = uint8(arg.Kind), where.Register, where.Value
		}
		if err := configs.Put(uint32(i), config); err != nil {
			log.Fatal(err)
		}
		cookies = append(cookies, uint64(i))
	}
	link, err := sel.AttachRaw(objs.Generic, cookies)
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
}

// A profiler's program decides about a hit, and calls the profiler's unwinder.
// Its array of programs has those of perf events: so has this one.
func ExampleSelection_AttachRaw_tailCall() {
	var unwinders *ebpf.Map // the profiler's array of programs
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{ // R1 is the context
			asm.LoadMapPtr(asm.R2, unwinders.FD()),
			asm.Mov.Imm(asm.R3, 0), // the first unwinder
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0), asm.Return(),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer program.Close()
	sel, err := usdt.Select(usdt.Target{Path: "/usr/lib/libjemalloc.so.2"},
		elfnote.MustParsePattern("otel_memory:*"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	link, err := sel.AttachRaw(program, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
}
