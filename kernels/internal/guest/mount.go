// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mounts are the file systems of the guest, in the order in which they must
// be mounted. An optional one may be missing from the kernel.
func mounts() []mount {
	return []mount{
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
	}
}

type mount struct {
	kind, at string
	optional bool
}

func mountAll(list []mount) error {
	for _, m := range list {
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

// loadModules loads modules of the kernel, in this order.
func loadModules(files []string) error {
	for _, file := range files {
		if err := loadModule(file); err != nil {
			return fmt.Errorf("loading %s: %w", filepath.Base(file), err)
		}
	}
	return nil
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
	if err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	return nil
}
