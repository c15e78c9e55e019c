// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// A Session watches probes, of one file or of many. Files can be attached and
// detached while it runs. All methods are safe for concurrent use.
type Session struct {
	definition
	objects
	stream
	life        life
	attachments ledgers

	attach      func(*usdt.Selection, *ebpf.Program, []uint64, ...int) (kernelLink, error)
	programs    programCache
	members     members
	sites       siteTable
	pairNumbers pairNumbers
	openCalls   openCalls
	before      callsBefore

	signals *ringReader    // of the programs that have little room left; nil without keys
	taking  sync.WaitGroup // takeKeys
}

// A definition is what a session is asked for: it needs no kernel.
type definition struct {
	opts         SessionOptions
	events       EventOptions    // the zero value if none are sent
	containers   expr.Containers // nil if they are not known
	captures     captures
	plan         *bpfgen.Plan // without the kernel's machine
	names        nameTable
	aggregations []*aggregation
	latencies    []*latency
}

// objects are what a session has in the kernel from New to Close.
type objects struct {
	mode      usdt.Mode
	cpus      int         // processors that there can be
	made      []*ebpf.Map // all maps
	mapErr    error       // why not all were made
	followers []io.Closer // programs and links that follow forks and execs

	slots       slotTable
	generations generations
	counters    *ebpf.Map
	room        *ebpf.Map // how much room aggregations have for keys; nil if none is emptied
	filtered    *ebpf.Map // nil without a filter, see bpfgen.Plan
	sampling    *ebpf.Map // nil where every hit is sent
	waiting     *ebpf.Map // likewise
	owners      *ebpf.Map // nil where the ring buffer is not shared out
	execs       *ebpf.Map // by process: when it last ran another program; nil if that is not known
	forgotten   *ebpf.Map // when a process without room there last did
	exits       *ebpf.Map // by thread: how it has ended, see bpfgen.Exit; nil if that is not known
	family      *ebpf.Map // the processes of the family; nil: all
	familyFull  *ebpf.Map // one u64: processes that found no room in the family
}

