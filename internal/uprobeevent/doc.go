// SPDX-License-Identifier: BSD-2-Clause

// Package uprobeevent makes one event of many uprobes, for kernels without
// uprobe_multi links. There the kernel takes a tenth of a second to close a
// perf event, one after the other. A perf event on a uprobe of its own has one
// place. One on an event that was defined in tracefs (Linux 5.4, kernel commit
// 60d53e2c3b75) has any number of places.
//
// The kernel keeps the definition of an event when the process that made it
// ends, and with it the traced file. [Remove] removes those of processes that
// have ended. Package usdt says how the names tell whose they are.
//
// An event in use must not be removed. For one with several places the kernel
// does not check that, and goes on with memory that it has freed (by its
// sources, since kernel commit 60d53e2c3b75). So an event is removed only after
// the process that opened it and all that have inherited it have closed it, or
// after its owner has certainly ended.
package uprobeevent
