// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// watch starts the program, attaches to its probe and prints so many events.
func watch(ctx context.Context, out io.Writer, path string, events int) error {
	// Needed before 5.11. Who may not do that may not attach either, and
	// NewManager says so better.
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	spec, err := loadDemo()
	if err != nil {
		return err
	}
	mgr, err := usdt.NewManager(spec, nil)
	if err != nil {
		return err
	}
	defer mgr.Close() // detaches, too
	var objs demoObjects
	if err := mgr.LoadAndAssign(&objs, nil); err != nil {
		return err
	}
	defer objs.Close()

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
	if _, err := mgr.Attach(objs.OnSale, target, nil,
		elfnote.Exact("gousdt_demo", "sale")); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n# Attached to gousdt_demo:sale of process %d (%v). Its next %d sales:\n",
		program.Process.Pid, mgr.Mode(), events)
	return print(ctx, out, &objs, events)
}

func print(ctx context.Context, out io.Writer, objs *demoObjects, events int) error {
	sales, err := ringbuf.NewReader(objs.Sales)
	if err != nil {
		return err
	}
	defer sales.Close()
	defer context.AfterFunc(ctx, func() { sales.Close() })()
	for range events {
		record, err := sales.Read()
		if errors.Is(err, ringbuf.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		var sale demoSale
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
			&sale); err != nil {
			return err
		}
		name := make([]byte, len(sale.Name))
		for i, c := range sale.Name {
			name[i] = byte(c)
		}
		fmt.Fprintf(out, "pid %d  sale  name=%q  pieces=%d  price=%.2f\n",
			sale.Pid, unix.ByteSliceToString(name), sale.Pieces, math.Float64frombits(sale.Price))
	}
	return nil
}
