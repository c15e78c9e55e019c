// SPDX-License-Identifier: BSD-2-Clause

// Command kprobe counts the writes that each statement of a database causes.
// The start and the end of a statement are USDT probes, a write is a kprobe,
// and the programs share a map.
//
//	kprobe PATH [PROVIDER:START PROVIDER:DONE]
//
// The first argument of the start is the text of the statement. Without probes
// they are those of PostgreSQL.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64,s390x,riscv64 -type text bpf kprobe.bpf.c -- -Wall -Wextra -Werror -I../.. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -idirafter /usr/include/s390x-linux-gnu

func main() {
	words := append(os.Args[1:], "postgresql:query__start", "postgresql:query__done")
	if len(os.Args) != 2 && len(os.Args) != 4 {
		log.Fatal("usage: kprobe PATH [PROVIDER:START PROVIDER:DONE]")
	}
	var probes [2]elfnote.Pattern
	for i := range probes {
		var err error
		if probes[i], err = elfnote.ParsePattern(words[1+i]); err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, usdt.Target{Path: words[0]}, probes[0], probes[1]); err != nil {
		log.Fatal(err)
	}
}

// run counts until the context ends, and prints then.
func run(
	ctx context.Context, out io.Writer, target usdt.Target, start, done elfnote.Pattern,
) error {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return err
	}
	spec, err := loadBpf()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, nil) // leaves the kprobe as it is
	if err != nil {
		return err
	}
	defer mgr.Close()
	var objs bpfObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		return err
	}
	defer objs.Close()

	writes, err := link.Kprobe("vfs_write", objs.OnWrite, nil)
	if err != nil {
		return err
	}
	defer writes.Close()
	// First the end: a start without one would count what comes after it.
	if _, err := mgr.Attach(objs.OnDone, target, nil, done); err != nil {
		return err
	}
	if _, err := mgr.Attach(objs.OnStart, target, nil, start); err != nil {
		return err
	}
	fmt.Fprintln(out, "attached")
	<-ctx.Done()

	counts := make(map[string]uint64)
	var text bpfText
	var count uint64
	entries := objs.Writes.Iterate()
	for entries.Next(&text, &count) {
		counts[unix.ByteSliceToString(text.Bytes[:])] = count
	}
	for _, statement := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "%8d  %q\n", counts[statement], statement)
	}
	return entries.Err()
}
