// SPDX-License-Identifier: BSD-2-Clause

// Command usdttrace watches USDT probes fire.
//
//	usdttrace [FLAGS] [-p PID [-f] | -a] [FILE|LIBRARY...] PATTERN...
//	usdttrace [FLAGS] [FILE|LIBRARY...] PATTERN... -- COMMAND [ARGUMENT...]
//
// It prints a line for each hit, or with --count, --sum, --hist and --latency
// aggregates computed in the kernel. It needs the privileges to load eBPF
// programs, but no C compiler and no kernel headers. Only -f, and the
// descendants of a command, need BTF. `usdttrace --help` explains the flags.
//
// docs/behaviour.md says when files are attached, how a run ends, and how
// stacks are found. docs/json.md explains the JSON.
package main

// From the flags to what is printed, for readers of the code:
//
//	flags.go      the command line by subject: the flags of each, and what they do
//	              not go with (help.txt, short.txt: what --help and -h say)
//	main.go       one run in phases: prepared, opened, attached and collected,
//	              each a type that says who sets it
//	target.go     what is attached to: files that are named
//	follow.go     what processes map as they come and go, and which files of a
//	              command were attached late
//	command_*.go  the command, which waits until it is attached
//	list.go       what would be attached (-l), and the pairs (--pairs)
//	events.go     a line for each hit
//	spans.go      a line for each call, also for those that have not ended
//	tables.go     what hits come to: rows, columns, distributions
//	live.go       tables that are drawn in place, and what looks closer at a row
//	stacks.go     stacks, and the profiles made of them
//	json.go       all of it as JSON, or as a trace for Perfetto
//	summary.go    what it all came to, what was lost and what it cost
//	hints.go      errors, and what matched nothing, in the words of the user
//	ending.go     what ends the tracing, and with which error
