// SPDX-License-Identifier: BSD-2-Clause

// Package watch keeps BPF programs attached to probes in all processes that
// come and go.
//
// [New] does it for the programs of a usdt.Manager: each [Program] is attached
// to the probes that match its patterns, in every file that a process maps.
// Package trace does it for its sessions. [Of] is for what attaches by other
// means.
//
//	w, err := watch.New(mgr, nil, report, watch.Program{
//		Program:  objs.OnQuery,
//		Patterns: []elfnote.Pattern{elfnote.Exact("postgresql", "query__start")},
//	})
//	defer w.Close()
//	err = w.Run(ctx, 5*time.Second)
//
// A file is attached once, however many processes map it, and detached when the
// last of them has ended; [Options].PerProcess attaches to each process alone.
// What could not be attached is in [Changes].Errors, and is tried again when
// there may be room, time or an answer. [Limits] bound what is attached, shared
// out between containers and users, because anyone can map files with many
// probes.
//
// A file that is written to is detached first, and attached again when that is
// over. Package proc says which processes are noticed, and how soon.
package watch
