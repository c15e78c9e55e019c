// SPDX-License-Identifier: BSD-2-Clause

// Package trace watches the USDT probes of other programs and delivers their
// hits as Go values.
//
// It needs no C compiler and no kernel headers, and BTF only for
// SessionOptions.Family. It generates its eBPF programs at run time, for the
// probes that they are attached to, so facts that are known before a hit cost
// nothing at the hit. Package usdt is for programs in C.
//
// # Events
//
// A [Session] watches probes and delivers an [Event] for each hit:
//
//	target := usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}
//	s, err := trace.Open(target, nil, elfnote.MustParsePattern("postgresql:query__*"))
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	for event, err := range s.Events(ctx) {
//		if err != nil {
//			log.Print(err) // events were lost, see LostError
//			continue
//		}
//		fmt.Println(event.Time, event.PID, event.Command, event.Probe, event.Args)
//	}
//
// An argument is a [Value]: an integer with or without a sign, or a floating
// point number, as the probe describes it. Its [Kind] says whether it could be
// fetched. A structure that is passed by value has its bytes, see [Bytes]. A
// pointer is a number too. [EventOptions.Captures] asks for what it points to,
// a text or bytes:
//
//	&trace.SessionOptions{Events: &trace.EventOptions{
//		Captures: []trace.Capture{{Arg: "arg0", Max: 500}},
//	}}
//
// # Stacks
//
// With [EventOptions.StackDepth] the kernel walks the user stack, by frame
// pointers. For programs without, [EventOptions.StackCopy] brings the registers
// and the memory of the stack, from which any unwinder can find the addresses.
//
// # Filters
//
// The kernel evaluates [SessionOptions.Filter] before anything is sent:
//
//	arg2 > 4096 && arg0 == "postgres"
//	(comm == "worker" || uid != 0) && arg1 & 0x10 && !(arg3 < -1.5)
//
// A condition compares terms by == != < <= > >= and combines comparisons by &&
// || ! and parentheses. Precedence is as in Go. The terms are
//
//	arg0 arg1 ...            an argument, by its number
//	str(arg0), str(arg0, 6)  the text that an argument points to, or its first bytes (at most 256)
//	str(arg0, arg1)          the same, of arg1 bytes instead of up to a zero byte
//	query, str(query, 6)     arguments by their names, if SessionOptions.Definitions has them
//	mode == "Exclusive"      an enumeration of the Definitions, compared with the name of a value
//	request->peer.port       a member of a structure that an argument points to, see below
//	global.level             a variable of the program, by its symbol in the site's file: an integer
//	                         of 1, 2, 4 or 8 bytes, without a sign
//	str(global.query)        the text that a variable points to, as of an argument
//	pid tid                  of the hit, numbered as in this process's PID namespace (see Event.PID)
//	uid gid cpu              of the hit; users are numbered as in the initial user namespace
//	container                of the hit, see SessionOptions.Containers. It is a key, and is
//	                         compared by == and != with the beginning of a container's ID
//	cgroup                   the ID of the control group in the hierarchy of version 2
//	comm                     the name of the thread
//	probe provider cookie    of the site
//	12 -1 0xff 2.5 "text"    numbers and texts
//	5ms 1.5s                 times, in nanoseconds
//	duration                 at the end of a call between two probes: the time since its start
//	failed                   there, in conditions: 1 if the call has failed, else 0
//	start.arg0 ...           there: an argument of the start, also as str(start.arg0); and a key or
//	                         a value of an aggregation of calls
//
// An integer can be masked, as in arg1 & 0x10. Numbers are compared by their
// value, whatever their size and sign; a number that is compared with a float
// is rounded to the precision of the float. An argument that is compared with a
// text stands for the text that it points to. A term alone holds if it is not
// 0.
//
// A comparison with an argument that the site does not have, a variable that
// its file has no symbol of, or a value that cannot be read, is neither true
// nor false, and so is its negation: neither arg1 == 0 nor arg1 != 0 holds
// then. Sites at which the filter can never hold are not attached.
//
// For request->peer.port, SessionOptions.Definitions need the type of request,
// as in "struct request *request". The layout of the structure is read from the
// debugging information of the site's file, or of its debug file: DWARF of at
// most 128 MiB. Members are integers, floats, enumerations and pointers, with
// their size and sign, and arrays of char, which are texts. Bit fields and
// other arrays are refused, and so is a structure that the file has in several
// forms. A text is a key only as str(request->path).
//
// All names of arguments and terms in this package are words of this language:
// [Capture.Arg], [Aggregation.Value] and [Aggregation.By], [Latency.By].
//
// # Spans
//
// With [EventOptions.Spans] there is an event for each call between two probes,
// instead of one for each hit. The kernel evaluates the filter at its end, so a
// fast call sends nothing:
//
//	s, err := trace.Open(target, &trace.SessionOptions{
//		Filter:      "duration > 5ms",
//		Definitions: providers.Builtin(), // what a statement is
//		Events: &trace.EventOptions{
//			Spans: []trace.Latency{{
//				Pair: elfnote.MustParsePairPattern("postgresql:statement"),
//			}},
//			Captures: []trace.Capture{{Max: 500}}, // of each text
//		},
//	})
//	...
//	fmt.Println(event.Start.Time, event.Duration, event.Start.Args[0])
//
// [Latency] says how starts and ends are matched: by the common part of their
// names, with a stack of calls for each thread. A call that fails may end at
// another probe, as in postgresql:query|transaction__abort: its event has
// [Event.Failed]. [Losses] counts the calls that have no end, and
// [Session.OpenCalls] returns those that go on, and perhaps hang.
//
// # Aggregations
//
// Where a probe is hit a million times a second, the hits are better counted in
// the kernel. An [Aggregation] counts hits, adds up values, and keeps their
// minimum, maximum or distribution, for each combination of keys. There can be
// any number of keys. The session takes them from the kernel as they come;
// those that are over [Aggregation.MaxKeys] are counted together. An
// [Aggregator] is the handle to read the rows:
//
//	collected := trace.NewAggregator(trace.Aggregation{
//		Value: "arg0", Sum: true, Max: true, By: []string{"comm"},
//	})
//	s, err := trace.Open(target, &trace.SessionOptions{
//		Aggregators: []*trace.Aggregator{collected},
//	}, elfnote.Exact("python", "gc__done"))
//	...
//	snapshot, err := collected.Snapshot()
//
// The time between two probes is a value too:
//
//	trace.Aggregation{
//		Latency: &trace.Latency{
//			Pair: elfnote.MustParsePairPattern("postgresql:query"), // query__start and query__done
//		},
//		Histogram: &trace.Histogram{},
//	}
//
// Histograms are exponential, with the buckets of OpenTelemetry: they are
// exported without loss, and [Row.Quantile] has a known precision.
// [Aggregator.Snapshot] reads the hits so far, and [Aggregator.Take] those
// since the last time. [Session.Take] takes those of several aggregators at one
// moment, so that their counts agree. A session with Aggregators sends events
// as well if [SessionOptions.Events] is set.
//
// # Many files, many processes
//
// [Session.Attach] adds probes of another file, or of a process, to a running
// session. [Attachment.Close] removes them. [WatchSessions] does both as
// processes come and go, wherever they map a file with probes that match:
//
//	w, err := trace.WatchSessions(nil, func(c *trace.WatchChanges) { ... },
//		trace.WatchSession{Session: s, Patterns: patterns})
//	...
//	go w.Run(ctx, 10*time.Second)
//
// A file is attached once for all processes. With
// [watch.Options.PerProcess] it is attached to each process that a filter
// lets through. Cookies tell files or processes apart in events, filters and
// aggregations, see [WatchSession.OptionsFor]. Package proc says which
// processes are noticed, and how soon. Attachments of one file in several
// processes share a program. Sessions whose events differ can share one watch.
//
// # Losses
//
// [Session.Events] reports events that find no room in the ring buffer.
// [Losses] counts these, and the hits and calls that could not be aggregated or
// measured. [Attachment.Skipped] lists the sites that could not be attached.
// [Session.Stats] returns the costs of a session.
//
// # Kernels
//
// The package needs Linux 5.10, and the machines and privileges of package
// usdt. Without uprobe_multi links or BPF cookies it works as well. Before
// Linux 5.11 maps count against RLIMIT_MEMLOCK, which rlimit.RemoveMemlock of
// github.com/cilium/ebpf lifts.
package trace
