// SPDX-License-Identifier: BSD-2-Clause

package proc_test

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/gousdt/gousdt/usdt/proc"
)

// The processes of containers, and of these only those that run Python.
func ExampleProcess() {
	wanted := func(p proc.Process) bool {
		cgroup, err := p.Cgroup()
		if err != nil || !strings.Contains(cgroup, "kubepods") {
			return false
		}
		program, err := p.Executable() // as the process itself sees it
		return err == nil && strings.HasPrefix(program, "/usr/bin/python3")
	}
	p, err := proc.Find("", os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	if wanted(p) {
		fmt.Println(p)
	}
}

// A process is the same as long as its number and its start are.
func ExampleProcess_IsRunning() {
	self, err := proc.Find("", os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	running, err := self.IsRunning()
	fmt.Println(running, err)
	// Output: true <nil>
}
