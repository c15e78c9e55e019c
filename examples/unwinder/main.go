// SPDX-License-Identifier: BSD-2-Clause

// Command unwinder prints who passes a probe: the stack, which BPF programs
// walk that call each other by tail calls. Profilers that unwind in the kernel
// have this shape.
//
//	unwinder PATH PROVIDER:NAME [PID]
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/usdt"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 -type sample bpf unwinder.bpf.c -- -Wall -Wextra -Werror -I../.. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		log.Fatal("usage: unwinder PATH PROVIDER:NAME [PID]")
	}
	target := usdt.Target{Path: os.Args[1]}
	probe, err := elfnote.ParsePattern(os.Args[2])
	if err == nil && len(os.Args) == 4 {
		target.PID, err = strconv.Atoi(os.Args[3])
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, target, probe); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, target usdt.Target, probe elfnote.Pattern) error {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return err
	}
	spec, err := loadBpf()
	if err != nil {
		return err
	}
	// A program array takes programs of one attach type only, so the Manager
	// attaches by perf events. The object need not say anything about it.
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		return err
	}
	defer mgr.Close()
	var objs bpfObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		return err
	}
	defer objs.Close()
	if err := objs.Programs.Put(uint32(0), objs.Unwind); err != nil {
		return err
	}

	events, err := ringbuf.NewReader(objs.Events)
	if err != nil {
		return err
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	if _, err := mgr.Attach(objs.OnProbe, target, nil, probe); err != nil {
		return err
	}
	fmt.Fprintln(out, "attached")

	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	for {
		record, err := events.Read()
		if errors.Is(err, ringbuf.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		var sample bpfSample
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
			&sample); err != nil {
			return err
		}
		fmt.Fprintf(out, "process %d, argument %d, %d tail calls\n", sample.Pid, sample.Argument,
			sample.Programs)
		frames := sample.Stack[:min(int(sample.Count), len(sample.Stack))]
		for _, frame := range symbolizer.Frames(ctx, int(sample.Pid), frames) {
			fmt.Fprintf(out, "\t%q\n", frame)
		}
	}
}
