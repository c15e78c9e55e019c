// SPDX-License-Identifier: BSD-2-Clause

// Command sleepable prints the memory that the first argument of a probe points
// to. A program that sleeps waits for a page that is not in memory yet, such as
// one of a file that nobody has touched; with -hurry a plain program is
// attached, which cannot read it.
//
//	sleepable [-hurry] PATH PROVIDER:NAME
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

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 -type event bpf sleepable.bpf.c -- -Wall -Wextra -Werror -I../.. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu

func main() {
	hurry := flag.Bool("hurry", false, "do not wait for memory")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: sleepable [-hurry] PATH PROVIDER:NAME")
	}
	probe, err := elfnote.ParsePattern(flag.Arg(1))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, usdt.Target{Path: flag.Arg(0)}, probe, *hurry); err != nil {
		log.Fatal(err)
	}
}

func run(
	ctx context.Context, out io.Writer, target usdt.Target, probe elfnote.Pattern, hurry bool,
) error {
	spec, err := loadBpf()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		return err
	}
	defer mgr.Close()
	var objs bpfObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		return fmt.Errorf("sleepable programs need Linux 6.0: %w", err)
	}
	defer objs.Close()

	events, err := ringbuf.NewReader(objs.Events)
	if err != nil {
		return err
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()
	programs := map[bool]*ebpf.Program{false: objs.Waits, true: objs.Hurries}
	if _, err := mgr.Attach(programs[hurry], target, nil, probe); err != nil {
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
		var event bpfEvent
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
			&event); err != nil {
			return err
		}
		if event.Err != 0 {
			fmt.Fprintln(out, "cannot be read:", syscall.Errno(-event.Err))
			continue
		}
		fmt.Fprintf(out, "%q\n", event.Bytes)
	}
}
