// SPDX-License-Identifier: BSD-2-Clause

package stack

import "time"

// What this package does for processes, which are untrusted: a process maps
// what it wants, and its stacks are what it has written there. Each limit is
// far above what programs come to that do not try to reach it.
const (
	// maxDepth bounds an unwound stack: a corrupt one may have no end.
	maxDepth = 512

	// maxStackSteps bounds the work to unwind a stack, in steps of some
	// nanoseconds, see [unwind.Unwinder.Work]. A hundred functions take some
	// 10,000 steps when they are seen first, and 500 afterwards.
	maxStackSteps = 1 << 18

	// The work to unwind the stacks of a process: at first there is as much as
	// for some thousand functions, and each stack adds what it usually takes.
	processSteps  = 1 << 20
	stepsPerStack = 1 << 12

	// How many bytes of symbol tables and unwinding tables are read because of
	// a process. A browser with all its symbols and libraries takes some 200
	// MB. Programs may load libraries for months, which each stack makes up
	// for.
	processBytes  = 512 << 20
	bytesPerStack = 64 << 10

	// maxHeldBytes bounds the tables that are held in memory, of all files
	// together. Those of the process that takes most go first.
	maxHeldBytes = 256 << 20

	// maxOpen bounds the files that are held open. When another one is opened,
	// the tables of the one that was opened first are read, which takes time
	// and memory, and may be for nothing.
	maxOpen = 32

	// maxFiles bounds the files that are known. A large host has some hundreds.
	maxFiles = 4096

	// maxSegments bounds the segments that are known of a file. Compilers and
	// linkers make ten at most.
	maxSegments = 64

	// maxProcesses bounds the processes that are remembered. Those that have
	// ended go first.
	maxProcesses = 1 << 14

	// maxMappings bounds what is remembered of a process that maps and unmaps
	// code without end, and maxAllMappings that of all processes together. One
	// takes some 50 bytes, and a process has some ten to a few hundred.
	maxMappings    = 1 << 14
	maxAllMappings = 1 << 20

	// scanShare is the part of the time that may be spent on scanning a process
	// again, while its stacks lead to where nothing was mapped before: 1 in so
	// many. A scan takes some 100 microseconds. What freeScans bounds comes
	// first: a program that has just begun maps one library after the other,
	// and may end soon.
	scanShare = 20
	freeScans = 25 * time.Millisecond

	// What a profile holds at most: the names of functions in bytes, different
	// stacks, the functions on all of these, and different places. Of the
	// largest programs there are some ten thousand stacks.
	maxProfileNames  = 64 << 20
	maxProfileStacks = 1 << 17
	maxProfileFrames = 1 << 23
	maxProfilePlaces = 1 << 20
)

// budget is what may still be done on somebody's account.
type budget struct{ left int }

// earn adds to the budget, up to its limit.
func (b *budget) earn(amount, limit int) { b.left = min(b.left+amount, limit) }

// take takes from the budget, if there is so much.
func (b *budget) take(amount int) bool {
	if amount > b.left {
		return false
	}
	b.left -= amount
	return true
}
