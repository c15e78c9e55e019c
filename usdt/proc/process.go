// SPDX-License-Identifier: BSD-2-Clause

// Package proc has the types for processes in packages watch and trace: a
// [Process], a [ProcessFile], which is a file with probes that a process
// executes, and [FS], the proc file system in which they are found. PIDs are
// those of that file system. [Container] is the container that a process or a
// cgroup belongs to.
//
// A watch, see [watch.New], finds such files as processes come and go. While
// Run goes on, the kernel reports every fork, exec, exit and executable
// mapping, and the process is scanned 1 to 20 ms later. Without the privilege
// for that (CAP_PERFMON), or if the proc file system is of another PID
// namespace, passes over all processes do all the work: what a process loads
// and keeps is found in the next pass, within 10 passes, or in rare cases
// within 1,000. A process or mapping that comes and goes between two passes is
// not noticed. [watch.Watch.Stats] says which of it is so.
//
// A file is opened as the process has it mapped, also in another mount
// namespace, or if it was deleted or replaced. A process that does not answer
// for half a second, or changes all the time, is set aside or scanned more
// seldom, so that others do not wait for it.
//
// docs/processes.md in the repository has the details: what a pass reads, which
// changes are noticed when, and what happens to processes that block.
//
// # Containers
//
// Each container is a cgroup, whose path has the container's ID in a form that
// depends on the runtime. [ContainerOf] reads it:
//
//	/system.slice/docker-4c01db0b339c....scope              docker
//	/kubepods.slice/.../cri-containerd-8fb5....scope        containerd, in a pod
//	/machine.slice/libpod-1c2d....scope                     podman
//	/system.slice/postgresql@15-main.service                no container: a unit
//
// An eBPF program knows its process by the ID of its cgroup
// (bpf_get_current_cgroup_id, Linux 4.18), which is the same for all processes
// of a container, however short they live. [WatchCgroups] keeps the paths of
// all cgroups by their IDs. It keeps a path for two minutes after the cgroup
// was removed, until the last events that have its ID are read:
//
//	cgroups, err := proc.WatchCgroups("")
//	if err != nil {
//		return err
//	}
//	defer cgroups.Close()
//	path, ok := cgroups.Path(id)
//	if c, isContainer := proc.ContainerOf(path); ok && isContainer {
//		fmt.Println(c.Runtime, c.ID, c.PodUID)
//	}
//
// The ID is that of a cgroup of version 2. If a machine has its containers in
// the hierarchies of version 1 only, all of them have the ID of the root of
// version 2. Find the container by its process there, with [Process.Cgroup],
// whose text ContainerOf takes, too.
//
// A user below user@1000.service, or a privileged container below its own
// cgroup, can make cgroups and name them like other containers. So the
// outermost container counts, and nothing counts below a unit that is no
// runtime's. It follows that the containers of Docker in Docker and the pods of
// kind are the container that they are in, and that containers of rootless
// podman are their user's unit.
//
// [watch.Watch.Stats]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#Watch.Stats
// [watch.New]: https://pkg.go.dev/github.com/gousdt/gousdt/watch#New
package proc

import (
	"errors"
	"fmt"
	"os"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
)

// Process is a process as it was when it was read. PID and StartTime together
// identify it for as long as the machine runs: PIDs are used again, but not
// with the same start time.
type Process struct {
	// PID is the number of the process in the namespace of the proc file
	// system.
	PID int
	// StartTime is the time of the fork in clock ticks (100 a second) after
	// boot, as field 22 of /proc/PID/stat. exec does not change it.
	StartTime uint64
	// Parent is the PID of the parent, 0 if that is not in the namespace.
	Parent int
	// Command is the name of the first thread, of at most 15 bytes: that of the
	// executable, unless the process chose another.
	Command string

	fs FS
}

// FS is the directory of a proc file system, such as "/host/proc" where an
// agent in a container has the /proc of its host mounted. "" is /proc. Any
// directory tree that looks like one will do.
//
// PIDs are those of the PID namespace for which the file system was mounted. A
// container with a PID namespace of its own cannot attach to single processes
// by the PIDs of its host, but to files, which is for all processes.
type FS string

func (f FS) root() string { return procfs.FS(f).Root() }

// Find returns what stat says about a process of a proc file system. The error
// may wrap [ErrGone] or [ErrAccess].
func Find(fs FS, pid int) (Process, error) {
	s, err := procfs.ReadStat(fs.root(), pid, make([]byte, procfs.MaxStat))
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, StartTime: s.StartTime, Parent: int(s.Parent),
		Command: string(s.Command), fs: fs}, nil
}

// IsRunning reports whether the process still exists, rather than another one
// that got its PID. A zombie does not run. The error says why it could not be
// found out.
func (p Process) IsRunning() (bool, error) {
	s, err := procfs.ReadStat(p.fs.root(), p.PID, make([]byte, procfs.MaxStat))
	switch {
	case err == nil:
		return s.StartTime == p.StartTime && (s.Size != 0 || s.IsLeaderless()), nil
	case errors.Is(err, ErrGone):
		return false, nil
	}
	return false, err
}

// Executable returns the path of the program that the process runs, as the
// process sees it. " (deleted)" is appended if there is nothing at that path
// any more. It needs access to the process.
func (p Process) Executable() (string, error) {
	root := p.fs.root()
	path, err := os.Readlink(procfs.Path(root, p.PID, "exe"))
	if err != nil {
		return "", &procfs.Error{PID: p.PID, Op: "read link exe", Err: procfs.Classify(err)}
	}
	return procfs.CutRoot(path, procfs.RootOf(root, p.PID)), nil
}

// Cgroup returns the text of /proc/PID/cgroup, a line per hierarchy, see
// cgroups(7). Runtimes put the ID of a container there.
func (p Process) Cgroup() (string, error) { return deadline.ReadCgroup(p.fs.root(), p.PID) }

// String returns PID and command: "1234 (postgres)".
func (p Process) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Command) }

// ProcessFile is a file with wanted probes in a process that maps it, as a
// watch has found it.
type ProcessFile struct {
	// Process is the process, as it was when the file appeared in it.
	Process Process
	// Path is the path as the process sees it: below its root directory and in
	// its mount namespace. It is a name such as "/memfd:name" for a file
	// without a path.
	Path string
}

// Reasons why a process, or a file that it maps, cannot be read. Compare with
// errors.Is: the error's text names the process and the file.
var (
	// ErrGone means that the process does not exist, or not any more.
	ErrGone = procfs.ErrGone
	// ErrAccess means that the kernel does not let the caller read the memory
	// maps of the process (PTRACE_MODE_READ_FSCREDS, see ptrace(2)). The errno,
	// EACCES or EPERM, is wrapped too. hidepid=noaccess on the proc file system
	// gives EPERM even for what everybody may read otherwise.
	ErrAccess = procfs.ErrAccess
	// ErrBlocked means that a process, or a file that it maps, does not answer:
	// its file system withholds something, or the process is stuck in the
	// kernel. A watch sets it aside until it answers.
	ErrBlocked = procfs.ErrBlocked
)
