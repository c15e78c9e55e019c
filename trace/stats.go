// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// Stats is what a session costs, from the kernel's own account.
type Stats struct {
	Programs []ProgramStats
	// MapMemory is what all maps of the session take in the kernel, in bytes: an
	// estimate before Linux 6.4.
	MapMemory uint64
}

// ProgramStats is what the kernel says of a generated program that is attached.
type ProgramStats struct {
	// Name is that of the program, as a system profiler shows it
	// (bpf_prog_TAG_NAME).
	Name string
	ID   ebpf.ProgramID
	// Instructions is the length of the program, in instructions of 8 bytes, as
	// the verifier left it. 0 where the kernel does not say.
	Instructions int
	// Memory is what the program takes in the kernel, in bytes.
	Memory uint64

	// Runs and Time are how often the program has run, and how long altogether,
	// since SessionOptions.Statistics was set by this or another process;
	// without it they stand still. The time includes about 20 ns of measuring
	// for each run.
	Runs uint64
	Time time.Duration
	// Missed are hits at which the program did not run because it, or another
	// BPF program, was running already on the processor. Linux 5.12.
	Missed uint64
}

// Losses are hits that have not become what they should. Nothing else is lost.
type Losses struct {
	// Events found no room in the ring buffer.
	Events uint64
	// Keys were not aggregated since there was no room for another key: see
	// Aggregation.MaxKeys.
	Keys uint64
	// Unreadable were not aggregated since a value or a key was in memory that
	// was not there, or cannot be fetched at the site.
	Unreadable uint64
	// Starts of a latency found no room.
	Starts uint64
	// Unmatched ended something of which no start was seen: it began before the
	// session or was forgotten.
	Unmatched uint64
}

// Losses returns what has been lost so far. It works until Close.
func (s *Session) Losses() (l Losses, err error) {
	err = s.use(func() error { return s.readLosses(&l) })
	return l, err
}

func (s *Session) readLosses(l *Losses) (err error) {
	for c, to := range map[bpfgen.Counter]*uint64{
		bpfgen.CounterEvents: &l.Events, bpfgen.CounterKeys: &l.Keys, bpfgen.CounterUnreadable: &l.Unreadable,
		bpfgen.CounterStarts: &l.Starts, bpfgen.CounterUnmatched: &l.Unmatched,
	} {
		if *to, err = s.counter(c); err != nil {
			return err
		}
	}
	return nil
}

// Stats asks the kernel for what the session costs. It works until Close;
// programs that have been detached are not in it.
func (s *Session) Stats() (*Stats, error) {
	stats := &Stats{}
	for _, prog := range s.programs.all() {
		p, err := programStats(prog)
		prog.Close()
		if err != nil {
			return nil, explain("asking the kernel for a program", err)
		}
		stats.Programs = append(stats.Programs, *p)
	}
	slices.SortFunc(stats.Programs, func(a, b ProgramStats) int { return cmp.Compare(a.ID, b.ID) })

	err := s.use(func() error {
		for _, m := range s.maps() {
			info, err := m.Info()
			if err != nil {
				return explain("asking the kernel for a map", err)
			}
			memory, _ := info.Memlock()
			if info.Type == ebpf.RingBuf {
				// From Linux 5.12 to 6.3 the kernel forgets the buffer itself.
				memory = max(memory, uint64(info.MaxEntries))
			}
			stats.MapMemory += memory
		}
		return nil
	})
	return stats, err
}

func programStats(prog *ebpf.Program) (*ProgramStats, error) {
	info, err := prog.Info()
	if err != nil {
		return nil, err
	}
	measured, err := prog.Stats()
	if err != nil {
		return nil, err
	}
	p := &ProgramStats{Name: info.Name, Runs: measured.RunCount, Time: measured.Runtime, Missed: measured.RecursionMisses}
	p.ID, _ = info.ID()
	p.Memory, _ = info.Memlock()
	if size, err := info.TranslatedSize(); err == nil {
		p.Instructions = size / 8
	}
	return p, nil
}

// statsRunTime is BPF_STATS_RUN_TIME of linux/bpf.h, which package unix has on
// Linux alone.
const statsRunTime = 0

func enableStatistics() (io.Closer, error) {
	closer, err := ebpf.EnableStats(statsRunTime)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return nil, &usdt.UnsupportedError{Feature: "BPF statistics", Since: "5.8"}
	}
	if err != nil {
		return nil, explain("switching BPF statistics on", err)
	}
	return closer, nil
}
