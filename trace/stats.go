// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Losses counts hits that are not in the events or aggregations of a session.
// Beside these only hits are missing at which the kernel did not run the
// program, because a BPF program was running on the processor already: the
// RecursionMisses of the programs in [Session.Stats].
type Losses struct {
	// Events are those that found no room in the ring buffer.
	Events uint64
	// Unreadable are hits that were not aggregated because a value or a key
	// could not be read: its memory was not there, or it cannot be fetched at
	// the site. Those that a filter leaves out are among them, and calls, if a
	// value that it compares was not there.
	Unreadable uint64
	// SelfUnknown are calls that were not aggregated because their own time is
	// not known: a call inside was left without its end, or their thread has
	// several stacks, as for coroutines. It changes these without a probe, so
	// that nothing tells for how long a coroutine waited.
	SelfUnknown uint64
	// Starts are those of calls that found no room in the kernel, or whose
	// arguments found none.
	Starts uint64
	// Processes are descendants of SessionOptions.Family that are not watched:
	// there is room for 65,536 at a time.
	Processes uint64
	// NotSampled are hits that became no event because of
	// EventOptions.SampleEvery or SamplePerSecond.
	NotSampled uint64
	// Unrepresented are those of NotSampled and Events that no event stands for
	// so far: no later hit of their process and site became one. With the
	// weights of all events, they are all hits that were sampled from.
	Unrepresented uint64
	// Left are calls whose function was left before the probe at its end: by an
	// exception, a long jump or a return. See [Latency] for when that is known.
	Left uint64
	// Overlapped are calls that are not measured because others of their thread
	// went on beside them, and nothing says which end belongs to which start:
	// see Alone of package defs, and [Latency] for greenlets of Python and
	// virtual threads of Java.
	Overlapped uint64
	// Killed and Exited are calls inside which a thread or process has ended,
	// by a signal or on its own. With EventOptions.Exits they are events, too.
	// No aggregation has them.
	Killed, Exited uint64
	// Replaced are starts of calls that were forgotten without their end: the
	// process has run another program (exec), more calls were inside each other
	// than [Latency] has room for, or the thread has ended and the kernel has
	// not reported it. In a PID namespace other than the initial one that end
	// is not known.
	Replaced uint64
	// Unfinished are calls that have not ended so far, or not until
	// [Session.Detach]. A call that has failed without another end (see
	// [Latency]) is among them while its thread runs.
	Unfinished uint64
	// Unmatched are ends of calls without a start: it was before the probes
	// were attached, was forgotten or found no room.
	Unmatched uint64

	// Unsearched is the number of processes in which calls may have begun
	// before the tracing that OpenCalls does not return: whether a condition on
	// their start holds cannot be read from outside.
	Unsearched uint64

	// Mismatch says why the times of calls may be wrong, or are missing: their
	// starts and ends seem to belong together in another way than Latency.By
	// says. It is "" if nothing shows that. Match is a value for Latency.By
	// that may be the right one, such as "arg0", or "".
	Mismatch, Match string

	// NoTables are paths of files, separated by ", " and at most 16, that have
	// no unwinding tables (.eh_frame) for a probe of a measured pair, or for
	// whose machine these are not read: the last start ends first there, so
	// that a call that was left without its end, as by an exception, can get
	// the end of the call around it. It is "" if there are none.
	NoTables string
}

// Losses returns the losses so far. It works until [Session.Close].
func (s *Session) Losses() (Losses, error) {
	var l Losses
	var ended uint64
	err := s.use(func() (err error) {
		if l.Unfinished, ended, err = s.openCalls.look(s, nil); err != nil {
			return err
		}
		for c, to := range map[bpfgen.Counter]*uint64{
			bpfgen.CounterEvents: &l.Events, bpfgen.CounterUnreadable: &l.Unreadable,
			bpfgen.CounterStarts: &l.Starts, bpfgen.CounterReplaced: &l.Replaced,
			bpfgen.CounterUnmatched: &l.Unmatched, bpfgen.CounterLeft: &l.Left,
			bpfgen.CounterOverlapped: &l.Overlapped, bpfgen.CounterSelf: &l.SelfUnknown,
		} {
			if *to, err = s.counter(c); err != nil {
				return err
			}
		}
		if err := s.attachments.lost(&l); err != nil {
			return err
		}
		if s.familyFull != nil {
			if err := s.familyFull.Lookup(uint32(0), &l.Processes); err != nil {
				return explain("reading the losses of a family", err)
			}
		}
		if s.sampling != nil {
			var each []bpfgen.SamplingState
			if err := s.sampling.Lookup(uint32(0), &each); err != nil {
				return explain("reading the state of sampling", err)
			}
			stood := uint64(0)
			for _, state := range each {
				l.NotSampled += state.LeftOut
				stood += state.Stood
			}
			// The numbers are not of one moment.
			l.Unrepresented = uint64(max(0, int64(l.NotSampled+l.Events-stood)))
		}
		return nil
	})
	if err == nil {
		l.Replaced += ended
		l.Unsearched = s.before.unsearched.Load()
		s.openCalls.addTo(&l)
	}
	return l, err
}

