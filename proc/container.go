// SPDX-License-Identifier: BSD-2-Clause

package proc

import "github.com/gousdt/gousdt/internal/deadline"

// Container describes a container by the path of its cgroup.
type Container struct {
	// ID is the ID that the runtime gave the container, mostly 64 hexadecimal
	// digits. Users and tools shorten it to the first 12.
	ID string
	// Runtime is what made it: "docker", "containerd", "cri-o", "podman",
	// "lxc", "systemd-nspawn", or "" if the path does not say it.
	Runtime string
	// PodUID is the UID of the container's Kubernetes pod, in the form with
	// hyphens, or "".
	PodUID string
}

// ContainerOf returns the container that a cgroup belongs to, by its path, or
// by the text of /proc/PID/cgroup. That has a path for each hierarchy: the one
// of version 2 counts if it has a container.
//
// Of containers inside each other the outermost counts: the processes in it
// choose the names of those below. For the same reason, no container is found
// below a unit that is not a container runtime's, such as a user's
// user@1000.service.
func ContainerOf(cgroup string) (Container, bool) {
	c, ok := deadline.ContainerOf(cgroup)
	return Container{ID: c.ID, Runtime: c.Runtime, PodUID: c.PodUID}, ok
}

// UnitOf returns the outermost systemd unit in a cgroup's path, such as
// "postgresql@15-main.service", or "". The processes in a unit choose the names
// below it.
func UnitOf(cgroup string) string { return deadline.UnitOf(cgroup) }
