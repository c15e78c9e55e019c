// SPDX-License-Identifier: BSD-2-Clause

// Package stack names the functions on the stacks of processes, finds the
// callers of functions that were built without frame pointers, and writes
// profiles for go tool pprof.
//
// A stack as the kernel gives it, in a trace.Event or in a BPF map, is a list
// of addresses. Only the files that the process has mapped give them a meaning,
// and the process may end at any time. So a [Symbolizer] remembers processes:
// call [Symbolizer.Remember] once for each process while it runs, and
// [Symbolizer.Frames] at any time. Remember scans the mappings of the process,
// so call it for a new PID, not for each event.
//
//	symbolizer := stack.NewSymbolizer("")
//	defer symbolizer.Close()
//	known := make(map[int]bool)
//	for event, err := range session.Events(ctx) {
//		...
//		if !known[event.PID] {
//			known[event.PID] = true
//			symbolizer.Remember(event.PID)
//		}
//		for _, frame := range symbolizer.Frames(ctx, event.PID, event.Stack) {
//			fmt.Println(frame)
//		}
//	}
//
// The names come from the symbol tables of the mapped files, and of their
// separate debug files where these are installed, else from MiniDebugInfo,
// which Fedora and others leave in stripped files. Go programs keep names and
// lines for their runtime (.gopclntab), also stripped ones.
// [Symbolizer].DebugFile can fetch debug files that are not installed. Names
// stay known after the process has ended or the file was deleted. Names of C++
// and Rust functions are mangled, as they are in the file: pprof makes them
// readable.
//
// Code that a process has made at run time, as JIT compilers do, has its names
// from /tmp/perf-PID.map, which the process writes in the format of Linux'
// perf. Node writes it with --perf-basic-prof and
// --interpreted-frames-native-stack. Java that was started with
// -XX:+PreserveFramePointer writes it on jcmd PID Compiler.perfmap. A profile
// also takes names that are written after a hit, as long as the process runs.
// Frames without a name are counted, see [Counts].
//
// # Programs without frame pointers
//
// The kernel walks user stacks by frame pointers. A program that was built
// without them has a stack of one frame, or wrong ones. [Symbolizer.Unwind]
// walks the stack afterwards, by the tables that compilers write for
// exceptions: from the registers and a copy of the stack, which package trace
// delivers for trace.EventOptions.StackCopy.
//
//	addresses := symbolizer.Unwind(ctx, event.PID, event.Registers, event.StackCopy)
//
// # Profiles
//
// A [Profile] collects stacks with values, such as counts or bytes. It is
// written in the format of go tool pprof, as folded stacks, or as a flame
// graph.
//
// The same program is at other addresses in each process. A profile joins
// stacks of the same places. [Symbolizer.Key] is a key of the places for other
// uses.
//
// # Untrusted processes
//
// A process can map any file. Functions of files that are malformed, or made to
// cost time or memory, have no names; nothing panics on such files. There are
// limits for the work of each stack, for the work of all stacks and files of a
// process, and for the memory of all processes together. symbolizer.go has each
// limit with its reason.
package stack
