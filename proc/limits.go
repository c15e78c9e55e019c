// SPDX-License-Identifier: BSD-2-Clause

package proc

import "time"

// Limits and sizes. What a process has mapped is up to the process, so that
// none of these may grow with what it says.
const (
	// maxLine bounds a line of maps, and is the size of the buffer that maps is
	// read through. The kernel shows paths of up to a page; a longer line is
	// reported and skipped.
	maxLine = 64 << 10

	// maxStat bounds what is read of stat. The 52 numbers and the command take
	// 300 bytes, 1,100 if every number had 20 digits.
	maxStat = 2 << 10

	// maxMounts bounds what is read of a mount table to find out about hidepid.
	// Container hosts have thousands of mounts of 200 bytes.
	maxMounts = 8 << 20

	// DefaultIdleFiles is how many parsed files a [Cache] keeps that nobody
	// uses at the moment. A large host has a few hundred distinct files with
	// probes.
	DefaultIdleFiles = 1024

	// DefaultIdleSites bounds the sites of those files together. A site takes
	// about 200 bytes with its strings, so that this is 50 MB at the very
	// worst; an ordinary host has some thousands.
	DefaultIdleSites = 1 << 18

	// siteNotes is how many bytes of notes count as a site, and is more than
	// real notes have: 100,000 sites have 9 MB of them.
	siteNotes = 100

	// DefaultWithoutProbes is how many files without probes a [Cache] remembers
	// for certain (and up to twice as many). One takes about 100 bytes; a host
	// with hundreds of different containers maps some 10,000 files.
	DefaultWithoutProbes = 1 << 15

	// maxPairs bounds the files with wanted probes of one process, each of
	// which takes a descriptor. Large programs map some hundred files
	// altogether.
	maxPairs = 1024

	// maxReportedFiles bounds the memory of which files have been reported as
	// unreadable, so that one is reported once and not once per process.
	maxReportedFiles = 4096
)

// How often a [Watcher] reads the mappings of a process again although neither
// its size nor its image changed, in passes over all processes. See the package
// documentation for what is guaranteed.
const (
	// busyPasses is for processes that had page faults since. It is a
	// compromise between how late an exotic change may be noticed and the 0.2
	// ms that reading the mappings of a large process takes.
	busyPasses = 10
	// idlePasses is for processes that did not even fault, which therefore can
	// hardly have run code of a new mapping.
	idlePasses = 100
)

// Sizes of the kernel event source.
const (
	// eventDelay is how long records of the kernel are gathered before the
	// processes that they name are looked at: a starting program maps a dozen
	// files within a millisecond or two, and is to be looked at once.
	eventDelay = 20 * time.Millisecond

	// ringBytes is the size of a CPU's buffer of records, which take 120 bytes
	// each: 1,000 of them in eventDelay on one CPU, or 50,000 a second. What
	// does not fit is noticed and made good by a pass over all processes. The
	// kernel grants every user 512 KiB per CPU (perf_event_mlock_kb).
	ringBytes = 128 << 10
)
