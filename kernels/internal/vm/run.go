// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// Options say how a guest is run.
type Options struct {
	// Emulator is the QEMU of the guest's machine.
	Emulator Emulator
	// Kernel is the kernel's path on the host.
	Kernel string
	// Modules are the kernel's modules that the guest loads, as paths on the
	// host, in that order.
	Modules []string
	// Init is the guest's first process, from [BuildInit].
	Init string
	// Memory of the guest in megabytes; 0 is 1024.
	Memory int
	// BootTime is how long the guest may take until its first process runs; 0
	// is two minutes.
	BootTime time.Duration
	// Output is called with each line of the console: while a job runs with
	// the job's number, else with NoJob. A kernel's message is among a job's
	// lines. It may be nil.
	Output func(job int, line string)
}

// Result is how a guest's jobs went.
type Result struct {
	// Release is what the kernel calls itself (uname -r).
	Release string
	// Statuses are the exit statuses of the jobs that ended, by their numbers.
	Statuses map[int]int
	// Attempts is how often the guest was booted.
	Attempts int
	// Total is the time until the machine was off.
	Total time.Duration
}

// GuestError says that a guest came to an end without having run all its jobs.
type GuestError struct {
	// Reason is a sentence: the kernel's panic, what the first process could
	// not do, or that nothing was heard for too long.
	Reason string
	// Console is the end of what the guest said, Emulator all that QEMU did.
	Console []string
	// Emulator is what QEMU said, "" for nothing.
	Emulator string
}

func (e *GuestError) Error() string {
	text := "guest: " + e.Reason
	if e.Emulator != "" {
		text += "\n\tQEMU: " + e.Emulator
	}
	for _, line := range e.Console {
		text += "\n\t| " + line
	}
	return text
}

const (
	defaultMemory = 1024
	// defaultBootTime is generous: the slowest machine boots in four seconds,
	// but a busy host takes ten times that.
	defaultBootTime = 2 * time.Minute
	// jobGrace is what a job may take beyond its time: the guest ends it
	// earlier.
	jobGrace = 30 * time.Second
	// offTime is what a guest may take to turn itself off, or to restart after
	// a panic.
	offTime = 10 * time.Second
)

// BuildInit builds the first process for a machine in the directory dir, with
// the go command, from the repository in the directory repository, and returns
// its path.
func BuildInit(
	ctx context.Context, machine platform.Machine, repository, dir string,
) (string, error) {
	target := filepath.Join(dir, "init-"+machine.Name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", target,
		"./internal/guest")
	cmd.Dir = filepath.Join(repository, "kernels")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine.Name, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the guest's first process: %w\n%s", err, out)
	}
	return target, nil
}

// bootAttempts is how often a guest is started whose first process does not
// run. An emulated kernel that measures time while the host is busy may find
// its clock broken.
const bootAttempts = 2

// Run boots the guest and runs its jobs. A guest that does not come to its
// first process is booted once more. The result has what is known even if there
// is an error: a *GuestError where the guest did not run all jobs.
func (g *Guest) Run(ctx context.Context, o Options) (Result, error) {
	for attempt := 1; ; attempt++ {
		result, err := g.run(ctx, o)
		result.Attempts = attempt
		var guestError *GuestError
		if result.Release != "" || !errors.As(err, &guestError) || attempt == bootAttempts ||
			ctx.Err() != nil {
			return result, err
		}
	}
}

func (g *Guest) run(ctx context.Context, o Options) (Result, error) {
	start := time.Now()
	dir, err := os.MkdirTemp("", "gousdt-guest-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)

	token := rand.Text()
	initrd := filepath.Join(dir, "initramfs")
	if err := g.write(initrd, o, platform.Plan{Token: token, Jobs: g.jobs}); err != nil {
		return Result{}, err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newConsole(token, o.Output)
	limit := cmp.Or(o.BootTime, defaultBootTime)
	timeout := time.AfterFunc(limit,
		func() { cancel(fmt.Errorf("it did not boot within %v", limit)) })
	defer func() { timeout.Stop() }()
	c.onBoot = func() {
		work := offTime
		for _, job := range g.jobs {
			work += job.Timeout + jobGrace
		}
		timeout.Stop()
		timeout = time.AfterFunc(work, func() { cancel(fmt.Errorf("no verdict within %v", work)) })
	}
	said, err := emulate(ctx, o.Emulator.Command(ctx, arguments(g.machine, o, initrd)...), c)
	result := Result{Release: c.release, Statuses: c.statuses, Total: time.Since(start)}
	switch {
	case c.done && len(c.statuses) == len(g.jobs):
		return result, nil
	case c.failed != "":
		err = errors.New(c.failed)
	case c.panicked != "":
		err = errors.New(c.panicked)
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = errors.New("the machine went off before all tests were done")
	}
	return result, &GuestError{Reason: err.Error(), Console: c.last, Emulator: said}
}

// emulate runs QEMU and follows the guest's console. The result is what QEMU
// itself said.
func emulate(ctx context.Context, cmd *exec.Cmd, c *console) (said string, err error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting QEMU: %w", err)
	}
	readError := c.read(out)
	// A machine that does not turn itself off is turned off.
	off := time.AfterFunc(offTime, func() { cmd.Process.Kill() })
	defer off.Stop()
	// What is said after the last marker must not fill the pipe.
	_, drainError := io.Copy(io.Discard, out)
	waitError := cmd.Wait()
	return strings.TrimSpace(stderr.String()), errors.Join(readError, drainError, waitError)
}

// arguments are QEMU's.
func arguments(m platform.Machine, o Options, initrd string) []string {
	parameters := append([]string{
		"console=" + m.Console,
		"rdinit=/init",
		// Errors only: a kernel's message may break a line of the tests.
		"quiet",
		// A panic restarts the machine at once, and -no-reboot ends QEMU then.
		"panic=-1",
		// They cost much under emulation, and protect nothing.
		"mitigations=off",
	}, m.Parameters...)
	return append([]string{
		"-accel", "tcg",
		"-smp", "1",
		"-m", fmt.Sprintf("%dM", cmp.Or(o.Memory, defaultMemory)),
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "stdio",
		"-kernel", o.Kernel,
		"-initrd", initrd,
		"-append", strings.Join(parameters, " "),
	}, m.Arguments...)
}
