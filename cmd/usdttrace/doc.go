// SPDX-License-Identifier: BSD-2-Clause

// Command usdttrace watches USDT probes fire.
//
//	usdttrace [FLAGS] [-p PID [-f] | -a] [FILE|LIBRARY...] PATTERN...
//	usdttrace [FLAGS] [FILE|LIBRARY...] PATTERN... -- COMMAND [ARGUMENT...]
//
// It prints a line for each hit, or with --count, --sum, --hist and --latency
// aggregates computed in the kernel. It needs the privileges to load eBPF
// programs, but no C compiler and no kernel headers. Only -f needs BTF.
// `usdttrace --help` explains the flags.
//
// # What is attached when
//
// A FILE is attached once when usdttrace begins, for all processes or for the
// one of -p. With -p and -a, files are attached as processes map them: a
// library that is loaded later, some 20 milliseconds after that.
//
// With -p and -f, files are attached for all processes, and the kernel lets
// through what the process and its descendants hit: a child is hit from its
// fork on. That takes the initial PID namespace, and a kernel with BTF. The
// tracing ends with the process of -p.
//
// The command after -- waits until everything is attached that it is known to
// map: each FILE, or with no FILE the programs that its words name, the
// interpreters of scripts, and the libraries that these are linked with. All of
// it is attached for all processes, and the kernel lets through what the
// command and its descendants hit, as with -f. So a pre-forking server, a
// pipeline and `make -j` are counted exactly, if the programs with the probes
// are named.
//
// What else they map, such as a program that only a script names, or a library
// that is loaded later (dlopen), is attached when the first process maps it,
// and stays so. That takes some milliseconds, whose hits are not seen. The
// summary says so: which file, by which process, and for how long. To miss
// nothing, name the FILE.
//
// In a PID namespace of its own, and on a kernel without BTF, only the command
// itself is watched, and usdttrace says so. The tracing ends with the command,
// though descendants may go on. If it ends before, by Ctrl-C, --duration or
// --max-events, usdttrace ends the command by SIGTERM, says so, and its exit
// status is 128 and the number of a signal: SIGINT for Ctrl-C, else SIGTERM.
//
// In a PID namespace of its own, such as that of a container, -a sees no other
// processes than those of the namespace. It says so, as it does if the kernel
// reports no perf events: then processes are scanned once in a second.
//
// The command has the standard output of usdttrace where this prints nothing
// itself, as with --output and --pprof alone. Otherwise its standard output
// goes to standard error, so that no stream has both.
//
// # When it ends
//
// SIGINT, SIGTERM and SIGHUP end the tracing: everything is detached, and what
// aggregates are printed. Further signals within a second count as the same
// one. A later signal ends usdttrace at once. After SIGTERM, output that nobody
// reads is given up, and the exit status is 2.
//
// Kernels without uprobe_multi links take about 0.1 s to close a perf event,
// one after the other, also those of a process that is killed. A few perf
// events serve hundreds of sites if tracefs is mounted at /sys/kernel/tracing.
// Otherwise each site has its own, and usdttrace says how long detaching takes
// if that is more than a second. What it leaves in tracefs if it is killed is
// removed by its next run, by any program that attaches by package usdt, and by
// usdttrace --cleanup.
//
// The exit status is that of the command, if that ends before the tracing does
// and a probe matched.
//
// What is aggregated, and --duration, begin when everything that is there at
// first is attached, and end before anything is detached: at the same moment
// for all probes, so that their counts can be compared.
//
// The files of --output, --pprof, --folded and --flamegraph are opened first,
// so that a wrong path is an error before anything is watched. Their contents
// are replaced when there is something to write.
//
// # PIDs
//
// All PIDs and TIDs, those of -p and --where and those that are printed, are of
// usdttrace's own PID namespace. If that is not the initial one, processes of
// other namespaces have 0, those of containers within it too, and the functions
// on their stacks have no names.
//
// # What is not printed
//
// Files and processes are untrusted. A provider, a probe's name and a
// function's name are cut at some hundred bytes and then end in "...", in JSON
// too. Of the messages of one kind on standard error, such as those about
// skipped sites, the first 16 are printed; the others are counted, and the
// counts printed at the end.
//
// # Stacks
//
// With --stack, --pprof, --folded and --flamegraph, each event has the
// registers and a copy of the user stack, of up to 16 kB. From these usdttrace
// finds the callers by the tables that compilers write into programs for
// exceptions (.eh_frame), so also in code that was built without frame
// pointers, as in most distributions. Code without such tables, such as C often
// is on riscv64, is unwound by frame pointers.
//
// A stack ends early if it is larger than the copy (--unwind dwarf:SIZE), at a
// page that is not in memory, and in code that is in no file and has no frame
// pointers. What a process has mapped that ends at once, the kernel has
// recorded: its files are those that its paths lead to in its own mount
// namespace, or in that of an ancestor, if they have the recorded build ID. A
// file that was deleted meanwhile, or of which a container's last process has
// ended, has no functions then. Unwinding is for x86-64, arm64, riscv64 and
// s390x. The kernel walks the stacks of 32-bit programs. Functions of C++ and
// Rust are named as in their source, without parameters; JSON and profiles have
// the symbols as they are.
//
// The copy costs the traced program some microseconds for each hit. It takes
// its full size in the ring buffer, which therefore has 32 MiB. Where tens of
// thousands of events come in a second, some are lost: the summary says how
// many, and a profile has the others.
//
// With --unwind fp, the kernel walks the stacks by frame pointers, and counts
// them for --pprof, so that none is lost. In code that was built without frame
// pointers, only the innermost function is right; what follows is nothing, or
// by chance an address that is no caller. usdttrace warns of files that seem to
// have none. On s390x this needs Linux 6.7. It is always done so with
// --latency, with --hist --by stack, with sums of more than an argument, and by
// keys other than arguments, comm, pid, tid, cpu and probe.
//
// # JSON
//
// With --json there is one object on each line of standard output.
// https://github.com/gousdt/gousdt/blob/main/docs/json.md explains them.
package main

// From the flags to what is printed, for those who read the code:
//
//	flags.go        the command line (help.txt and short.txt: what --help
//	                and -h say)
//	main.go         one run: the trace.Session that the flags ask for, from its
//	                beginning to its end; events and rows as they come
//	target.go       what is attached to: files that are named
//	follow.go       what processes map as they come and go, what a command runs
//	command_*.go    which waits until it is attached
//	list.go         what would be attached (-l), and the pairs (--pairs)
//	events.go       a line for each hit
//	spans.go        a line for each call, also for those that have not ended
//	tables.go       what hits come to: rows, columns, distributions
//	live.go         tables that are drawn in place, and what looks closer at a row
//	stacks.go       stacks, and the profiles made of them
//	json.go         all of it as JSON
//	chrometrace.go  or as a trace for Perfetto
//	summary.go      what it all came to, what was lost and what it cost
//	hints.go        errors, and what matched nothing, in the words of the user
//	ending.go       what ends the tracing, and with which error
