// SPDX-License-Identifier: BSD-2-Clause

// Command guest is the first process of an emulated machine, and the only
// program in it beside the test and the traced programs. It mounts the file
// systems that tests of a BPF loader want, runs the test, prints how it ended,
// and turns the machine off. Script boot reads what it prints.
//
// It is built without cgo, so that it needs no C library.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the first process of an emulated machine: see internal/kernels/run")
		os.Exit(2)
	}
	status, err := run()
	if err != nil {
		fmt.Println("guest:", err)
		status = 1
	}
	fmt.Println("@gousdt-guest ended", status)
	// Turning off loses what the terminal has not sent yet.
	unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	// A board that cannot be turned off can be restarted: QEMU ends then too.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// run runs the test. The result is an exit status as a shell gives it.
func run() (int, error) {
	mountError := mountAll()
	if err := openConsole(); err != nil {
		return 0, err
	}
	if mountError != nil {
		return 0, mountError
	}
	if err := prepare(); err != nil {
		return 0, err
	}
	arguments, err1 := words("/gousdt/arguments")
	environment, err2 := words("/gousdt/environment")
	null, err3 := os.Open(os.DevNull)
	var name unix.Utsname
	if err := errors.Join(err1, err2, err3, unix.Uname(&name)); err != nil {
		return 0, err
	}
	fmt.Println("@gousdt-guest booted", unix.ByteSliceToString(name.Release[:]))
	// Not os/exec: that waits for one process, and the first process must wait
	// for all of them.
	pid, err := syscall.ForkExec(arguments[0], arguments, &syscall.ProcAttr{
		Dir: filepath.Dir(arguments[0]), Env: environment, Files: []uintptr{null.Fd(), 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", arguments[0], err)
	}
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the test: %w", err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// words reads a file of words, each of which ends with a byte 0.
func words(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), err
}

func mountAll() error {
	for _, m := range []struct {
		kind, at string
		optional bool // the kernel may lack it
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
			return err
		}
		err := unix.Mount(m.kind, m.at, m.kind, 0, "")
		// devtmpfs may be there already (CONFIG_DEVTMPFS_MOUNT).
		if err != nil && !errors.Is(err, unix.EBUSY) && !m.optional {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.at, err)
		}
	}
	return os.Chmod("/tmp", 0o777|os.ModeSticky)
}

// openConsole makes the console the standard input and outputs of this
// process. The kernel does so only where the initramfs has the device file.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR, 0)
	for target := 0; target < 3 && err == nil; target++ {
		if fd != target { // Dup3 refuses equal ones
			err = unix.Dup3(fd, target, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	if fd > 2 {
		unix.Close(fd)
	}
	return nil
}

// prepare makes the machine one that tests of a BPF loader want.
func prepare() error {
	modules, _ := filepath.Glob("/gousdt/modules/*.ko") // the pattern is a good one
	for _, module := range modules {
		f, err := os.Open(module)
		if err == nil {
			err = unix.FinitModule(int(f.Fd()), "", 0)
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("loading %s: %w", module, err)
		}
	}
	for _, s := range []struct{ file, value string }{
		// An oops ends the run: boot sees the panic, and no test goes on with a
		// broken kernel.
		{"/proc/sys/kernel/panic_on_oops", "1"},
		{"/proc/sys/kernel/kptr_restrict", "0"},
		{"/proc/sys/kernel/perf_event_paranoid", "-1"},
		{"/proc/sys/kernel/hostname", "gousdt-guest"},
	} {
		if err := os.WriteFile(s.file, []byte(s.value), 0); err != nil {
			return err
		}
	}
	// Kernels before 5.11 charge BPF maps to this limit.
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return fmt.Errorf("lifting the limit of locked memory: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var loopback *unix.Ifreq
		if loopback, err = unix.NewIfreq("lo"); err == nil {
			loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback)
		}
	}
	if err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	return nil
}
