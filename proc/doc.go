// SPDX-License-Identifier: BSD-2-Clause

// Package proc finds the files that processes execute, as they come and go, and
// which of them have USDT probes.
//
// # From a process to a file
//
// The kernel lists what a process has mapped in /proc/PID/maps. [FS.Files]
// reads from it the files of which there is executable memory:
//
//	fs := proc.NewFS("/proc")
//	files, err := fs.Files(pid)
//	for _, m := range files {
//		f, err := m.Open()
//
// A path in maps is not enough to open the file. The process may live in
// another mount namespace, as in a container; the file may have been deleted or
// replaced, as by a package upgrade; or it never had a path, as a memfd. So a
// file is opened by the link of the mapping itself,
// /proc/PID/map_files/START-END, if the caller has the privilege that this
// takes (CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), and else below
// /proc/PID/root, if the file there is the one that is mapped.
//
// Whether two mappings are of the same file is told by their [FileID]. Files
// are held by a [Cache], open only while somebody wants them and parsed once.
//
// # Watching
//
// A [Watcher] tells which pairs of a process and a file with wanted probes
// appear and disappear:
//
//	w := proc.NewWatcher(&proc.WatcherOptions{Handler: func(c *proc.Changes) {
//		for _, pair := range c.Appeared { ... }
//		for _, pair := range c.Disappeared { ... }
//	}}, elfnote.MustParsePattern("postgresql:query__*"))
//	defer w.Close()
//	err := w.Run(ctx, 10*time.Second)
//
// Who wants to decide when to look calls [Watcher.SyncAll] or [Watcher.Sync]
// instead of Run. [Changes] has files apart from pairs, for those who attach to
// a file once for all processes, and comes as a batch, so that attaching and
// detaching can be done together.
//
// A process that cannot be looked into, or vanishes while it is looked at, and
// a file that cannot be read are reported in [Changes].Errors and stop nothing
// else.
//
// # What is noticed, and when
//
// A pass ([Watcher.SyncAll]) reads /proc/PID/stat of every process, which takes
// three microseconds and the kernel answers without a lock on the memory of the
// process. The mappings of a process, which take 140 microseconds for 200 of
// them, are looked at only
//
//   - if it is new: another start time is another process that got the PID;
//   - if the size of its address space has changed, as dlopen does;
//   - if its image has changed, that is where code and stack start, as exec
//     does;
//   - in every 10th pass, if it had page faults since they were read last;
//   - in every 100th pass.
//
// So a library that is loaded and stays is noticed in the next pass, unless the
// process happened to unmap exactly as many pages as it mapped since the last
// one. Then it is noticed within 10 passes, because code cannot run, from pages
// newly mapped, without a fault (but from those that were mapped readable,
// read, and made executable later, and on behalf of a process that another one
// shares its memory with). Everything is noticed within 100 passes. A process
// or mapping that comes and goes between two passes is not noticed.
//
// From Linux 6.11 on, mappings are compared by an ioctl that lists the
// executable ones alone (PROCMAP_QUERY), a quarter of the time.
//
// [Watcher.Run] also asks the kernel to tell of every fork, exec, exit and
// executable mapping, which it then looks at after 20 ms, whatever the
// interval. That is done by perf events that count nothing, one for each CPU,
// and takes CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), which tracers have.
// The other way, the netlink process connector, tells nothing of mappings,
// hence of dlopen, and works in the initial network namespace alone. If events
// are not to be had, because the privilege is missing or the proc file system
// is of another PID namespace, passes do all the work; [Stats] says so. Not
// told by the kernel, but left to passes, are the unmapping of a file by a
// process that goes on, a process's own change of its name, and what happens on
// a CPU that was switched on after Run began. When records are lost, a pass
// makes up for it.
//
// # Limits
//
// PIDs are those of the proc file system, and what another PID namespace calls
// its processes is not known here. A mapped file on a network file system that
// does not answer blocks the look at it, and so, on most kernels, does a
// process that is stuck in the kernel while it changes its memory.
//
// Everything but the opening and identifying of files, and kernel events, is
// portable: a directory tree that looks like /proc can be read on any system.
package proc
