// SPDX-License-Identifier: BSD-2-Clause

// Package proc has the types for processes in packages watch and trace: a
// [Process], and a [ProcessFile], which is a file with probes that a process
// executes. The watches, [watch.New] and [trace.WatchSessions], find such files
// as processes come and go. What follows says how.
//
// # From a process to a file
//
// The kernel lists what a process has mapped in /proc/PID/maps. A path in maps
// is not enough to open the file. The process may live in another mount
// namespace, as in a container. The file may have been deleted or replaced, as
// by a package upgrade. Or it never had a path, as a memfd. So a file is opened
// by the link of the mapping itself, /proc/PID/map_files/START-END, if the
// caller has the privilege that this needs (CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN). Otherwise it is opened below /proc/PID/root, if the file
// there is the one that is mapped. Each file is opened once for all processes.
//
// # What is noticed, and when
//
// A pass, as SyncAll makes it, reads /proc/PID/stat of every process. That
// takes three microseconds, and the kernel answers without a lock on the memory
// of the process. The mappings of a process, which take 140 microseconds for
// 200 of them, are read only
//
//   - if the process is new: another start time is another process that got the
//     PID;
//   - if the size of its address space has changed, as dlopen does;
//   - if its image has changed, that is where code and stack start, as exec
//     does;
//   - in every 10th pass, if it had page faults since they were read last;
//   - in every 100th pass.
//
// So a library that is loaded and stays is noticed in the next pass, unless the
// process has unmapped exactly as many pages as it has mapped since the last
// one. Then it is noticed within 10 passes, because code cannot run from pages
// newly mapped without a page fault. There are two exceptions: pages that were
// mapped readable, read, and made executable later, and faults on behalf of a
// process that another one shares its memory with. Everything is noticed within
// 100 passes. A process or mapping that comes and goes between two passes is
// not noticed.
//
// Run also asks the kernel to report every fork, exec, exit and executable
// mapping, and scans the process 1 to 20 ms later, whatever the interval. The
// delay is 1 ms after a quiet time, and up to 5 ms while processes start and
// end. It is longer while a running process maps files again and again, and if
// these scans take more than a fiftieth of the time. The reports are those of
// perf events that count nothing, one for each CPU. They need CAP_PERFMON
// (CAP_SYS_ADMIN before Linux 5.8), which tracers have. The netlink process
// connector is not enough: it does not report mappings, and so no dlopen, and
// works in the initial network namespace alone.
//
// If the privilege is missing, or the proc file system is of another PID
// namespace, there are no reports, and passes do all the work.
// [watch.Watch.Stats] says so. The kernel does not report, and passes find,
// that a process unmaps a file and goes on, that it changes its own name, and
// what happens on a CPU that was switched on after Run began. If reports are
// lost, a pass makes up for them. A process is not scanned when it starts if
// all its files were found without wanted probes since the last pass. So probes
// that were written into such a file are found by the next pass.
//
// # Limits
//
// PIDs are those of the proc file system. The PIDs of other PID namespaces are
// not known.
//
// # Processes that block
//
// A file can withhold an answer for as long as its server likes, on FUSE and
// network file systems, and a process that is stuck in the kernel while it
// changes its memory withholds its mappings. A watch scans in a goroutine that
// it abandons if a process takes more than half a second. The process is set
// aside, and scanned when it answers. If two processes of a container or user
// are set aside, the others of it are not scanned either. A process that
// changes all the time, or maps so much that its scans take more than a
// fiftieth of the time, is scanned more seldom, and a container or user gets a
// quarter of the time. [watch.Watch.Stats] counts these processes, and the
// Errors of its changes name them.
//
// A directory tree that looks like /proc can be read on any system.
//
// [watch.Watch.Stats]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#Watch.Stats
// [watch.New]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#New
// [trace.WatchSessions]: https://pkg.go.dev/github.com/gousdt/gousdt/trace#WatchSessions
package proc
