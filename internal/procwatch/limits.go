// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
)

// Limits and sizes. What a process has mapped is up to the process, so that
// none of these may grow with what it says.
const (
	// maxAnswers bounds the files that a cache remembers to have no wanted
	// probes, up to twice as many. One takes about 150 bytes; a host with
	// hundreds of different containers maps some 10,000 files.
	maxAnswers = 1 << 15

	// maxKeptOfFile and maxKeptSites bound the bytes of the sites that a
	// cache keeps of one open file, and of all. The JVM has 531 sites, which
	// take 100 kB. The notes of other files are read again.
	maxKeptOfFile = 256 << 10
	maxKeptSites  = 4 << 20

	// maxPairs bounds the files with wanted probes of one process, each of
	// which takes a descriptor. Large programs map some hundred files
	// altogether.
	maxPairs = 1024

	// descriptorsPerFile is the number of descriptors of the process's limit
	// for each open file of a cache. The file takes one, attaching to it one
	// or two more, and the program has other needs.
	descriptorsPerFile = 4

	// maxReported bounds the files that are known to have been reported as
	// unreadable, once and not for each process, and such owners of processes.
	maxReported = 8192

	// ownerSilence is how long no other process of an owner is reported after
	// one that is not scanned now, for the same reason.
	ownerSilence = time.Minute

	// maxUnwanted bounds the files of kernel events that are known to have no
	// wanted probes. They are learned again after each pass, which sees probes
	// that were written into one.
	maxUnwanted = 1 << 16

	// maxMapped bounds the files that kernel events name for a process between
	// two scans.
	maxMapped = 32

	// maxForks bounds the forks of forks between two scans whose parents are
	// looked for. A process after that is scanned.
	maxForks = 16

	// maxLikely bounds the files of one size that may be one inode. Others are
	// attached twice.
	maxLikely = 64

	// maxCPUs is the most CPUs that Linux can have.
	maxCPUs = 1 << 13
)

// Limits on processes that take their time.
const (
	// scanTurn is the time for reading new files of one process, before other
	// processes have their turn. A file with the most probes takes 10 ms.
	scanTurn = 20 * time.Millisecond

	// noiseOfOwner is the time that an owner may take at once for scans that
	// find nothing new.
	noiseOfOwner = 25 * time.Millisecond
)

// What scans may take of the time. A scan of a large process takes less than a
// millisecond, and it is scanned at most 50 times a second.
var (
	processRate = deadline.Rate{Full: 250 * time.Millisecond, Refill: 1. / 50}
	ownerRate   = deadline.Rate{Full: time.Second, Refill: 1. / 4}

	// noiseRate is for all repeated scans together that find nothing new. If
	// these take more, owners have equal shares.
	noiseRate = deadline.Rate{Full: 250 * time.Millisecond, Refill: 1. / 10}

	// eventRate is for the scans of what the kernel reports. If these take
	// more, they are made once in eventDelay.
	eventRate = deadline.Rate{Full: 20 * time.Millisecond, Refill: 1. / 50}
)

// How often a [Watcher] reads the mappings of a process again although neither
// its size nor its image changed, in passes over all processes. The
// documentation of package proc says what is guaranteed.
const (
	// busyPasses is for processes that had page faults since. It weighs how
	// late an exotic change is noticed against the 0.2 ms that the mappings of
	// a large process take to read.
	busyPasses = 10
	// idlePasses is for processes that did not even fault, which therefore can
	// hardly have run code of a new mapping.
	idlePasses = 1000

	// settling is how long a file was not written to when it is taken for
	// whole. Before, the process that maps it is scanned again: half of a file
	// may have other probes than all of it, or none.
	settling = 2 * time.Second
)

// How long records of the kernel are gathered before the processes that they
// name are scanned, see pace, and where.
const (
	// firstEventDelay is the least: until a program that starts has mapped its
	// file and a library or two.
	firstEventDelay = 1 * time.Millisecond

	// startsDelay is the most while programs start. At 500 starts a second that
	// takes half of the processor time that 1 ms takes.
	startsDelay = 5 * time.Millisecond

	// eventDelay is the most: a starting program maps a dozen files within a
	// millisecond or two, and is to be scanned once.
	eventDelay = 20 * time.Millisecond

	// ringBytes is the size of a CPU's buffer of records, which take 130 bytes
	// each: 1,000 of them in eventDelay, or 50,000 a second. What does not fit
	// is made good by a pass over all processes. The kernel grants every user
	// 512 KiB per CPU (perf_event_mlock_kb).
	ringBytes = 128 << 10
)