// Open returns a session that watches the probes of a file that match any of
// the patterns; without patterns, all its probes. Nil options are the common
// case.
//
// Open does what [New] and [Session.Attach] do, and returns their errors. The
// [Attachment], which lists the sites that were skipped, is the only one in
// [Session.Attachments].
func Open(target usdt.Target, opts *SessionOptions, patterns ...elfnote.Pattern) (*Session, error) {
	s, err := New(opts)
	if err != nil {
		return nil, err
	}
	if _, err := s.Attach(target, nil, patterns...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// New returns a session that watches nothing yet. It creates the session's
// maps, so it needs the privileges of BPF. Nil options are the common case.
//
// Errors that a caller can tell apart:
//   - [errors.ErrUnsupported]: the kernel does not support an option.
//   - [os.ErrPermission]: a privilege is missing, or before Linux 5.11 the
//     limit on locked memory (RLIMIT_MEMLOCK) is too low.
func New(opts *SessionOptions) (*Session, error) {
	s := &Session{life: life{watches: make(map[*watch.Watch]struct{})},
		attachments: ledgers{of: make(map[*Attachment]*ledger)}, attach: attachRaw}
	if opts != nil {
		s.opts = *opts
		s.opts.Aggregations = slices.Clone(opts.Aggregations)
	}
	if s.opts.Containers != nil {
		s.containers = s.opts.Containers.IDs
	}
	err := s.parseOptions()
	if err != nil {
		return nil, err
	}
	if s.mode, err = s.opts.Mode.Resolve(); err != nil {
		return nil, err
	}
	if s.events.Next != nil && s.mode == usdt.ModeMulti {
		s.mode = usdt.ModeSingle // a kernel with such links has cookies, too
	}
	s.programs.known = make(map[string]*program)
	s.programs.template = ebpf.ProgramSpec{Type: ebpf.Kprobe, License: license}
	if s.mode == usdt.ModeMulti {
		s.programs.template.AttachType = ebpf.AttachTraceUprobeMulti
	}
	if err = s.createMaps(); err != nil {
		s.Close()
		return nil, err
	}
	if s.signals != nil {
		s.taking.Go(s.takeKeys)
	}
	return s, nil
}

// Validate checks the options, as far as they do not depend on the kernel, and
// returns an error that [New] would return too. It needs no privileges and
// works on every system, to check a configuration before it is used.
func (o *SessionOptions) Validate() error {
	s := &definition{opts: *o}
	if o.Containers != nil { // they are looked up when the session is made
		s.containers = func(string) ([]uint64, error) { return []uint64{0}, nil }
	}
	return s.parseOptions()
}

// parseOptions reads the options, as far as they do not depend on the kernel.
// The error wraps a *tracing.OptionError.
func (s *definition) parseOptions() error {
	s.events, _ = s.opts.events()
	for _, parse := range []func() error{
		s.parseCaptures, s.parsePlan, s.parseAggregations, s.parseSpans, s.parseStartConditions,
	} {
		if err := parse(); err != nil {
			return fmt.Errorf("option %w", err)
		}
	}
	return nil
}

// Attach watches the probes of a file that match any of the patterns; without
// patterns, all its probes. Nil options are the common case.
//
// Attach is all or nothing, except that sites that cannot be attached are
// skipped, unless the target is a Selection: see [Attachment.Skipped]. Sites
// where the filter cannot hold are left out, and in a session without events
// those of no aggregation. It is an error if none remains.
//
// The path of the target may also be a bare name. Without a PID it is looked up
// in /etc/ld.so.cache ("libc.so.6"), and in $PATH ("python3").
//
// Errors that a caller can tell apart:
//   - those of [usdt.Select], such as [*usdt.NotFoundError]
//   - [os.ErrPermission]
//   - [os.ErrClosed]: the session is closed or detached
func (s *Session) Attach(
	target usdt.Target, opts *usdt.AttachOptions, patterns ...elfnote.Pattern,
) (*Attachment, error) {
	if target.Path != "" && target.PID == 0 {
		path, err := ldso.Path(target.Path)
		if err != nil {
			return nil, err
		}
		target.Path = path
	}
	sel, err := usdt.Select(target, patterns...)
	var none *usdt.NotFoundError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("%w%s", err, (*defs.Definitions)(nil).NearestAmong(none.Probes, none.Patterns))
	}
	if err != nil {
		return nil, err
	}
	defer sel.Close()
	process := proc.Process{PID: sel.PID()}
	attach := s.attachRest
	if target.Selection != nil {
		attach = s.attachSelection
	}
	return attach(sel, sel.Name(), process, opts)
}

// Attachments returns the attachments that are not closed, in no particular
// order.
func (s *Session) Attachments() []*Attachment {
	s.attachments.mu.Lock()
	defer s.attachments.mu.Unlock()
	some := maps.Clone(s.attachments.of)
	maps.DeleteFunc(some, func(_ *Attachment, l *ledger) bool { return l.phase == arriving })
	return slices.Collect(maps.Keys(some))
}

// Detach closes all attachments at once, ends all watches, and lets the
// iteration over events end after the events that have been sent already.
// Attach fails from then on. Events, Losses and Stats, and the snapshots of
// aggregations, work until [Session.Close].
//
// Aggregations have the hits until Detach is called. Events still come while
// the kernel detaches, which takes 10 ms to minutes, see [usdt.Link.Close].
// Detach waits for calls of Attach as [usdt.Manager.Close] does, with its
// error.
func (s *Session) Detach() error {
	s.endAggregations()
	return s.detach()
}

func (s *Session) detach() error {
	s.life.enter(detaching)
	s.openCalls.freeze(s)
	for w := range s.life.allWatches() {
		w.Stop()
	}
	patience := attaching.LinkPatience
	if s.mode != usdt.ModeMulti {
		patience = attaching.EventPatience
	}
	err := errors.Join(closeAll(s.Attachments()...), s.life.going.Wait(patience))
	s.life.enter(detached)
	if s.ring != nil {
		s.ring.interrupt()
	}
	return err
}

// Close detaches everything as [Session.Detach] does, closes all watches and
// releases all that the session holds in the kernel. An iteration over events
// ends. Close can be called again.
func (s *Session) Close() error {
	s.life.once.Do(func() {
		errs := []error{s.detach()}
		for w := range s.life.allWatches() {
			_ = w.Close() // its errors are those of Detach
		}
		s.ring.end()
		s.signals.end()
		s.taking.Wait()
		s.life.enter(closed)
		for _, c := range s.followers {
			errs = append(errs, c.Close())
		}
		for _, m := range s.made {
			errs = append(errs, m.Close())
		}
		s.life.closeErr = errors.Join(errs...)
	})
	return s.life.closeErr
}

// use calls a function that reads the maps. They are not closed meanwhile.
func (s *Session) use(read func() error) error { return s.life.before(closed, read) }

// newMap makes a map that is closed with the session, and returns its
// descriptor too. After the first error, s.mapErr, it makes no more.
func (s *Session) newMap(name string, kind ebpf.MapType, key, value, entries int) (*ebpf.Map, int) {
	return s.newMapOf(mapSpec(name, kind, key, value, entries))
}

func (s *Session) newMapOf(spec *ebpf.MapSpec) (*ebpf.Map, int) {
	if s.mapErr != nil {
		return nil, bpfgen.None
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		s.mapErr = explain("creating the map "+spec.Name, err)
		return nil, bpfgen.None
	}
	s.made = append(s.made, m)
	return m, m.FD()
}

func mapSpec(name string, kind ebpf.MapType, key, value, entries int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: kind, KeySize: uint32(key), ValueSize: uint32(value),
		MaxEntries: uint32(entries)}
}

// eachOnce calls a function for each key of a hash map. Where the key that it
// is at goes meanwhile, the kernel begins again: so keys would come twice. If
// very many go, some keys are left out.
func eachOnce[K comparable, V any](m *ebpf.Map, op string, do func(K, *V) error) (err error) {
	var key K
	var value V
	seen := make(map[K]bool)
	all := m.Iterate()
	for err == nil && all.Next(&key, &value) {
		if !seen[key] {
			seen[key] = true
			err = do(key, &value)
		}
	}
	err = cmp.Or(err, all.Err())
	if err == nil || errors.Is(err, ebpf.ErrIterationAborted) {
		return nil
	}
	return explain(op, err)
}

