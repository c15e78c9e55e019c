// SPDX-License-Identifier: BSD-2-Clause

package proc_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
)

// The processes that have memory probes, as they come and go.
func ExampleWatcher() {
	w := proc.NewWatcher(&proc.WatcherOptions{
		Handler: func(changes *proc.Changes) {
			for _, pair := range changes.Appeared {
				fmt.Printf("process %s executes %s\n", pair.Process, pair.Path)
			}
			for _, pair := range changes.Disappeared {
				fmt.Printf("process %s executes %s no more\n", pair.Process, pair.Path)
			}
			for _, err := range changes.Errors {
				log.Print(err)
			}
		},
	}, elfnote.MustParsePattern("otel_memory:*"))
	defer w.Close()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := w.Run(ctx, 10*time.Second); err != nil {
		log.Fatal(err)
	}
}

// The processes of containers, and of these only those that run Python.
func ExampleWatcherOptions_filter() {
	options := &proc.WatcherOptions{
		Filter: func(p proc.Process) bool {
			cgroup, err := p.Cgroup()
			if err != nil || !strings.Contains(cgroup, "kubepods") {
				return false
			}
			program, err := p.Executable() // as the process itself sees it
			return err == nil && strings.HasPrefix(program, "/usr/bin/python3")
		},
		Handler: func(changes *proc.Changes) {
			for _, pair := range changes.Appeared {
				fmt.Println(pair.Process, pair.Path)
			}
		},
	}
	w := proc.NewWatcher(options, elfnote.MustParsePattern("python:*"))
	defer w.Close()
	if err := w.SyncAll(); err != nil {
		log.Fatal(err)
	}
}

// How many processes a watcher knows, and whether the kernel helps it.
func ExampleWatcher_Stats() {
	w := proc.NewWatcher(nil, elfnote.MustParsePattern("python:*"))
	defer w.Close()
	go w.Run(context.Background(), time.Minute)

	stats := w.Stats()
	fmt.Printf("%d of %d processes map %d files with such probes\n", stats.ProcessFiles,
		stats.Processes, stats.Files)
	fmt.Printf("%d processes are wanted; %d do not answer, %d are busy\n", stats.Wanted,
		stats.Blocked, stats.Postponed)
	fmt.Printf("%d scans of all processes, %d because events were lost\n", stats.Passes, stats.Lost)
	if stats.EventsError != nil {
		fmt.Println("new processes are found once a minute:", stats.EventsError)
	}
}

// The libraries that a process has loaded.
func ExampleFS_Files() {
	files, err := proc.NewFS("").Files(os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range files {
		fmt.Printf("%s at %#x\n", m.Path, m.Mappings[0].Start)
	}
}

// The probes of libc in this process.
func ExampleCache() {
	cache := proc.NewCache(nil)
	files, err := proc.NewFS("").Files(os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	pattern := elfnote.MustParsePattern("libc:*")
	for _, m := range files {
		file, ok, err := cache.Acquire(m, pattern)
		if err != nil {
			log.Print(err) // the others can be read all the same
			continue
		}
		if !ok {
			continue // none of its probes matches
		}
		listing, err := file.ELF().Probes(pattern)
		file.Release()
		if err != nil {
			log.Print(err)
			continue
		}
		for _, probe := range listing.Probes {
			fmt.Printf("%s: %s:%s\n", m.Path, probe.Provider, probe.Name)
		}
	}
}

// A cache that two watchers share, for files that are read by other means than
// the file system's.
func ExampleNewCache() {
	cache := proc.NewCache(func(file *proc.MappedFile) (io.ReaderAt, error) {
		if strings.HasPrefix(file.Path, "/archive/") {
			return nil, fmt.Errorf("%s is not to be read", file.Path)
		}
		return file.Open()
	})
	python := proc.NewWatcher(&proc.WatcherOptions{Cache: cache},
		elfnote.MustParsePattern("python:*"))
	defer python.Close()
	libc := proc.NewWatcher(&proc.WatcherOptions{Cache: cache}, elfnote.MustParsePattern("libc:*"))
	defer libc.Close()
	for _, w := range []*proc.Watcher{python, libc} {
		if err := w.SyncAll(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Stats().ProcessFiles)
	}
}
