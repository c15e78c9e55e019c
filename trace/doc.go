// SPDX-License-Identifier: BSD-2-Clause

// Package trace watches the USDT probes of other programs and delivers their
// hits as Go values.
//
// It needs no C compiler, no kernel headers and no BTF: the eBPF programs are
// generated at run time, for the very probes that they are attached to. What is
// known beforehand costs nothing at a hit. Package usdt is for those who write
// their own programs.
//
// # Events
//
// A [Session] watches probes and delivers an [Event] for each hit:
//
//	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}, nil,
//		elfnote.MustParsePattern("postgresql:query__*"))
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
// Arguments are [Value]s: numbers with or without a sign, or floating point, as
// the probe's author described them. One that cannot be fetched at a site, or
// that was in memory which was not there at a hit, says so.
//
// A pointer is a number too. What is behind it is brought if
// [SessionOptions.Captures] asks for it, as a text or as bytes:
//
//	&trace.SessionOptions{Captures: []trace.Capture{{Probes: "postgresql:query__start", Arg: 0, Max: 500}}}
//
// # Stacks
//
// [SessionOptions.StackDepth] has the kernel walk the user stack, which needs
// frame pointers. Where programs have none, [SessionOptions.StackCopy] brings
// what any other way to unwind it needs: the registers, and the memory of the
// stack.
//
// # Filters
//
// [SessionOptions.Filter] is decided in the kernel, before anything is sent:
//
//	arg2 > 4096 && arg0 == "postgres"
//	(comm == "worker" || uid != 0) && arg1 & 0x10 && !(arg3 < -1.5)
//
// A condition compares terms by == != < <= > >= and combines comparisons by &&
// || ! and brackets. The terms are
//
//	arg0 arg1 ...          an argument, by its number
//	str(arg0), str(arg0, 6)  the text that an argument points to, or its first bytes (at most 128)
//	pid tid                of the hit, numbered as in this process's PID namespace (see Event.PID)
//	uid gid cpu            of the hit, users numbered as in the initial user namespace
//	comm                   the name of the thread
//	probe provider cookie  of the site
//	12 -1 0xff 2.5 "text"  numbers and texts
//
// and a term that is an integer can be masked, as in arg1 & 0x10. Numbers are
// compared as the numbers they are, whatever their size and sign; a number is
// rounded to the precision of the float that it is compared with. An argument
// compared with a text stands for the text that it points to. A term alone
// holds if it is not 0.
//
// A comparison with what the site does not have or what cannot be read is
// neither true nor false, and nor is its negation: arg1 == 0 and arg1 != 0 both
// do not hold then. Sites at which a filter can never hold are not attached.
//
// # Aggregations
//
// Where a probe is passed a million times in a second nobody can look at each
// hit. An [Aggregation] counts hits, adds values up, keeps their extremes or
// their distribution, by any keys, in the kernel; [Session.Snapshot] reads it:
//
//	s, err := trace.Open(target, &trace.SessionOptions{Aggregations: []trace.Aggregation{{
//		Value: "arg0", Functions: trace.Sum | trace.Max, By: []string{"comm", "arg1"},
//	}}}, elfnote.MustParsePattern("gc__*"))
//
// The time between two probes is a value too:
//
//	trace.Aggregation{
//		Latency:   &trace.Latency{Start: "postgresql:query__start", Done: "postgresql:query__done"},
//		Histogram: &trace.Histogram{},
//	}
//
// # Many files, many processes
//
// [Session.Attach] adds probes of another file, or of a process, to a session
// that runs; [Attachment.Close] removes them. [Session.Watch] does so by itself
// as processes come and go, wherever they map a file with probes that match:
//
//	w, err := s.Watch(&trace.WatchOptions{Changed: func(c *trace.WatchChanges) { ... }}, patterns...)
//	if err != nil {
//		return err
//	}
//	defer w.Close()
//	go w.Run(ctx, 10*time.Second)
//
// A file is attached once for all processes, or with [WatchOptions.PerProcess]
// for those alone that a filter lets through; [WatchOptions.OptionsFor] gives
// files or processes cookies by which events, filters and aggregations tell
// them apart. What is noticed, and how soon, is told in package proc.
// [Session.AttachSelection] takes what package usdt selected, for those who
// find files by other means. Attachments of the same file in several processes
// share a program.
//
// # What is lost
//
// Nothing is lost silently. Events that find no room in the ring buffer are
// counted in the kernel and reported by Session.Events; so are hits that an
// aggregation could not take, in [Losses]. What a session costs is in [Stats].
//
// # Kernels
//
// Linux 5.10 and newer, on every machine that package usdt serves, uprobe_multi
// links and BPF cookies or not: without cookies each site gets a program of its
// own. Before Linux 5.11 maps count against RLIMIT_MEMLOCK: lift it, for
// example by rlimit.RemoveMemlock of github.com/cilium/ebpf. Privileges are
// those of package usdt.
package trace