func (s *Session) createMaps() (err error) {
	if s.cpus, err = ebpf.PossibleCPU(); err != nil {
		return explain("counting the processors", err)
	}
	s.plan.Kernel.PIDs = ownPIDs()
	knowsCPU, err := supports(bpfgen.ProcessorIDProbe())
	if err != nil {
		return explain("asking whether programs may ask for their processor", err)
	}
	s.counters, s.plan.Counters = s.newMap("trace_counters", ebpf.PerCPUArray, 4, 8,
		int(bpfgen.CounterCount))
	if s.plan.Filter != nil {
		s.filtered, s.plan.Filtered = s.newMap("trace_filtered", ebpf.Array, 4, 4, 1)
	}
	if s.mode != usdt.ModeMulti {
		s.slots.slots, _ = s.newMap("trace_slots", ebpf.Hash, 8, 8, maxSlots)
	}
	s.createLatencies()
	events := s.plan.Events
	var ring, next *ebpf.Map
	if events != nil {
		ring, events.Ring = s.newMap("trace_events", ebpf.RingBuf, 0, 0, events.RingSize)
		if s.events.Next != nil {
			next, events.Next = s.newMap("trace_next", ebpf.ProgramArray, 4, 4, 1)
		}
		events.Known = s.events.knownStacks
		if events.Sampling != nil {
			s.sampling, events.Sampling.State = s.newMap("trace_sampling", ebpf.PerCPUArray, 4,
				bpfgen.SamplingStateSize, 1)
			s.waiting, events.Sampling.Waiting = s.newMap("trace_waiting", ebpf.LRUHash,
				int(unsafe.Sizeof(bpfgen.WaitingKey{})), 8, maxWaiting)
		}
		if events.Share != nil {
			s.owners, events.Share.Owners = s.newMap("trace_owners", ebpf.LRUHash, 8,
				bpfgen.OwnerStateSize, maxOwners)
		}
	}
	if err := s.createAggregations(); err != nil || s.mapErr != nil {
		return cmp.Or(err, s.mapErr)
	}
	if !knowsCPU {
		if err := s.numberProcessors(); err != nil {
			return err
		}
	}
	if s.opts.Family != 0 {
		if err := s.followFamily(s.opts.Family); err != nil {
			return err
		}
	}
	if s.followExits(); events == nil {
		return s.mapErr
	}
	if next != nil {
		if err := next.Put(uint32(0), s.events.Next); err != nil {
			return optionError("Next", explain("calling the program after an event", err))
		}
	}
	if s.ring, err = newRingReader(ring); err != nil {
		return explain("mapping the ring buffer", err)
	}
	s.decoder = newDecoder(&s.sites, s.events.ReuseEvents)
	return nil
}

// explain returns an [attaching.PermissionError] if a privilege is missing, and
// any other error with the operation that failed.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &attaching.PermissionError{Op: op, Err: err}
	}
	var refused *ebpf.VerifierError
	switch {
	case !errors.As(err, &refused):
	case slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) }):
		err = refused.Unwrap() // the log does not say more
	default:
		// The whole log: only this package can have made the mistake.
		return fmt.Errorf("%s: the kernel refuses a generated program: %+v", op, refused)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// ignoreMissing returns nil for the error that a key is not in a map.
func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// Part is the part of a watch that attaches the session to the probes that
// match any of the patterns, or to all probes if there is no pattern:
//
//	w, err := watch.New(nil, report, session.Part(patterns...))
//
// The watch ends with Close, and as soon as the session is detached or closed.
// Closing the session closes the watch. Sites that cannot be attached are
// skipped: [Attachment.Skipped] lists them.
func (s *Session) Part(patterns ...elfnote.Pattern) watch.Part[*Attachment] {
	return watch.Part[*Attachment]{
		Patterns: patterns,
		Attach: func(
			found *proc.ProcessFile, sites *usdt.Selection, opts *usdt.AttachOptions,
		) (*Attachment, error) {
			var process proc.Process
			if sites.PID() != 0 {
				process = found.Process
			}
			return s.attachSelection(sites, found.Path, process, opts)
		},
		Detach: func(attachments []*Attachment) error { return closeAll(attachments...) },
		// Perf events have links of their own.
		Descriptors: func(attached *Attachment) int {
			n := len(attached.programs) + len(attached.links)
			for _, l := range attached.links {
				n += 2 * l.PerfEvents()
			}
			return n
		},
		Begin: func(w *watch.Watch) (end func(), err error) {
			if s == nil || s.life.watches == nil { // or a zero value
				return nil, errors.New("there is no session to watch with: see trace.New")
			}
			return func() { s.life.watched(w, false) }, s.life.before(detaching, func() error {
				s.life.watched(w, true)
				return nil
			})
		},
	}
}
