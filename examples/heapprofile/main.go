// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/stack"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 heap heap.bpf.c -- -Wall -Wextra -Werror -I../.. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu

// maxPeriod keeps twice the period within the 32 bits of a random number.
const maxPeriod = 1<<31 - 1

// options are the command line.
type options struct {
	pids   []int // none are all processes
	period uint64
	output string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("heapprofile: ")
	var o options
	flag.StringVar(&o.output, "o", "heap.pb.gz", "write the profile to this `file`")
	flag.Uint64Var(&o.period, "period", 512<<10,
		"sample one of so many `bytes`; 1 is every allocation")
	duration := flag.Duration("for", 0, "stop after this `time` (0: when interrupted)")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "Usage: heapprofile [flags] [PID...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	for _, word := range flag.Args() {
		pid, err := strconv.Atoi(word)
		if err != nil {
			log.Fatalf("%s: want the number of a process", word)
		}
		o.pids = append(o.pids, pid)
	}
	if o.period == 0 || o.period > maxPeriod {
		log.Fatalf("-period %d: want 1 to %d", o.period, maxPeriod)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *duration > 0 {
		ctx, stop = context.WithTimeout(ctx, *duration)
		defer stop()
	}
	if err := run(ctx, os.Stderr, &o); err != nil {
		log.Fatal(err)
	}
}

// run profiles until the context ends.
func run(ctx context.Context, messages io.Writer, o *options) error {
	// Needed before 5.11. Who may not do that may not attach either, and the
	// tracer says so better.
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	start := time.Now()
	symbolizer := stack.NewSymbolizer(nil)
	defer symbolizer.Close()
	t, err := newTracer(o, symbolizer, messages)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.run(ctx); err != nil {
		return err
	}

	symbolizer.Refresh()
	p, err := newProfile(t, symbolizer)
	if err != nil {
		return err
	}
	p.Period, p.Start, p.Duration = int64(o.period), start, time.Since(start)
	file, err := os.Create(o.output)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(file), file.Close())
}
