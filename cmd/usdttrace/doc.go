// SPDX-License-Identifier: BSD-2-Clause

// Command usdttrace watches USDT probes fire.
//
//	usdttrace [FLAGS] [-p PID | -a | -c COMMAND] [FILE|LIBRARY...] PATTERN...
//
// It prints one line for each hit, or with --count, --sum, --hist and --latency
// what the hits come to, computed in the kernel. It needs no C compiler, no
// kernel headers and no BTF, but the privileges to load eBPF programs.
// `usdttrace -h` explains the flags.
//
// # What is attached when
//
// A FILE is attached once for all processes, or for the one of -p, when
// usdttrace begins. With -p and -a, files are attached as processes map them: a
// library that is loaded later some 20 milliseconds after it was mapped. With
// -c the command waits before the first instruction of each program that it
// executes, until that and the libraries that it is linked with are attached;
// what it loads by itself (dlopen), and what its descendants run, is attached
// some 20 milliseconds later: descendants that live shorter are missed. To miss
// nothing of what the command's own process loads, name the FILE: then it is
// attached before the command begins, but for that process only. To miss
// nothing of its descendants, watch the FILE without -c, and run the command
// beside.
//
// The command is a tracee (ptrace) of usdttrace, so that it cannot be debugged
// at the same time, until it is suspended by a signal for the first time. If
// the tracing ends before the command, by Ctrl-C, --duration or --max-events,
// the command is ended by SIGTERM.
//
// SIGINT, SIGTERM and SIGHUP end the tracing: everything is detached, and what
// hits came to is printed. Further signals within a second are taken to be the
// same one; a later one ends usdttrace as it is. What is measured, and
// --duration, begin when everything that is there at first is attached.
//
// PIDs and TIDs, that of -p, those shown and those compared, are of usdttrace's
// own PID namespace. Where that is not the initial one, processes of other
// namespaces, also of containers within it, have 0, and their stacks have no
// names.
//
// --pprof opens its file first, so that a wrong path is told before anything is
// watched; what the file contained is replaced at the end.
//
// # Stacks
//
// With --stack and --pprof, each event brings the registers and a copy of the
// user stack, 16 kB of it or what there is, and usdttrace finds the callers
// itself: by the tables that compilers write into programs for exceptions
// (.eh_frame), and in code that has none, as C on riscv64 often has, by frame
// pointers. So there are the callers of code that was built without frame
// pointers, too, as most distributions' is. The stack ends early where it is
// larger than the copy (--unwind dwarf:SIZE), where a process has ended before
// it was looked at, and in code that is in no file and has no frame pointers.
// It is for x86-64, arm64, riscv64 and s390x. Stacks of 32-bit programs are
// always walked by the kernel. Functions of C++ and Rust are named as in their
// source, without parameters; JSON and profiles have the symbols as they are.
//
// That costs the traced program some microseconds more for each hit. Each event
// takes as much room in the ring buffer as is to be copied at most, so that it
// has 32 MiB then, and events are lost where tens of thousands come in a
// second: the summary says how many, and a profile is one of those that came.
//
// --unwind fp has the kernel walk the stack by frame pointers, and count stacks
// for --pprof, so that none is lost. Of code that was built without frame
// pointers there is the innermost function and then, by chance, nothing or
// something that is not a caller. On s390x that needs Linux 6.7. So it is in
// any case with --by stack, and for profiles with --latency, with sums of more
// than an argument, and by other keys than arguments, comm, pid, tid, cpu and
// probe.
//
// # From the flags to what is printed
//
//	flags.go              the command line
//	run.go                one run, from its beginning to its end
//	session.go              the trace.Session that the flags ask for,
//	aggregations.go         and what it computes in the kernel
//	attach_files.go       what is attached: files that are named,
//	attach_processes.go     what processes map, as they come and go,
//	attach_command.go       what a command runs,
//	command_linux.go        which waits meanwhile
//	watched.go            what is or was watched,
//	not_watched.go          and what matched nothing or was skipped
//	list.go               or what would be attached is listed (-l), by print_sites.go
//	collect.go            events and rows are taken as they come, and
//	print.go                printed:
//	print_events.go           a line for each hit,
//	print_rows.go             a table of what hits come to,
//	print_histogram.go        or distributions,
//	print_json.go             or all as JSON
//	stacks.go             where stacks come from, and pprof.go, samples.go
//	ending.go             what ends the tracing, and with which error
//	summary.go            what it all came to, with costs.go
//	output_file.go        where that goes with --output and --pprof
//
// # JSON
//
// With --json there is one object on each line of standard output. An event is
//
//	{"type":"event","time":"2026-01-02T15:04:05.123456789Z","monotonic_ns":1,"pid":1,"tid":1,"command":"postgres",
//	 "cpu":0,"provider":"postgresql","name":"query__start","file":"/usr/...","location":4096,
//	 "args":[{"value":94,"text":"SELECT 1","truncated":false}],
//	 "stack":[{"address":94,"function":"exec_simple_query","offset":12,"file":"/usr/...","file_offset":4096}]}
//
// where an argument has "value", a number (null where it is not to be had),
// "text" and "truncated" where --str asks for the text behind a pointer,
// "bytes" in hexadecimal and "truncated" for --bytes, "data_unreadable" where
// the pointer leads nowhere, "unavailable" or "unreadable" with true where
// there is no value. 64-bit integers are written in full: read them with a
// parser that does not round. "location" is the address of the site in the
// file. "stack" is there with --stack only, the innermost function first;
// "function" with "offset", and "file" with "file_offset", are left out where
// they are not known.
//
// With -l there is an object for each site that would be watched, with the
// types of its arguments:
//
//	{"type":"site","provider":"postgresql","name":"query__start","file":"/usr/...","location":4096,
//	 "args":["8 unsigned"]}
//
// What hits come to is
//
//	{"type":"row","aggregation":"count","time":"...","keys":{"probe":"postgresql:query__start"},"count":3,
//	 "sum":1,"average":1.0,"min":1,"max":1,"buckets":[{"low":1,"high":1,"count":3}]}
//
// with "sum", "average", "min", "max" and "buckets" where they were asked for.
// "aggregation" is "count", "sum", "hist" or "latency"; the values of the
// latter are nanoseconds. A key "stack" is like that of an event. The bounds of
// buckets are inclusive. The last line is
//
//	{"type":"summary","events":3,"lost":0,"lost_keys":0,"lost_unreadable":0,"lost_starts":0,"unmatched":0,"sites":12,
//	 "mode":"multi+cookie","seconds":1.5,"frames":9,"unnamed_frames":1,
//	 "programs":[{"name":"postg_query","runs":3,"ns_per_run":1500,"missed":0,"instructions":70}],
//	 "program_bytes":4096,"map_bytes":8388608}
//
// with the last three for --stats only. "events" is how many hits were printed,
// or aggregated; "frames" is how many functions on stacks were to be named, and
// is there with stacks only.
//
// Texts that are not UTF-8 have U+FFFD in the place of what is not, and a
// second member whose name ends in "_hex" with all bytes in hexadecimal.
package main
