// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Command guest is the first process of an emulated machine, and the only
// program in it beside the ones under test. It mounts the file systems that
// tests of a BPF loader want, runs the jobs of the plan it finds in the
// initramfs, reports on the console how they went, and turns the machine off.
//
// It is built for the machine without cgo, so that it needs no C library.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/kernels/internal/protocol"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr,
			"guest: this is the first process of an emulated machine; run the boot command instead")
		os.Exit(2)
	}
	var plan protocol.Plan
	if err := work(&plan); err != nil {
		report(plan, protocol.Event{Kind: protocol.Failed, Text: err.Error()})
	}
	// Turning off loses what the terminal has not sent yet.
	unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	// A board that cannot be turned off can be restarted: QEMU ends then too.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func work(plan *protocol.Plan) error {
	mountError := mountAll(mounts())
	if err := openConsole(); err != nil {
		return err
	}
	text, err := os.ReadFile(protocol.PlanFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, plan); err != nil {
		return fmt.Errorf("reading %s: %w", protocol.PlanFile, err)
	}
	if mountError != nil {
		return mountError
	}
	if err := loadModules(plan.Modules); err != nil {
		return err
	}
	if err := applySettings(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("asking for the kernel's release: %w", err)
	}
	report(*plan,
		protocol.Event{Kind: protocol.Booted, Text: unix.ByteSliceToString(name.Release[:])})
	for i, job := range plan.Jobs {
		report(*plan, protocol.Event{Kind: protocol.Started, Job: i})
		status, err := run(job)
		if err != nil {
			return err
		}
		report(*plan, protocol.Event{Kind: protocol.Exited, Job: i, Status: status})
	}
	report(*plan, protocol.Event{Kind: protocol.Done})
	return nil
}

// report prints a marker on a line of its own. What was printed before may
// have ended without a line feed; the host drops an empty line before a
// marker.
func report(plan protocol.Plan, e protocol.Event) {
	fmt.Printf("\n%s\n", protocol.Marker(plan.Token, e))
}
