// SPDX-License-Identifier: BSD-2-Clause

// Package uprobeevent makes one event of many uprobes, for kernels without
// uprobe_multi links.
//
// There the kernel takes a tenth of a second to close a perf event, one after
// the other. A perf event on a uprobe of its own has one place. One on an event
// that was defined in tracefs (Linux 5.4, kernel commit 60d53e2c3b75) has any
// number of places.
//
// # What stays behind
//
// The kernel does not remove the definition of an event when the process that
// made it ends. A definition that is left over costs nothing at a hit, but
// keeps the traced file from being freed and its file system from being
// unmounted. [Remove] removes the definitions of processes that have ended. The
// group is "gousdt", and the names say whose they are:
//
//	p1234_5678901_4026531836_1
//
// is the first event of process 1234, which was started 5,678,901 clock ticks
// after boot, in the PID namespace with the inode 4026531836.
//
// An event that is in use must not be removed. For one with several places the
// kernel does not check that, and goes on with memory that it has freed (by its
// sources, since kernel commit 60d53e2c3b75). So an event is removed only after
// the process that opened it and all that have inherited it have closed it, or
// after its owner has certainly ended.
package uprobeevent
