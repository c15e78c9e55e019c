// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Bench measures this module and other tools that do the same work, on the same
// machine in the same run.
//
//	make -C bench          # as root: everything, and writes the results into docs/measurements.md
//	make -C bench quick    # the same in a tenth of the time, printed only
//	make -C bench smoke    # everything once, to see that it works
//
//	cd bench && go run . -run 'attach/|list/'    # some of it
//
// Compared with: libbpf, libelf, debug/elf, readelf, bpftrace, bcc, and the
// floors: the system calls that no program can do without, made with everything
// prepared. What is not installed is named as not run.
//
// docs/measurements.md tells how to read the results.
//
// # From a row to a line of the report
//
//	main.go        a row: some work, who does it, and the goals; runs those that are asked for
//	env.go         what rows share: synthetic files, programs of peers/, what is closed at the end
//	report.go      waits for a machine at rest, prints what came out, writes docs/measurements.md
//
// The rows:
//
//	list.go        listing the probes of a file, in process and by a command
//	attach.go      attaching to 1 to 10,000 sites, and closing a hundred links together
//	hit.go         one hit, and a call of two (tracers.go: who is attached to what)
//	deliver.go     events on their way to a Go program
//	lossless.go    how fast they may come
//	print.go       events printed by a command
//	watch.go       following thousands of processes
//
// compare.go takes the turns and computes the ratios, synth.go writes the
// files, peer.go runs the programs of peers/, which are in C and Python.
package main