// maxWaiting is the number of sites in processes whose hits wait for an event.
// If there are more, those that are hit least are forgotten.
const maxWaiting = 16_384

// forgetWaiting drops the hits that wait for an event of sites of closed
// attachments, because other sites will get their numbers.
func (s *Session) forgetWaiting(closed []*Attachment) {
	if s.waiting == nil {
		return
	}
	sites := make(map[*Site]bool)
	for _, a := range closed {
		for _, site := range a.sites {
			sites[site] = true
		}
	}
	_ = s.use(func() error { // a mistake is a weight that is too large
		return eachOnce(s.waiting, "dropping hits that wait for an event",
			func(key bpfgen.WaitingKey, _ *int64) error {
				if sites[s.sites.get(key.Site)] {
					return ignoreMissing(s.waiting.Delete(key))
				}
				return nil
			})
	})
}

// maxOwners is the greatest number of owners of events. If there are more,
// those that have put nothing into a full ring buffer for longest are
// forgotten.
const maxOwners = 4096

func (s *Session) lostBy() (losses []Row, err error) {
	if s.owners == nil {
		return nil, nil
	}
	err = eachOnce(s.owners, "reading whose events were lost",
		func(owner uint64, state *bpfgen.OwnerState) error {
			cgroup, user := owner, uint64(0)
			if owner&bpfgen.UserOwner != 0 {
				cgroup, user = 0, uint64(uint32(owner))
			}
			if state.Lost > 0 {
				losses = append(losses, Row{Keys: []Value{ValueOf(cgroup), ValueOf(user)}, Count: state.Lost})
			}
			return nil
		})
	slices.SortFunc(losses, func(a, b Row) int { return cmp.Compare(b.Count, a.Count) })
	return losses, err
}

// Stats are the costs of a session, as the kernel accounts for them.
type Stats struct {
	// Programs are the generated programs that are attached. The kernel counts
	// runs and their time, which includes about 20 ns of measuring for each
	// run, while [ebpf.EnableStats] asks for it. RecursionMisses are hits at
	// which a program did not run because it, or another BPF program, was
	// running on the processor already.
	Programs map[*ebpf.ProgramInfo]*ebpf.ProgramStats

	MapMemory  uint64 // bytes of all maps; an estimate before Linux 6.4
	PerfEvents int    // they decide how long Detach takes, see usdt.Link.PerfEvents

	// Filtered is true if SessionOptions.Filter was false for some hit. That
	// explains why no event came.
	Filtered bool

	// LostBy has the owners of events that found no room in the ring buffer,
	// those with the most first. The keys are "cgroup" and "uid": the user
	// counts where the cgroup is 0, the root. It is empty without
	// EventOptions.ShareRing. Of thousands of owners some may be missing.
	LostBy []Row
}

// Stats returns the costs of a session. It works until [Session.Close].
func (s *Session) Stats() (*Stats, error) {
	stats := &Stats{Programs: make(map[*ebpf.ProgramInfo]*ebpf.ProgramStats)}
	programs := make(map[*program]bool)
	for _, a := range s.Attachments() {
		for _, l := range a.links {
			stats.PerfEvents += l.PerfEvents()
		}
		for _, p := range a.programs {
			programs[p] = true
		}
	}
	s.programs.mu.Lock()
	defer s.programs.mu.Unlock()
	for p := range programs {
		if p.refs == 0 {
			continue // its last attachment was closed meanwhile
		}
		info, err := p.Info()
		if err == nil {
			stats.Programs[info], err = p.Stats()
		}
		if err != nil {
			return nil, explain("asking the kernel for a program", err)
		}
	}
	err := s.use(func() (err error) {
		for _, m := range s.made {
			info, err := m.Info()
			if err != nil {
				return explain("asking the kernel for a map", err)
			}
			memory, _ := info.Memlock()
			if info.Type == ebpf.RingBuf {
				// From Linux 5.12 to 6.3 the kernel does not count the buffer
				// itself.
				memory = max(memory, uint64(info.MaxEntries))
			}
			stats.MapMemory += memory
		}
		if s.filtered != nil {
			var filtered uint32
			if err := s.filtered.Lookup(uint32(0), &filtered); err != nil {
				return explain("reading whether hits were filtered", err)
			}
			stats.Filtered = filtered != 0
		}
		stats.LostBy, err = s.lostBy()
		return err
	})
	return stats, err
}
