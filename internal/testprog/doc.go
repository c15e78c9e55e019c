// SPDX-License-Identifier: BSD-2-Clause

// Package testprog gives tests something to trace.
//
// The traced programs are the C sources in testdata/. [Path] builds them with
// make, once for a test process however many tests ask, and returns where they
// are; [CrossPath] does so for another machine. [Start] runs one and talks to
// it:
//
//	p := testprog.Start(t, "target-pie")
//	p.Fire("three", 2)         // passes the probe three twice
//	p.Semaphore("counted")     // what the program itself sees in the semaphore
//
// The values that the programs pass are fixed. [Expected] lists them, probe by
// probe, as a tracer has to report them: a test compares every value of every
// argument, not just that something fired.
//
// Other software with probes is here too: [StartPostgres], [StartPython] and
// [StartThrow].
//
// # What skips and what fails
//
// A test that needs a privilege or a tool asks for it ([RequireBPF], [Path])
// and is skipped, with the reason, where it is missing, or fails where
// continuous integration should have it: see package testneeds.
//
// # Without a compiler
//
// In a guest that has neither make nor gcc, the environment variable
// GOUSDT_TESTDATA names a folder with programs built elsewhere, laid out as
// testdata/build is: a folder per machine, by Go's name of it, with the
// programs in it.
package testprog
