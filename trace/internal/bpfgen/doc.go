// SPDX-License-Identifier: BSD-2-Clause

// Package bpfgen generates the BPF programs of package trace.
//
// A program is made for the sites that it is attached to. What is known of a
// site beforehand costs nothing at a hit: constants are not fetched,
// comparisons with them are decided here, registers are loaded from where the
// kernel saved them, and arguments that lie close together in memory are read
// by one helper call.
//
// The way from a site to a program:
//
//	Plan         what a session wants  -> block.go              the code for one kind of site
//	expr.Node    a condition           -> condition_resolve.go  what is left of it at this site
//	                                   -> condition_emit.go     comparisons
//	argspec.Arg  where a value is      -> fetch.go              loads and reads
//	                                   -> fetch_together.go     one read where a condition first needs them
//	Events       what an event has     -> record.go, event.go   its layout, and what sends it
//	                                   -> capture.go, stack.go  what is behind pointers, and on the stack
//	Aggregation  what is added up      -> aggregate.go          accumulators
//	                                   -> aggregate_key.go, histogram.go
//	Latency      what starts and ends  -> latency.go, calls.go  a stack of calls for each thread and pair
//	                                   -> span.go               what an end sends of its start
//	Blocks       all kinds of sites    -> program.go            a program that finds its block by the BPF cookie
//	                                   -> slots.go              ... or by the instruction pointer
//	Table        many kinds of sites   -> lookup.go             where arguments are is looked up
//
// Package argcode has the assembler, and the code for a single argument and for
// neighbours in memory.
//
// featureprobe.go has programs that show what a kernel supports.
//
// # Conventions of the generated code
//
// R6 is the context, R7 the record being written, R8 the BPF cookie, or what
// slots.go finds in its place: the number of the block in the low half, the ID
// of the site in the high one. R9 holds a
// value over a helper call. Everything else lives for a few instructions. There
// are no loops. A program never writes to memory shared by several hits other
// than by atomic instructions, for from Linux 6.0 on a hit may be preempted by
// another one on the same processor.
package bpfgen
