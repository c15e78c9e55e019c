// SPDX-License-Identifier: BSD-2-Clause

// Package uprobeevent makes one event of many uprobes, for kernels without
// uprobe_multi links.
//
// There the kernel takes a tenth of a second to close a perf event, and it
// closes one after the other. A perf event on a uprobe of its own has one
// place. One on an event that was defined in tracefs (Linux 5.4, kernel commit
// 60d53e2c3b75) has any number of them.
//
// # What stays behind
//
// The definition of an event has a name, and is not taken back by the kernel
// when the process ends that made it. It then costs nothing at a hit, but keeps
// the traced file from being freed and its file system from being unmounted.
// [Remove] removes the definitions of processes that are no more. The group is
// "gousdt", and the names say whose they are:
//
//	p1234_5678901_4026531836_1
//
// is the first event of process 1234, which was started 5,678,901 clock ticks
// after boot, in the PID namespace with the inode 4026531836.
//
// An event that is in use must not be removed: if it has several places, the
// kernel does not check that, and goes on with memory that it has freed (so its
// sources read since kernel commit 60d53e2c3b75). So an event is removed only
// after it was closed by the one that opened it and by all who have inherited
// it, or where its owner has certainly ended.
package uprobeevent
