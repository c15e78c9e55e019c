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

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
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

	w, err := watch.New(mgr, nil, func(changes *watch.Changes[*watch.Attachment]) {
		for _, a := range changes.Attached {
			fmt.Printf("attached to %q\n", a)
			if a.Process.PID != 0 {
				fmt.Printf("of process %d alone\n", a.Process.PID)
			}
		}
		for _, a := range changes.Detached {
			fmt.Printf("detached from %q\n", a)
		}
		for _, err := range changes.Errors {
			log.Print(err)
		}
	}, watch.Program{
		Program:  objs.Count,
		Patterns: []elfnote.Pattern{elfnote.Exact("libstdcxx", "throw")},
	})
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

	w, err := watch.New(mgr, &watch.Options{
		PerProcess: true,
		Filter: func(p proc.Process) bool {
			return p.Command == "postgres"
		},
	}, nil, watch.Program{
		Program:  objs.Count,
		Patterns: []elfnote.Pattern{elfnote.MustParsePattern("postgresql:query__*")},
		OptionsFor: func(pair *proc.ProcessFile) usdt.AttachOptions {
			return usdt.AttachOptions{Cookie: pair.Process.StartTime}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.SyncAll(context.Background()); err != nil { // the processes that there are now
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
	w, err := watch.New(mgr, opts, func(changes *watch.Changes[*watch.Attachment]) {
		for _, err := range changes.Errors {
			log.Print(err) // what is over a limit, for example
		}
	}, watch.Program{Program: objs.Count})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.SyncAll(context.Background()); err != nil {
		log.Fatal(err)
	}
	stats := w.Stats()
	fmt.Printf("%d sites are attached, %d files are over a limit\n", stats.Sites, stats.OverLimit)
}

// counted attaches a program that reads no arguments, and needs no Manager.
type counted struct{ program *ebpf.Program }

func (c counted) AttachPart(
	_ int, sites *usdt.Selection, found *proc.ProcessFile, _ proc.Process,
) (*usdt.Link, error) {
	fmt.Printf("attaching to %q\n", found.Path)
	return sites.AttachRaw(c.program, nil)
}

func (c counted) Descriptors(l *usdt.Link) int { return 1 + 2*l.PerfEvents() }

func (c counted) Detach(links []*usdt.Link) (err error) {
	for _, l := range links {
		err = errors.Join(err, l.Close())
	}
	return err
}

func (c counted) Explain(_ int, err *watch.Error) error { return err }

func (c counted) Closed() {}

// Count how often programs throw, with a program that needs no Manager.
func ExampleOf() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()
	var attacher watch.Attacher[*usdt.Link] = counted{objs.Count}
	w, err := watch.Of(nil, nil, attacher, []elfnote.Pattern{elfnote.Exact("libstdcxx", "throw")})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.SyncAll(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Watch one process, and print the programs and files that are attached.
func ExampleWatch() {
	mgr, objs := loadExample() // as in the example of package usdt
	defer mgr.Close()
	defer objs.Close()

	names := map[*ebpf.Program]string{objs.Count: "count"}
	w, err := watch.New(mgr, &watch.Options{
		Filter: func(p proc.Process) bool { return p.PID == os.Getpid() },
		Linger: time.Minute, // a program that starts once a minute stays attached
	}, func(changes *watch.Changes[*watch.Attachment]) {
		for _, a := range changes.Attached {
			fmt.Printf("%s is attached to %q\n", names[a.Link.Program()], a.Path)
		}
		for _, err := range changes.Errors {
			log.Printf("%q", err) // paths are arbitrary bytes
		}
	}, watch.Program{Program: objs.Count,
		Patterns: []elfnote.Pattern{elfnote.MustParsePattern("libc:*")}})
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

	w, err := watch.New(mgr, &watch.Options{Proc: "/host/proc"}, nil, watch.Program{
		Program:  objs.Count,
		Patterns: []elfnote.Pattern{elfnote.Exact("libstdcxx", "throw")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.SyncAll(context.Background()); err != nil {
		log.Print(err)
	}
	for _, a := range w.Attachments() {
		fmt.Println(a.Path, a.Link)
	}
}
