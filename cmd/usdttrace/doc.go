// SPDX-License-Identifier: BSD-2-Clause

// Command usdttrace watches USDT probes fire.
//
//	usdttrace [FLAGS] [-p PID [-f] | -a] [FILE|LIBRARY...] PATTERN...
//	usdttrace [FLAGS] [FILE|LIBRARY...] PATTERN... -- COMMAND [ARGUMENT...]
//
// It prints a line for each hit, or with --count, --sum, --hist and --latency
// aggregates computed in the kernel. It needs the privileges to load eBPF
// programs, but no C compiler and no kernel headers. Only -f needs BTF.
// `usdttrace -h` explains the flags.
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
// page that is not in memory, if the process has ended before its files were
// read, and in code that is in no file and has no frame pointers. Unwinding is
// for x86-64, arm64, riscv64 and s390x. The kernel walks the stacks of 32-bit
// programs. Functions of C++ and Rust are named as in their source, without
// parameters; JSON and profiles have the symbols as they are.
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
// With --json there is one object on each line of standard output. An event is
//
//	{"type":"event","time":"2026-01-02T15:04:05.123456789Z","monotonic_ns":1,"pid":1,"tid":1,"command":"postgres",
//	 "cpu":0,"provider":"postgresql","name":"query__start","file":"/usr/...","location":4096,
//	 "args":[{"value":94,"text":"SELECT 1","truncated":false}],
//	 "stack":[{"address":94,"function":"exec_simple_query","offset":12,"file":"/usr/...","file_offset":4096}]}
//
// Each argument has "value": a number, one of "NaN", "Infinity" and
// "-Infinity", or null if it is not available. Then "unavailable" or
// "unreadable" is true. With --str it has "text", the text that it points to,
// and "truncated"; with --bytes "bytes", in hexadecimal, and "truncated".
// "data_unreadable" is true if it points nowhere. A structure that is passed by
// value has "bytes" and "truncated", and no value. Integers of 64 bits are
// written in full: read them with a parser that does not round.
//
// "location" is the address of the site in the file. With --every and --rate
// there is "weight": how many hits the event stands for. "stack" is there with
// --stack only, the innermost function first. Its "function" and "offset", and
// its "file" and "file_offset", are missing if they are not known.
//
// A call of --slow is
//
//	{"type":"span","time":"...","monotonic_ns":1,"duration_ns":5000000,"pid":1,"tid":1,"command":"postgres","cpu":0,
//	 "pair":"postgresql:query","start":{"provider":"postgresql","name":"query__start","file":"/usr/...","location":4096,
//	 "args":[...]},"done":{...}}
//
// "time" and "monotonic_ns" are of its start, and "stack" is that of its end;
// with --start-stack "start" has another one. Where it has failed, see PAIR in
// -h, there is "failed":true. A call that has not ended when it is asked for
// has the type "open_call" and the same members, without "cpu" and "done": then
// "duration_ns" is how long it has been going on. With --latency there is no
// "start".
//
// --pairs has an object for each pair:
//
//	{"type":"pair","pair":"postgresql:query","file":"/usr/...","start":"postgresql:query__start","done":"postgresql:query__done"}
//
// With -l there is an object for each site that would be watched, with the
// types of its arguments:
//
//	{"type":"site","provider":"postgresql","name":"query__start","file":"/usr/...","location":4096,
//	 "args":["8 unsigned"]}
//
// Aggregates have an object for each row:
//
//	{"type":"row","aggregation":"sum","start":"...","time":"...","keys":{"str(arg0)":"SELECT"},"count":3,
//	 "sum":6,"average":2.0,"min":1,"max":3,"p50":2,"p90":3,"p99":3,
//	 "exponential":{"scale":3,"zero_count":0,"positive":{"offset":-1,"bucket_counts":[1]},"negative":{...}}}
//
// "aggregation" is "count", "sum", "hist" or "latency", whose values are
// nanoseconds. "start" and "time" are the moments between which the hits came.
// All after "count" is there for values only. A key "stack" is like that of an
// event. A key that is a text and longer than its limit has a second member
// whose name ends in "_truncated", and one that is a value with a name a member
// with that, whose name ends in "_name". A row with "other":true, without keys,
// has the hits of all keys that have no row, because of --max-keys or --top.
// With "partial":true, some hits of the key may be in that row: it is there
// only if there were more keys than --max-keys.
//
// "exponential" is a histogram as OpenTelemetry's protocol defines it: with
// base 2^(2^-scale), the count at place i of "positive" is of the values above
// base^(offset+i) up to and including base^(offset+i+1), and "negative" has the
// same of the absolute values. The quantiles are at most 4.4 % from those of
// the values themselves, and so is a sum that needs more than 64 bits. With
// --linear there are no quantiles, "min" and "max", and instead of
// "exponential"
//
//	"buckets":[{"low":1,"high":1,"count":3}]
//
// whose bounds are inclusive.
//
// The last line is
//
//	{"type":"summary","schema":1,"events":3,"lost":0,"not_sampled":0,"other":0,"overflow":0,"lost_unreadable":0,"lost_starts":0,
//	 "replaced":0,"unfinished":0,"unmatched":0,"sites":12,"mode":"multi+cookie","seconds":1.5,"frames":9,"unnamed_frames":1,
//	 "programs":[{"name":"postg_query","runs":3,"ns_per_run":1500,"missed":0,"instructions":70}],
//	 "program_bytes":4096,"map_bytes":8388608,
//	 "limited_sites":12,"limited_descriptors":1,"over_limit":0,"waiting":0}
//
// "schema" is the number of the schema, which docs/json.md has. "events" is how
// many hits were printed or aggregated, "other" how many of them are of keys
// that have no row because of --max-keys, and "overflow" how many of these came
// while the kernel had no room for keys: they may be of keys with a row. With
// -a, "lost_by" says of which control groups, or users, most of the lost events
// are: [{"cgroup":4711,"events":12}]. With a command, "late" says which files
// its processes had mapped before they were attached: [{"file":"/usr/bin/php",
// "pid":1,"processes":2,"late_ns":3000000,"attached":true}]. "pid" is the first
// of them, "attached" is false if they had ended before. "frames" is how many
// functions on stacks were to be named, and is there with stacks only. What
// follows is there with --stats only: what it costs, and for -a and -p how much
// of --limits is in use, how much is over them, and what waits for its turn to
// be attached.
//
// In a text that is not UTF-8, each invalid byte is U+FFFD, and a second
// member, whose name ends in "_hex", has all bytes in hexadecimal.
package main

// From the flags to what is printed, for those who read the code:
//
//	flags.go        the command line (help.go: what -h says)
//	main.go         one run: the trace.Session that the flags ask for, from its
//	                beginning to its end; events and rows as they come
//	target.go       what is attached to: files that are named
//	follow.go       what processes map as they come and go, what a command runs
//	command_*.go    which waits until it is attached
//	list.go         what would be attached (-l), and the pairs (--pairs)
//	events.go       a line for each hit
//	spans.go        a line for each call
//	opencalls.go    and for those that have not ended
//	tables.go       what hits come to: rows, columns, distributions
//	stacks.go       stacks, and the profiles made of them
//	json.go         all of it as JSON
//	chrometrace.go  or as a trace for Perfetto
//	summary.go      what it all came to, what was lost and what it cost
//	hints.go        errors, and what matched nothing, in the words of the user
//	ending.go       what ends the tracing, and with which error
