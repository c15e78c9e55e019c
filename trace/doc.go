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
// An argument is a [Value]. A pointer is a number, and [EventOptions.Captures]
// asks for what it points to. [EventOptions.StackDepth] adds the user stack.
//
// # Filters
//
// The kernel evaluates [SessionOptions.Filter] before anything is sent:
//
//	arg2 > 4096 && arg0 == "postgres"
//	(comm == "worker" || uid != 0) && arg1 & 0x10 && !(arg3 < -1.5)
//
// docs/expressions.md in the repository has the language: the terms, members of
// structures such as request->peer.port, and what holds if a value cannot be
// read. All names of arguments and terms in this package are words of it:
// [Capture.Arg], [Aggregation.Value] and [Aggregation.By], [Latency.By]. Names
// of arguments, and types of structures, are in [SessionOptions.Definitions].
// Sites at which the filter can never hold are not attached.
//
// # Spans and aggregations
//
// With [EventOptions.Spans] there is an event for each call between two probes,
// with its duration, instead of one for each hit. The kernel evaluates the
// filter at its end, so a fast call sends nothing:
//
//	s, err := trace.Open(target, &trace.SessionOptions{
//		Filter:      "duration > 5ms",
//		Definitions: trace.BuiltinDefinitions(), // what a statement is
//		Events: &trace.EventOptions{Spans: []trace.Latency{{
//			Pair: "postgresql:statement",
//		}}},
//	})
//
// An [Aggregation] counts hits or calls in the kernel instead, adds up values,
// and keeps their minimum, maximum or distribution, for each combination of
// keys. [Session.Snapshot] reads the rows so far, and [Session.Take] those
// since the last time, of one aggregation or of several at one moment, so that
// their counts agree. A session with Aggregations sends events as well if
// [SessionOptions.Events] is set.
//
// # Many files, many processes
//
// [Session.Attach] adds probes of another file, or of a process, to a running
// session, and [Attachment.Close] removes them. A watch does both as
// processes come and go, wherever they map a file with probes that match:
//
//	w, err := watch.New(nil, report, s.Part(patterns...))
//	...
//	go w.Run(ctx, 10*time.Second)
//
// # Losses
//
// [Session.Events] reports events that find no room in the ring buffer.
// [Losses] counts these, and the hits and calls that could not be aggregated or
// measured. [Attachment.Skipped] lists the sites that could not be attached.
// [Session.Stats] returns the costs of a session.
//
// The package needs Linux 5.10, and the machines and privileges of package
// usdt. docs/agent.md in the repository goes through a whole agent.
package trace
