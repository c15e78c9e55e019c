// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

// Command bpf2go prints the functions that Python programs call. It has the
// form that tutorials of eBPF in Go teach, with a USDT probe in the place of a
// tracepoint.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

//go:generate go run github.com/gousdt/gousdt/usdt/bpf/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -type call python python.bpf.c -- -Wall -Wextra -Werror

func main() {
	path := flag.String("python", "python3",
		"the Python whose calls are printed, a path or a name in $PATH")
	pid := flag.Int("pid", 0, "print the calls of this process only")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *pid == 0 {
		var err error
		if *path, err = libbpf.FindFile(*path); err != nil {
			log.Fatal(err)
		}
	}
	if err := run(ctx, os.Stdout, usdt.Target{Path: *path, PID: *pid}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, target usdt.Target) error {
	var objs pythonObjects
	mgr, err := load(&objs)
	if err != nil {
		return err
	}
	defer mgr.Close() // detaches, too
	defer objs.Close()

	events, err := ringbuf.NewReader(objs.Ring)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()

	if _, err := mgr.Attach(objs.OnCall, target, nil,
		elfnote.Exact("python", "function__entry")); err != nil {
		return err
	}
	fmt.Fprintln(out, "attached")
	for {
		record, err := events.Read()
		if errors.Is(err, ringbuf.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		if err := printCall(out, record.RawSample); err != nil {
			return err
		}
	}
}

// load loads the programs and maps that objs names, by a Manager that attaches
// them.
func load(objs any) (*usdt.Manager, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return nil, err
	}
	spec, err := loadPython()
	if err != nil {
		return nil, err
	}
	mgr, err := usdt.NewManager(spec, nil) // between reading the object and loading it
	if err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(objs, mgr.CollectionOptions()); err != nil {
		return nil, errors.Join(err, mgr.Close())
	}
	return mgr, nil
}

func printCall(out io.Writer, sample []byte) error {
	var call pythonCall
	if err := binary.Read(bytes.NewReader(sample), binary.NativeEndian, &call); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d %s:%d %s\n", call.Pid,
		unix.ByteSliceToString(call.File[:]), call.Line, unix.ByteSliceToString(call.Function[:]))
	return err
}
