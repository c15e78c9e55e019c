// SPDX-License-Identifier: BSD-2-Clause

// Package container finds the container of a cgroup.
//
// Each container is a cgroup, whose path has the container's ID in a form that
// depends on the runtime. [Of] reads it:
//
//	/system.slice/docker-4c01db0b339c....scope              docker
//	/kubepods.slice/.../cri-containerd-8fb5....scope        containerd, in a pod
//	/machine.slice/libpod-1c2d....scope                     podman
//	/system.slice/postgresql@15-main.service                no container: a unit
//
// An eBPF program knows its process by the ID of its cgroup
// (bpf_get_current_cgroup_id, Linux 4.18), which is the same for all processes
// of a container, however short they live. [Watch] keeps the paths of all
// cgroups by their IDs. It keeps a path for two minutes after the cgroup was
// removed, until the last events that have its ID are read:
//
//	cgroups, err := container.Watch("")
//	if err != nil {
//		return err
//	}
//	defer cgroups.Close()
//	path, ok := cgroups.Path(id)
//	if c, isContainer := container.Of(path); ok && isContainer {
//		fmt.Println(c.Runtime, c.ID, c.PodUID)
//	}
//
// # Limits
//
// The ID is that of a cgroup of version 2. If a machine has its containers in
// the hierarchies of version 1 only, all of them have the ID of the root of
// version 2. Find the container by its process there, with
// [github.com/gousdt/gousdt/proc.Process.Cgroup], whose text [Of] takes, too.
//
// A user below user@1000.service, or a privileged container below its own
// cgroup, can make cgroups and name them like other containers. So the
// outermost container counts, and nothing counts below a unit that is no
// runtime's. It follows that the containers of Docker in Docker and the pods of
// kind are the container that they are in, and that containers of rootless
// podman are their user's unit.
package container
