// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// Keep a program attached to the exceptions of all C++ programs, with any copy
// of the library, also in containers, until interrupted.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	w, err := watch.New(nil, func(changes *watch.Changes[*usdt.Link]) {
		for _, a := range changes.Attached {
			fmt.Printf("attached to %q\n", a.Selection().Name())
		}
		for _, a := range changes.Detached {
			fmt.Printf("detached from %q\n", a.Selection().Name())
		}
		for _, err := range changes.Errors {
			log.Print(err)
		}
	}, watch.Program(mgr, objs.Count, elfnote.Exact("libstdcxx", "throw")))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Run(ctx, 5*time.Second); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// The same program for each process of a service, with the start of the process
// as cookie: a PID may be used again.
func ExampleProgram() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	queries := watch.Program(mgr, objs.Count, elfnote.MustParsePattern("postgresql:query__*"))
	queries.OptionsFor = func(pair *proc.ProcessFile) usdt.AttachOptions {
		return usdt.AttachOptions{Cookie: pair.Process.StartTime}
	}
	w, err := watch.New(&watch.Options{
		PerProcess: true,
		Filter: func(p proc.Process) bool {
			return p.Command == "postgres"
		},
	}, nil, queries)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil { // the processes that there are now
		log.Fatal(err)
	}
	stats := w.Stats()
	fmt.Printf("%d sites after %d scans of all processes\n", stats.Sites, stats.Passes)
	if stats.Denied+stats.Blocked+stats.Postponed > 0 {
		fmt.Printf("%d processes may not be scanned, %d do not answer, %d are busy\n",
			stats.Denied, stats.Blocked, stats.Postponed)
	}
}

// Lower limits for a host on which any user may start containers, and a line
// when something exceeds them.
func ExampleLimits() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	opts := &watch.Options{}
	opts.Limits.FileSites, opts.Limits.OwnerSites = 2_000, 10_000
	w, err := watch.New(opts, func(changes *watch.Changes[*usdt.Link]) {
		for _, err := range changes.Errors {
			log.Print(err) // what is over a limit, for example
		}
	}, watch.Program(mgr, objs.Count))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil {
		log.Fatal(err)
	}
	stats := w.Stats()
	fmt.Printf("%d sites are attached, %d files are over a limit\n", stats.Sites, stats.OverLimit)
}

// Count how often programs throw, with a program that needs no Manager.
func ExamplePart() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()
	w, err := watch.New(nil, nil, watch.Part[*usdt.Link]{
		Patterns: []elfnote.Pattern{elfnote.Exact("libstdcxx", "throw")},
		Attach: func(
			found *proc.ProcessFile, sites *usdt.Selection, _ *usdt.AttachOptions,
		) (*usdt.Link, error) {
			fmt.Printf("attaching to %q\n", found.Path)
			return sites.AttachRaw(objs.Count, nil)
		},
		Detach: func(links []*usdt.Link) (err error) {
			for _, l := range links {
				err = errors.Join(err, l.Close())
			}
			return err
		},
		Descriptors: func(l *usdt.Link) int { return 1 + 2*l.PerfEvents() },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil {
		log.Fatal(err)
	}
}

// Watch one process, and print the programs and files that are attached.
func ExampleWatch() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	w, err := watch.New(&watch.Options{
		Filter: func(p proc.Process) bool { return p.PID == os.Getpid() },
		Linger: time.Minute, // a program that starts once a minute stays attached
	}, func(changes *watch.Changes[*usdt.Link]) {
		for _, a := range changes.Attached {
			fmt.Printf("attached to %d sites of %q\n", len(a.Selection().Sites()), a.Selection().Name())
		}
		for _, err := range changes.Errors {
			log.Printf("%q", err) // paths are arbitrary bytes
		}
	}, watch.Program(mgr, objs.Count, elfnote.MustParsePattern("libc:*")))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), os.Getpid()); err != nil { // this process alone
		log.Fatal(err)
	}
	fmt.Println(w.Stats().Waiting, "files wait for their turn")
}

// An agent in a container that has the proc file system of its host mounted.
func ExampleOptions() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	w, err := watch.New(&watch.Options{Proc: "/host/proc"}, nil,
		watch.Program(mgr, objs.Count, elfnote.Exact("libstdcxx", "throw")))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil {
		log.Print(err)
	}
	fmt.Println(w.Stats().Sites, "sites are attached")
}
