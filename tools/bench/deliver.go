// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

const (
	byTrace         = "package trace, events reused"
	byKeeper        = "package trace, each event kept"
	byLibbpfDecoded = "libbpf, decoded into a struct"
	byLibbpfCalling = "libbpf, decoded for a function"
	byAllocator     = "Go, as much memory and nothing else"
	byFiller        = "Go, as much memory, filled"
)

// keptMemory is as large as an event of up to four arguments that is kept, and
// has pointers, too.
type keptMemory [368 / 8]*byte

// allocated is the last one. filled has a pointer in every fourth word, as an
// event of four arguments has.
var allocated, filled = new(keptMemory), func() (all keptMemory) {
	for i := 0; i < len(all); i += 4 {
		all[i] = new(byte)
	}
	return all
}()

// delivered is a kind of event that is delivered.
type delivered struct {
	name, title string
	probe       string // of peers/target.c, without the twin
	words       int    // arguments of eight bytes
	text        int    // how many bytes of the first one's text are sent, 0 for none
	header      bool   // time, process and thread are sent, too
}

var deliveredKinds = []delivered{
	{name: "3", title: "three integers", probe: "registers3", words: 3},
	{name: "text", title: "one text of 32 bytes", probe: "text1", words: 1, text: 32},
	{name: "header3", title: "three integers, time, process, thread, its name and processor",
		probe: "registers3", words: 3, header: true},
}

// losslessKind is what a session sends by default, and what the commands print.
var losslessKind = deliveredKinds[len(deliveredKinds)-1]

func deliverRows() []row {
	var rows []row
	for _, d := range deliveredKinds {
		rows = append(rows, row{
			name:   "deliver/time" + d.name,
			title:  "one event from the ring buffer to a loop that adds up what is in it, processor time: " + d.title,
			rounds: 15,
			goals: []goal{
				{Of: byTrace, Than: byLibbpfCalling, Times: 1.5},
				{Of: byKeeper, Than: byFiller, Times: 1.25},
			},
			prepare: func(e *env) ([]contestant, error) { return e.deliveries(d) },
		})
	}
	return rows
}

// eventsAtATime is the number of events in each round: enough that beginning an
// iteration counts for little.
const eventsAtATime = 60_000

// deliveries are readers of ring buffers with the same events: a reader knows
// itself how far it has read. Events are sent and read on one processor.
func (e *env) deliveries(d delivered) ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	processor, err := oneProcessor()
	if err != nil {
		return nil, err
	}
	if err := keepOn(processor, target.PID()); err != nil {
		return nil, err
	}
	var sessions [3]*delivery
	for twin := range sessions {
		sessions[twin], err = e.deliver(d, path, target, twin,
			trace.EventOptions{RingSize: ringSize, ReuseEvents: twin == 0})
		if err != nil {
			return nil, err
		}
	}
	reused, kept, theirs := sessions[0], sessions[1], sessions[2]
	by := func(name string, v *delivery, read func() (spent float64, sum uint64, err error)) contestant {
		return once(name, func() (float64, error) {
			runtime.GC()                                                           // what others have left is not this one's
			if _, err := v.target.Ask("run", v.probe, eventsAtATime); err != nil { // nobody waits for them
				return 0, err
			}
			var spent float64
			var sum uint64
			err := runOn(processor, func() (err error) {
				spent, sum, err = read()
				return err
			})
			if err != nil {
				return 0, err
			}
			if v.sum = cmp.Or(v.sum, sum); sum != v.sum {
				err = fmt.Errorf("what was read adds up to %d, not %d", sum, v.sum)
			}
			return spent / eventsAtATime, err
		})
	}
	// Other threads collect garbage: with kept events, their time counts. With
	// reused events there is none, and they only take what Go takes once after
	// it was idle.
	all := []contestant{
		by(byTrace, reused, func() (float64, uint64, error) { return reused.receive(threadTime) }),
		by(byKeeper, kept, func() (float64, uint64, error) { return kept.receive(processorTime) }),
		allocating(byAllocator, processor, func() { allocated = new(keptMemory) }),
		allocating(byFiller, processor, func() {
			allocated = new(keptMemory)
			*allocated = filled
		}),
	}
	libbpf, err := e.start("libbpf")
	if err != nil {
		return append(all, missing(byLibbpfDecoded, err)), nil
	}
	if err := keepOn(processor, libbpf.PID()); err != nil {
		return nil, err
	}
	if _, err := libbpf.Ask("ring", newestRing()); err != nil {
		return nil, err
	}
	header := 0
	if d.header {
		header = 1
	}
	decoding := func(name, command string) contestant {
		return by(name, theirs, func() (spent float64, sum uint64, err error) {
			came, signed := 0, int64(0)
			err = libbpf.Scan([]any{command, header, d.words, d.text}, &came, &spent, &signed)
			if err == nil && came != eventsAtATime {
				err = fmt.Errorf("%d of %d events came", came, eventsAtATime)
			}
			return spent, uint64(signed), err
		})
	}
	return append(all, decoding(byLibbpfDecoded, "read"), decoding(byLibbpfCalling, "call")), nil
}

