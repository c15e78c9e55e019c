// SPDX-License-Identifier: BSD-2-Clause

// Command demo shows the whole way once, on a small program that it starts
// itself: it lists the program's probes, attaches to one of them and prints
// what the program passes. Run it by make demo, or by go run ./examples/demo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func main() {
	log.SetFlags(0)
	events := flag.Int("events", 9, "stop after this many events")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *events); err != nil {
		log.Fatal("demo: ", err)
	}
}

func run(ctx context.Context, out io.Writer, events int) error {
	path, err := build(ctx, out)
	if err != nil {
		return err
	}
	if err := list(ctx, out, path); err != nil {
		return err
	}
	err = watch(ctx, out, path, events)
	var denied *usdt.PermissionError
	if errors.As(err, &denied) {
		fmt.Fprint(out, needs(denied))
		return nil
	}
	return err
}

// build compiles testdata/demo.c.
func build(ctx context.Context, out io.Writer) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module (run this inside it): %w", err)
	}
	testdata := filepath.Join(strings.TrimSpace(string(root)), "testdata")
	program := filepath.Join("build", runtime.GOARCH, "demo")
	fmt.Fprintln(out, "# The traced program, testdata/demo.c:")
	if err := execute(ctx, out, "make", "-C", testdata, "--no-print-directory",
		"ARCH="+runtime.GOARCH, program); err != nil {
		return "", err
	}
	return filepath.Join(testdata, program), nil
}

// list needs no privilege, and the program need not run.
func list(ctx context.Context, out io.Writer, path string) error {
	fmt.Fprintln(out, "\n# Its probes:")
	return execute(ctx, out, "go", "run", "github.com/gousdt/gousdt/cmd/usdtlist", "-v", path)
}

// execute shows a command as one would type it, and runs it.
func execute(ctx context.Context, out io.Writer, arguments ...string) error {
	fmt.Fprintf(out, "$ %s\n", strings.Join(arguments, " "))
	cmd := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", arguments[0], err)
	}
	return nil
}

// watch starts the program, attaches to its probe and prints events.
func watch(ctx context.Context, out io.Writer, path string, events int) error {
	program := exec.CommandContext(ctx, path)
	stdin, err := program.StdinPipe() // when it is closed, the program ends
	if err != nil {
		return err
	}
	if err := program.Start(); err != nil {
		return err
	}
	defer program.Wait()
	defer stdin.Close()

	target := usdt.Target{Path: path, PID: program.Process.Pid}
	session, err := trace.Open(target, &trace.SessionOptions{
		Captures: []trace.Capture{{Arg: "arg0"}}, // the text that the argument points to
	}, elfnote.Exact("gousdt_demo", "sale"))
	if err != nil {
		return err
	}
	defer session.Close() // detaches, too
	fmt.Fprintf(out, "\n# Attached to gousdt_demo:sale of process %d (%v). Its next %d sales:\n",
		program.Process.Pid, session.Mode(), events)
	for event, err := range session.Events(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "pid %d  sale  name=%v  pieces=%d  price=%.2f\n", event.PID,
			event.Args[0], event.Args[1].Int(), event.Args[2].Float())
		if events--; events <= 0 {
			break
		}
	}
	return nil
}

// needs says what is missing to attach, to somebody who has seen the list.
func needs(err *usdt.PermissionError) string {
	return fmt.Sprintf(`
# Attaching: not permitted.
%v

The probes above were read from the file, which anybody may. To attach a BPF
program to them the kernel wants either root:

    sudo env PATH="$PATH" make demo

or a binary with these capabilities (Linux 6.6 and later; older ones, brought up
to date, want CAP_SYS_ADMIN instead):

    CAP_BPF       load BPF programs and maps
    CAP_PERFMON   attach them to other programs

    go build -o demo ./examples/demo && sudo setcap cap_bpf,cap_perfmon+ep demo && ./demo
`, err)
}
