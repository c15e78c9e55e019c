// SPDX-License-Identifier: BSD-2-Clause

// An agent in a module of its own, as users write them: it runs in a container
// with the proc file system of its host mounted, attaches to a program of the
// host, and exports a histogram.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// exporter sums what it takes, for a protocol with cumulative histograms.
type exporter struct {
	values *trace.Aggregation
	count  uint64
	zero   uint64
	below  map[int]uint64 // counts of buckets by their index
	above  map[int]uint64
}

func (e *exporter) export(session *trace.Session) error {
	taken, err := session.Take(e.values)
	if err != nil {
		return err
	}
	for _, row := range append(taken[0].Rows, taken[0].Other) {
		for _, b := range row.Histogram(0) {
			switch high := b.High.Float(); {
			case high > 0:
				e.above[b.Index] += b.Count
			case high < 0:
				e.below[b.Index] += b.Count
			default:
				e.zero += b.Count
			}
		}
		e.count += row.Count
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, proc.FS(os.Args[1]), os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, host proc.FS, command string) error {
	exported := &exporter{below: map[int]uint64{}, above: map[int]uint64{}, values: &trace.Aggregation{
		Value: "arg0", Histogram: trace.Exponential(8, 1)}}
	session, err := trace.New(&trace.SessionOptions{
		Definitions:  trace.BuiltinDefinitions(),
		Events:       &trace.EventOptions{SamplePerSecond: 1000},
		Aggregations: []*trace.Aggregation{exported.values},
	})
	if err != nil {
		return err
	}
	defer session.Close()
	options := watch.Options{Proc: host, Filter: func(p proc.Process) bool {
		again, err := proc.Find(host, p.PID)
		return err == nil && again.StartTime == p.StartTime && p.Command == command
	}}
	probes := session.Part(elfnote.Exact("gousdt_test", "three"))
	changed := func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			fmt.Printf("attached %s: %d site\n", a.Path(), len(a.Sites()))
		}
	}
	w, err := watch.New(&options, changed, probes)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Sync(ctx, 0); err != nil {
		return err
	}
	fmt.Println("kernel events:", w.Stats().EventsError == nil)

	options.PerProcess = true
	if other, err := watch.New(&options, nil, probes); err == nil {
		other.Close()
		return fmt.Errorf("attaches to single processes of %s", host)
	}

	running, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running, time.Second) }()
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	for event, err := range session.Events(running) {
		if err != nil {
			return err
		}
		fmt.Println("event", event.Site.Name, len(event.Args))
		break
	}
	if err := exported.export(session); err != nil {
		return err
	}
	inBuckets := exported.zero
	for _, counts := range []map[int]uint64{exported.below, exported.above} {
		for _, n := range counts {
			inBuckets += n
		}
	}
	fmt.Println("exported", exported.count, inBuckets)
	cancel()
	fmt.Println("ended:", <-ended)
	return nil
}
