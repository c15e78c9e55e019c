// SPDX-License-Identifier: BSD-2-Clause

// Package code generates the BPF programs of package trace.
//
// A program is made for the sites that it is attached to. What is known of a
// site beforehand costs nothing at a hit: constants are not fetched,
// comparisons with them are decided here, registers are loaded from where the
// kernel saved them, and arguments that lie close together in memory are read
// by one helper call.
//
// The way from a site to a program:
//
//	expr.Node    a condition          -> condition.go   what is left of it at this site
//	argspec.Arg  where values are     -> fetch.go       instructions that fetch them
//	                                     together.go    and where a condition is the first to need them, neighbours too
//	                                     record.go      where they lie in the record of an event
//	Plan         what is wanted       -> block.go       the instructions for one kind of site
//	Blocks                            -> program.go     a program that finds its block by the BPF cookie
//
// # Conventions of the generated code
//
// R6 is the context, R7 the record being written, R8 the BPF cookie: the number
// of the block in the low half, the ID of the site in the high one. R9 holds a
// value over a helper call. Everything else lives for a few instructions. There
// are no loops. A program never writes to memory shared by several hits other
// than by atomic instructions, for from Linux 6.0 on a hit may be preempted by
// another one on the same processor.
package code
