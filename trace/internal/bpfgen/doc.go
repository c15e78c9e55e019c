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
//	Plan, Site   what a session wants  -> site.go       the code for one kind of site
//	expr.Node    a condition           -> condition.go  what is left of it at this site, and comparisons
//	argspec.Arg  where a value is      -> fetch.go      loads and reads, neighbours by one call
//	Events       what an event has     -> record.go     its layout
//	                                   -> event.go      what sends it, with captures and stacks
//	                                   -> sampling.go   which hits are sent, and whose there is room for
//	Aggregation  what is added up      -> aggregate.go  accumulators, their keys, and the room for these
//	                                   -> histogram.go, float.go
//	Latency      what starts and ends  -> calls.go      a stack of calls for each thread and pair
//	                                   -> outermost.go  calls that several probes start
//	                                   -> start.go      what is kept of starts for their ends
//	Blocks       all kinds of sites    -> program.go    a program that finds its block by the BPF cookie,
//	                                                    or by the instruction pointer
//	Table        many kinds of sites   -> table.go      code that looks up where arguments are
//	Kernel       what runs it          -> kernel.go     with programs that show what it supports
//
// Package argcode has the assembler, and the code for a single argument and for
// neighbours in memory.
//
// # Conventions of the generated code
//
// R6 is the context, R7 the record being written. R8 is the BPF cookie, or the
// value that Slots find in its place: its high half is the ID of the site, its
// low half the number of the block or, with a Table, of the site's first
// element. R9 holds a value over a helper call. Other registers live for a few
// instructions. Loops are bounded by the calls of a stack, or the words of a
// trail. Counts and sums of integers that hits share go up by atomic
// instructions, because from Linux 6.0 on a hit may be preempted by another one
// on the same processor.
package bpfgen
