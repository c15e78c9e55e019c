// SPDX-License-Identifier: BSD-2-Clause

// Command agent says every ten seconds how long the statements of all
// PostgreSQL servers on the host took, for each container. It is what
// docs/agent.md builds, step by step.
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
	"syscall"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

func main() {
	interval := flag.Duration("interval", 10*time.Second, "how often to print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *interval); err != nil {
		log.Fatal(err)
	}
}

// statement is a call that a definition makes of several probes: statements of
// PostgreSQL, in every protocol.
const statement = "postgresql:statement"

// statements returns what is measured: the time of each statement, in a
// histogram for each container.
func statements() *trace.Aggregation {
	return &trace.Aggregation{
		Latency:   &trace.Latency{Pair: statement},
		Histogram: &trace.Histogram{},
		By:        []string{"container"},
		MaxKeys:   1000, // containers; all others are in one row
	}
}

func run(ctx context.Context, out io.Writer, interval time.Duration) error {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before 5.11
		return err
	}
	cgroups, err := proc.WatchCgroups("")
	if err != nil {
		return err
	}
	defer cgroups.Close()
	times, definitions := statements(), trace.BuiltinDefinitions()
	probes, err := definitions.Patterns(statement)
	if err != nil {
		return err
	}
	session, err := trace.New(&trace.SessionOptions{
		Definitions:  definitions,
		Aggregations: []*trace.Aggregation{times}, // alone: nothing is sent for a statement
		Containers:   cgroups,
	})
	if err != nil {
		return err
	}
	defer session.Close()                                     // detaches, too
	w, err := watch.New(nil, report, session.Part(probes...)) // in files that have these
	if err != nil {
		return err
	}
	defer w.Close()

	failed := make(chan error, 1)
	go func() { failed <- w.Run(ctx, interval) }()
	for {
		select {
		case err := <-failed:
			if ctx.Err() != nil { // it is asked to end
				return nil
			}
			return err
		case <-time.After(interval):
			if err := printRows(out, session); err != nil {
				return err
			}
		}
	}
}

// report logs what came and went, and what could not be attached.
func report(changes *watch.Changes[*trace.Attachment]) {
	for _, a := range changes.Attached {
		log.Printf("watching %d sites of %q", len(a.Sites()), a.Path())
	}
	for _, err := range changes.Errors {
		if !errors.Is(err, proc.ErrAccess) { // processes of others, if not root
			log.Printf("%q", err)
		}
	}
}

// printRows prints what has come since it was called last.
func printRows(out io.Writer, session *trace.Session) error {
	snapshots, err := session.Take()
	if err != nil {
		return err
	}
	for _, row := range snapshots[0].Rows {
		fmt.Fprintf(out, "%v  %d statements, half of them within %v, 99 %% within %v\n", row.Keys[0],
			row.Count,
			time.Duration(row.Quantile(0.5)), time.Duration(row.Quantile(0.99)))
	}
	return nil
}
