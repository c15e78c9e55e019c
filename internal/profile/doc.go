// SPDX-License-Identifier: BSD-2-Clause

// Package profile names the functions of user stacks, and writes them as
// profiles for pprof.
//
// A stack from the kernel is a list of addresses, which mean something only
// together with what the process has mapped, and that is gone when the process
// has ended. So [Processes] remembers it: it is told of processes while they
// run (Look), and answers afterwards (Frames).
//
//	processes := profile.NewProcesses(proc.NewFS(""))
//	defer processes.Close()
//	processes.Look(pid)
//	...
//	for _, frame := range processes.Frames(pid, stack) { ... }
//
// The names are those of the ELF symbol tables of the mapped files, and of
// their separate debug files where these are installed. Code that is in no
// file, as JIT compilers make it, has none. Names of C++ and Rust functions
// stay mangled: pprof unmangles them.
//
// A [Builder] collects stacks with values, and writes a profile that go tool
// pprof opens.
package profile
