// SPDX-License-Identifier: BSD-2-Clause

// Package proc has the types for processes in packages watch and trace: a
// [Process], a [ProcessFile], which is a file with probes that a process
// executes, and [FS], the proc file system in which they are found. PIDs are
// those of that file system.
//
// The watches, [watch.New] and [trace.WatchSessions], find such files as
// processes come and go. While Run goes on, the kernel reports every fork,
// exec, exit and executable mapping, and the process is scanned 1 to 20 ms
// later. Without the privilege for that (CAP_PERFMON), or if the proc file
// system is of another PID namespace, passes over all processes do all the
// work: what a process loads and keeps is found in the next pass, within 10
// passes, or in rare cases within 100. A process or mapping that comes and goes
// between two passes is not noticed. [watch.Watch.Stats] says which of it is
// so.
//
// A file is opened as the process has it mapped, also in another mount
// namespace, or if it was deleted or replaced. A process that does not answer
// for half a second, or changes all the time, is set aside or scanned more
// seldom, so that others do not wait for it.
//
// docs/processes.md in the repository has the details: what a pass reads, which
// changes are noticed when, and what happens to processes that block.
//
// [watch.Watch.Stats]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#Watch.Stats
// [watch.New]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#New
// [trace.WatchSessions]: https://pkg.go.dev/github.com/gousdt/gousdt/trace#WatchSessions
package proc