// allocating is a contestant that does nothing but allocate, as often as there
// are events.
func allocating(name string, processor *unix.CPUSet, allocate func()) contestant {
	return once(name, func() (spent float64, err error) {
		runtime.GC()
		err = runOn(processor, func() (err error) {
			spent, err = processorTime(func() error {
				for range eventsAtATime {
					allocate()
				}
				runtime.KeepAlive(allocated)
				return nil
			})
			return err
		})
		return spent / eventsAtATime, err
	})
}

// delivery is a session whose events are delivered, to itself or to libbpf.
type delivery struct {
	of      delivered
	session *trace.Session
	target  *peer
	probe   string
	sum     uint64 // of what is in eventsAtATime
}

// startTarget starts a copy of peers/target.c: another run's hits of the same
// file would be seen here.
func (e *env) startTarget() (path string, target *peer, err error) {
	if runtime.GOARCH != "amd64" {
		return "", nil, &unableError{"the sites in peers/target.c are written for x86-64"}
	}
	built, err := buildPeer("target")
	if err != nil {
		return "", nil, &unableError{err.Error()}
	}
	dir, err := os.MkdirTemp(e.dir, "copy-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "target")
	if err := exec.Command("cp", built, path).Run(); err != nil {
		return "", nil, err
	}
	target, err = e.untilClosed(startCommand(exec.Command(path)))
	return path, target, err
}

// deliver opens a session for one of the target's twins.
func (e *env) deliver(
	d delivered, path string, target *peer, twin int, events trace.EventOptions,
) (*delivery, error) {
	if d.text > 0 {
		events.Captures = []trace.Capture{{Arg: "arg0", Max: d.text}}
	}
	events.ArgumentsOnly = !d.header
	session, err := e.session(trace.SessionOptions{Events: &events})
	if err != nil {
		return nil, err
	}
	v := &delivery{of: d, session: session, target: target, probe: fmt.Sprintf("%s_%d", d.probe, twin)}
	_, err = session.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("bench", v.probe))
	return v, err
}

// newestRing returns the ID of the newest ring buffer of this process. A
// session does not say which is its own.
func newestRing() (newest ebpf.MapID) {
	infos, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, name := range infos {
		text, _ := os.ReadFile(name) // that of the folder itself has gone
		kind, id := 0, ebpf.MapID(0)
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "map_type:\t%d", &kind)
			fmt.Sscanf(line, "map_id:\t%d", &id)
		}
		if ebpf.MapType(kind) == ebpf.RingBuf {
			newest = max(newest, id)
		}
	}
	return newest
}

// receive returns the time of eventsAtATime, by a clock of processor time, and
// the sum of their arguments. None may be lost.
func (v *delivery) receive(
	clock func(work func() error) (float64, error),
) (spent float64, sum uint64, err error) {
	before, err := v.session.Losses()
	if err != nil {
		return 0, 0, err
	}
	// With a context that can end, as programs have it.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	came := 0
	spent, err = clock(func() (err error) {
		sum, came, err = take(ctx, v.session, eventsAtATime, v.of.text > 0)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("%d of %d events came: %w", came, eventsAtATime, err)
	}
	after, err := v.session.Losses()
	if err == nil && after.Events != before.Events {
		err = fmt.Errorf("%d events were lost", after.Events-before.Events)
	}
	return spent, sum, err
}

// take is a loop over events as a program has it: until most events came, or
// the context is done. It returns the sum of the arguments.
func take(
	ctx context.Context, session *trace.Session, most int, hasText bool,
) (sum uint64, came int, err error) {
	for event, err := range session.Events(ctx) {
		if err != nil {
			if lost := trace.LostError(0); errors.As(err, &lost) {
				continue
			}
			return sum, came, err
		}
		// In the loop's body, as it is in libbpf's program.
		of := uint64(0)
		for i := range event.Args {
			of += event.Args[i].Uint()
		}
		if hasText {
			text, _ := event.Args[0].Data()
			of += uint64(len(text))
		}
		sum += of
		if came++; came == most {
			break
		}
	}
	return sum, came, nil
}
