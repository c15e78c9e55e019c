// SPDX-License-Identifier: BSD-2-Clause

package container_test

import (
	"fmt"

	"github.com/gousdt/gousdt/container"
)

// The container of a process in a Kubernetes pod, from the path of its cgroup.
func ExampleOf() {
	c, ok := container.Of("/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/" +
		"cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope")
	if !ok {
		fmt.Println("no container")
		return
	}
	fmt.Println(c.Runtime, c.Short(), c.PodUID)
	// Output: containerd 0123456789ab 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9
}
