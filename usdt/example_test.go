// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
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
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		log.Fatal(err)
	}
	defer objs.Close()

	target := usdt.Target{Path: "libstdc++.so.6"} // in every process; a PID restricts it to one
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

	target := usdt.Target{Path: "libstdc++.so.6"}
	number := map[string]uint64{"throw": 1, "catch": 2, "rethrow": 3}
	options := &usdt.AttachOptions{
		SiteCookie: func(site usdt.Site) uint64 { return number[site.Name] },
	}
	lnk, err := mgr.Attach(objs.Count, target, options, elfnote.MustParsePattern("libstdcxx:*"))
	var notFound *usdt.NotFoundError
	switch {
	case errors.As(err, &notFound):
		log.Fatalf("no such probe; did you mean one of %v?", notFound.Nearest)
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
	sel, err := usdt.Select(usdt.Target{Path: "libstdc++.so.6"},
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
		_, err := mgr.Attach(objs.Count, usdt.Target{Selection: sel.ForPID(pid)},
			&usdt.AttachOptions{Cookie: uint64(pid)})
		switch {
		case errors.Is(err, proc.ErrGone):
			log.Printf("process %d has exited meanwhile", pid)
		case err != nil:
			log.Fatal(err)
		}
	}
}

// Keep a program attached to the exceptions of all C++ programs, with any copy
// of the library, also in containers, until interrupted.
func ExampleManager_Watch() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()
	defer objs.Close()

	watch, err := mgr.Watch(nil, func(changes *usdt.WatchChanges[*usdt.Link]) {
		for _, lnk := range changes.Attached {
			fmt.Printf("attached to %q\n", lnk)
			if process := lnk.Process(); process.PID != 0 {
				fmt.Printf("of process %d alone\n", process.PID)
			}
		}
		for _, lnk := range changes.Detached {
			fmt.Printf("detached from %q\n", lnk)
		}
		for _, err := range changes.Errors {
			log.Print(err)
		}
	}, usdt.WatchProgram{
		Program:  objs.Count,
		Patterns: []elfnote.Pattern{elfnote.Exact("libstdcxx", "throw")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	if err := watch.Run(ctx, 5*time.Second); err != nil {
		log.Fatal(err)
	}
}

// The same program for each process of a service, with the start of the process
// as cookie: a PID may be used again.
func ExampleWatchProgram() {
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()
	defer objs.Close()

	watch, err := mgr.Watch(&usdt.WatchOptions{
		PerProcess: true,
		Filter: func(p proc.Process) bool {
			return p.Command == "postgres"
		},
	}, nil, usdt.WatchProgram{
		Program:  objs.Count,
		Patterns: []elfnote.Pattern{elfnote.MustParsePattern("postgresql:query__*")},
		OptionsFor: func(pair *proc.ProcessFile) usdt.AttachOptions {
			return usdt.AttachOptions{Cookie: pair.Process.StartTime}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	if err := watch.SyncAll(); err != nil { // the processes that there are now
		log.Fatal(err)
	}
	stats := watch.Stats()
	fmt.Printf("%d sites after %d scans of all processes\n", stats.Sites, stats.Passes)
	if stats.Denied+stats.Blocked+stats.Postponed > 0 {
		fmt.Printf("%d processes may not be scanned, %d do not answer, %d are busy\n",
			stats.Denied, stats.Blocked, stats.Postponed)
	}
}

// Lower limits for a host on which any user may start containers, and a line
// when something exceeds them.
func ExampleWatchOptions_limits() {
	mgr, objs := loadExample() // as in the example of the package
	defer mgr.Close()
	defer objs.Close()

	opts := &usdt.WatchOptions{}
	opts.Limits.FileSites, opts.Limits.OwnerSites = 2_000, 10_000
	watch, err := mgr.Watch(opts, func(changes *usdt.WatchChanges[*usdt.Link]) {
		for _, err := range changes.Errors {
			log.Print(err) // what is over a limit, for example
		}
	}, usdt.WatchProgram{Program: objs.Count})
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	if err := watch.SyncAll(); err != nil {
		log.Fatal(err)
	}
	stats := watch.Stats()
	fmt.Printf("%d sites are attached, %d files are over a limit\n", stats.Sites, stats.OverLimit)
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

// Load an object that was compiled for libbpf, and attach its programs to the
// probes that their sections name.
func ExampleLoadCollectionSpec() {
	spec, err := usdt.LoadCollectionSpec("probes.bpf.o")
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
	coll, err := ebpf.NewCollectionWithOptions(spec, *mgr.CollectionOptions())
	if err != nil {
		log.Fatal(err)
	}
	defer coll.Close()
	links, err := mgr.AttachSections(coll, usdt.Target{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, lnk := range links {
		fmt.Println("attached to", lnk)
	}
}

// Have programs made for the sites that they are attached to, so that reading
// arguments takes next to no time.
func ExampleLink_Specialised() {
	spec, err := loadTracer()
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := usdt.NewManager(spec, &usdt.ManagerOptions{Specialise: true})
	if err != nil {
		log.Fatal(err)
	}
	defer mgr.Close()
	var objs tracerObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		log.Fatal(err)
	}
	defer objs.Close()

	lnk, err := mgr.Attach(objs.Count, usdt.Target{Path: "libstdc++.so.6"}, nil,
		elfnote.Exact("libstdcxx", "throw"))
	if err != nil {
		log.Fatal(err)
	}
	defer lnk.Close()
	if specialised, reason := lnk.Specialised(); !specialised {
		fmt.Println("the program itself is attached:", reason)
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
