// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Bench measures this module and other tools that do the same work, on the same
// machine in the same run.
//
//	make -C bench          # as root: everything, and writes the results into docs/performance.md
//	make -C bench quick    # the same in a tenth of the time, printed only
//	make -C bench smoke    # everything once, to see that it works: CI runs it
//
//	cd bench && go run . -run 'attach/|list/'    # some of it
//
// Compared with: libbpf, libelf, debug/elf, readelf, bpftrace, bcc, and the
// floors: the system calls that nobody can do without, made with everything
// prepared. What is not installed is named as not run.
//
// docs/performance.md tells how to read the results.
//
// # From a row to a line of the report
//
//	row.go         a row: some work, who does it, and the goals
//	env.go         what rows share: synthetic files, programs of peers/, what is closed at the end
//	programs.go    BPF programs, loaded by this module and by libbpf; primer.go takes the times of attaching them
//	main.go        runs the rows that are asked for
//	rest.go        waits until the machine is at rest
//	report.go      prints what came out; markdown.go writes it into docs/performance.md
//	machine.go     the machine and the versions
//
// The rows:
//
//	list.go        listing the probes of a file, in process
//	tool.go        listing by a whole process: usdtlist, readelf, bpftrace, tplist
//	attach.go      attaching 1 to 10,000 sites (raw.go: the system calls alone)
//	detach.go      detaching: a hundred links, perf events (tracefs.go: one event of many sites)
//	jvm.go         all probes of a program that has 500
//	hit.go         one hit (tracers.go: who is attached to what; generated.go: by package trace)
//	deliver.go     events on their way to a Go program (ringfloor.go: the floor;
//	               oneprocessor.go: where they are sent and read)
//	lossless.go    how fast they may come (rings.go: from several processors)
//	watch.go       following thousands of processes
//	exec.go        how soon the events of a new process come
//	growth.go      how all of these grow
//	memory.go      what is held in memory
//	size.go        how large the commands are, and what of
//
// internal/compare takes the turns and computes the ratios, internal/synth
// writes the files, internal/peer runs the programs of peers/, which are in C
// and Python.
package main
