// SPDX-License-Identifier: BSD-2-Clause

package proc_test

import (
	"fmt"
	"os"

	"github.com/gousdt/gousdt/usdt/proc"
)

// The container of a process in a Kubernetes pod, from the path of its cgroup.
func ExampleContainerOf() {
	c, ok := proc.ContainerOf("/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/" +
		"cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope")
	if !ok {
		fmt.Println("no container")
		return
	}
	fmt.Println(c.Runtime, c.ID, c.PodUID)
	// Output:
	// containerd 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9
}

// The container of a process, whichever versions of cgroups its machine has.
func ExampleContainerOf_process() {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		fmt.Println(err)
		return
	}
	if c, ok := proc.ContainerOf(string(text)); ok {
		fmt.Println(c.Runtime, c.ID)
	}
}

// The systemd unit of a cgroup.
func ExampleUnitOf() {
	fmt.Println(proc.UnitOf("/system.slice/postgresql@15-main.service"))
	// Output: postgresql@15-main.service
}

// The cgroups of a machine, to name the one that an eBPF program has seen.
func ExampleWatchCgroups() {
	cgroups, err := proc.WatchCgroups("")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cgroups.Close()
	if err := cgroups.Err(); err != nil {
		fmt.Println("some may be unknown once they are removed:", err)
	}
	fmt.Println(cgroups.Name(1), cgroups.Exists(1)) // the root
	ids, err := cgroups.IDs("4c01db0b339c")
	fmt.Println(ids, err) // those of a container
}
