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
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr,
			"guest: this is the first process of an emulated machine: run the command kernels instead")
		os.Exit(2)
	}
	var plan platform.Plan
	if err := work(&plan); err != nil {
		report(plan, platform.Event{Kind: platform.Failed, Text: err.Error()})
	}
	// Turning off loses what the terminal has not sent yet.
	unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	// A board that cannot be turned off can be restarted: QEMU ends then too.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func work(plan *platform.Plan) error {
	mountError := mountAll()
	if err := openConsole(); err != nil {
		return err
	}
	text, err := os.ReadFile(platform.PlanFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, plan); err != nil {
		return fmt.Errorf("reading %s: %w", platform.PlanFile, err)
	}
	if mountError != nil {
		return mountError
	}
	for _, file := range plan.Modules {
		if err := loadModule(file); err != nil {
			return fmt.Errorf("loading %s: %w", filepath.Base(file), err)
		}
	}
	if err := applySettings(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("asking for the kernel's release: %w", err)
	}
	report(*plan,
		platform.Event{Kind: platform.Booted, Text: unix.ByteSliceToString(name.Release[:])})
	for i, job := range plan.Jobs {
		report(*plan, platform.Event{Kind: platform.Started, Job: i})
		status, err := run(job)
		if err != nil {
			return err
		}
		report(*plan, platform.Event{Kind: platform.Exited, Job: i, Status: status})
	}
	report(*plan, platform.Event{Kind: platform.Done})
	return nil
}

// report prints a marker, whatever the line has that was begun before.
func report(plan platform.Plan, e platform.Event) {
	fmt.Println(platform.Marker(plan.Token, e))
}

// mountAll mounts the file systems of the guest, in this order. An optional one
// may be missing from the kernel.
func mountAll() error {
	for _, m := range []struct {
		kind, at string
		optional bool
	}{
		{kind: "proc", at: "/proc"},
		{kind: "sysfs", at: "/sys"},
		{kind: "devtmpfs", at: "/dev"},
		{kind: "devpts", at: "/dev/pts", optional: true},
		{kind: "tmpfs", at: "/dev/shm"},
		{kind: "tmpfs", at: "/tmp"},
		{kind: "tmpfs", at: "/run"},
		{kind: "tracefs", at: "/sys/kernel/tracing"},
		{kind: "debugfs", at: "/sys/kernel/debug", optional: true},
		{kind: "bpf", at: "/sys/fs/bpf"},
		{kind: "cgroup2", at: "/sys/fs/cgroup"},
	} {
		// The directories in sysfs and devtmpfs are the kernel's: only some
		// can be made.
		if err := os.MkdirAll(m.at, 0o755); err != nil && !m.optional {
			return fmt.Errorf("making %s: %w", m.at, err)
		}
		err := unix.Mount(m.kind, m.at, m.kind, 0, "")
		// devtmpfs may be there already (CONFIG_DEVTMPFS_MOUNT).
		if err != nil && !errors.Is(err, unix.EBUSY) && !m.optional {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.at, err)
		}
	}
	return os.Chmod("/tmp", 0o777|os.ModeSticky)
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// openConsole makes the console the standard input and outputs of this
// process. The kernel does so only where the initramfs has the device file.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	for target := range 3 {
		if fd == target {
			continue
		}
		if err := unix.Dup3(fd, target, 0); err != nil {
			return fmt.Errorf("opening the console: %w", err)
		}
	}
	if fd > 2 {
		unix.Close(fd)
	}
	return nil
}

// applySettings makes the machine one that tests of a BPF loader want.
func applySettings() error {
	// Kernels before 5.11 charge BPF maps to this limit.
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return fmt.Errorf("lifting the limit of locked memory: %w", err)
	}
	if err := unix.Sethostname([]byte("gousdt-guest")); err != nil {
		return fmt.Errorf("setting the host's name: %w", err)
	}
	for _, s := range []struct{ file, value string }{
		// An oops ends the run: the host sees the panic, and no test goes on
		// with a broken kernel.
		{"/proc/sys/kernel/panic_on_oops", "1"},
		{"/proc/sys/kernel/kptr_restrict", "0"},
		{"/proc/sys/kernel/perf_event_paranoid", "-1"},
	} {
		if err := os.WriteFile(s.file, []byte(s.value), 0); err != nil {
			return err
		}
	}
	return upLoopback()
}

// upLoopback gives the guest the address 127.0.0.1.
func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var request *unix.Ifreq
		if request, err = unix.NewIfreq("lo"); err == nil {
			request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
		}
	}
	if err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	return nil
}
