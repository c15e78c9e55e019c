// SPDX-License-Identifier: BSD-2-Clause

//go:build 386 || amd64 || arm64

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/usdt"
)

// withPerfBuffer is the variant for old kernels. It loads only its own program,
// since they know no ring buffer.
func withPerfBuffer(ctx context.Context, out io.Writer, target usdt.Target) error {
	var objs struct {
		ToPerf *ebpf.Program `ebpf:"to_perf"`
		Perf   *ebpf.Map     `ebpf:"perf"`
	}
	mgr, err := load(&objs)
	if err != nil {
		return err
	}
	defer mgr.Close()
	defer objs.ToPerf.Close()
	defer objs.Perf.Close()

	events, err := perf.NewReader(objs.Perf, 64*os.Getpagesize())
	if err != nil {
		return err
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { events.Close() })()

	if _, err := mgr.Attach(objs.ToPerf, target, nil,
		elfnote.Exact("python", "function__entry")); err != nil {
		return err
	}
	fmt.Fprintln(out, "attached")
	for {
		record, err := events.Read()
		switch {
		case errors.Is(err, perf.ErrClosed):
			return nil
		case err != nil:
			return err
		case record.LostSamples > 0:
			fmt.Fprintln(out, "lost", record.LostSamples)
		default:
			if err := printCall(out, record.RawSample); err != nil {
				return err
			}
		}
	}
}
