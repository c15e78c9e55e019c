// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// An Attachment is the probes of one file that a session watches. It ends with
// [Attachment.Close]. A [watch.Watch] closes the attachments that it makes.
type Attachment struct {
	session  *Session
	path     string
	process  proc.Process // the zero value for every process
	sites    []*Site
	links    []rankedLink
	programs []*program
	pairs    []uint32 // numbers of the pairs that have both ends here
	names    map[uint32]defs.Pair

	helpers     []string
	merged      []*usdt.SiteError // see filePairs
	mergedCount int

	slots    []uint64 // keys of the session's map of slots
	reserved int      // slots

	done chan struct{} // closed once the attachment is
	err  error         // of closing
}

// Session returns the session that watches the probes.
func (a *Attachment) Session() *Session { return a.session }

// Path returns the name that the file was opened by. For an attachment of a
// watch it is the path as the process sees the file, or the first process found
// with it if the attachment is for every process.
func (a *Attachment) Path() string { return a.path }

// Process returns the process that is watched, or the zero value if that is
// every process. Only the PID is set unless a watch has made the attachment.
func (a *Attachment) Process() proc.Process { return a.process }

// Sites returns the sites that are watched, in the order of the file's notes.
// The caller must not change the slice.
func (a *Attachment) Sites() []*Site { return a.sites }

// Skipped returns the sites of the chosen probes that cannot be attached, each
// with the reason, and their number. See [usdt.Selection.Skipped]. With them
// are sites of pairs that are not measured because a start and its end are at
// one instruction.
func (a *Attachment) Skipped() (sites []*usdt.SiteError, count int) {
	if len(a.links) == 0 {
		return nil, 0 // it is no attachment of a session
	}
	sites, count = a.links[0].Selection().Skipped()
	return append(sites, a.merged...), count + a.mergedCount
}

// Helpers returns the probes, as PROVIDER:NAME, that are attached only so that
// others fire, as the definitions say. Their hits count for nothing, but cost
// the program time.
func (a *Attachment) Helpers() []string { return slices.Clone(a.helpers) }

// Done returns a channel that is closed once the probes are detached: by Close
// or the end of the session, or because the file is about to be written to. A
// process that opens the file for writing waits until then, see
// [usdt.Target].NoLease.
func (a *Attachment) Done() <-chan struct{} { return a.done }

// Err returns nil until Done is closed. Then it wraps [usdt.ErrWritten] if the
// file was about to be written to, or else [os.ErrClosed]. After ErrWritten the
// file can be attached again once it has been written.
func (a *Attachment) Err() error {
	select {
	case <-a.done:
		return a.links[0].Err()
	default:
		return nil
	}
}

// Close detaches the probes. Events that have been sent already still come.
// Close waits for the kernel, as [usdt.Link.Close] does, and [Session.Detach]
// closes all attachments in the time of one. Close can be called again.
func (a *Attachment) Close() error {
	if a.session == nil {
		return nil // it is no attachment of a session
	}
	return closeAll(a)
}

// closeAll closes attachments, of any sessions. It waits for the kernel once
// for each rank that there is.
func closeAll(attachments ...*Attachment) error {
	var ranked [ranks][]kernelLink
	sessions := make(map[*Session]bool)
	for _, a := range attachments {
		for _, l := range a.links {
			ranked[l.rank] = append(ranked[l.rank], l.kernelLink)
		}
		sessions[a.session] = true
		a.enter(leaving)
	}
	for s := range sessions { // while the names of the pairs are known
		_ = s.use(func() error {
			s.openCalls.takeExits(s)
			return nil
		})
	}
	var errs []error
	for _, links := range ranked {
		errs = append(errs, sys.CloseTogether(links)) // waits also for those that others close
	}
	for s := range sessions {
		s.takeSites()
		s.forgetWaiting(attachments)
	}
	for _, a := range attachments {
		if a.enter(gone) {
			a.release()
		}
		<-a.done
		errs = append(errs, a.err)
	}
	return errors.Join(errs...)
}

func (a *Attachment) enter(next attachmentPhase) (first bool) {
	all := &a.session.attachments
	if a.session.use(func() error {
		first = all.enter(a, next, true)
		return nil
	}) != nil {
		first = all.enter(a, next, false)
	}
	return first
}

func (a *Attachment) release() {
	s := a.session
	for _, p := range a.programs {
		a.err = errors.Join(a.err, s.programs.release(p))
	}
	_ = s.use(func() error { // a closed map has no slots
		s.slots.release(a.slots, a.reserved)
		return nil
	})
	s.endPairs(a)
	s.freeSites(a.sites)
	close(a.done)
}

// attachRest is attachSelection without the sites that the kernel refuses.
func (s *Session) attachRest(
	sel *usdt.Selection, file string, process proc.Process, opts *usdt.AttachOptions,
) (*Attachment, error) {
	for {
		a, err := s.attachSelection(sel, file, process, opts)
		rest, ok := sel.WithoutRefused(err)
		if !ok {
			return a, err
		}
		sel = rest
	}
}

// attachSelection watches the sites of a selection. The Attachment reports file
// and process.
func (s *Session) attachSelection(
	sel *usdt.Selection, file string, process proc.Process, opts *usdt.AttachOptions,
) (*Attachment, error) {
	if opts == nil {
		opts = &usdt.AttachOptions{}
	}
	if s.life.has(detaching) {
		return nil, sys.ClosedError("session")
	}
	defer s.life.going.Begin(file)()

	a := &Attachment{session: s, path: file, process: process, done: make(chan struct{})}
	plan := *s.plan
	var err error
	if plan.Kernel.Machine, err = sys.KernelMachine(); err != nil {
		return nil, err
	}
	plan.Kernel.Order = binary.NativeEndian
	pairs := s.pairsOf(sel)
	// Code is specialised for the arguments of each site. Where these are of
	// too many kinds, the code looks them up in a table.
	w, err := s.generate(&plan, sel, file, opts, pairs, nil)
	if errors.Is(err, errManyBlocks) {
		w, err = s.generate(&plan, sel, file, opts, pairs, plan.NewTable())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if w.isUseless() && pairs.missing != nil {
		return nil, fmt.Errorf("%s: %w", file, pairs.missing)
	}
	if w.isUseless() {
		refused := &tracing.FilteredError{File: file, Filter: s.opts.Filter, Missing: w.missing}
		plan.Filter.Walk(func(t *expr.Term) {
			if t.Source == expr.Failed && refused.Missing == nil {
				refused.Missing = errNoFailure
			}
		})
		plan.Filter = nil
		if w, err = s.generate(&plan, sel, file, opts, pairs, nil); err == nil && w.isUseless() {
			refused.Filter, refused.Missing = "", w.missing // it is not the filter's fault
		}
		return nil, refused
	}
	shared := defs.SharedLocations(w.elf.Sites())
	for _, site := range w.sites {
		site.SameInstruction = shared[site.Location]
	}
	if err := s.sites.add(w.sites...); err != nil {
		return nil, err
	}
	a.sites, a.pairs, a.names = w.sites, pairs.whole, pairs.names
	a.merged, a.mergedCount = pairs.merged, pairs.mergedCount
	s.lookBefore(a, w) // after it is attached, somebody may wait for that
	a.enter(arriving)
	if err = a.attach(w); err == nil {
		err = a.attachHelpers(w)
	}
	if err == nil { // Detach waits, or this fails
		err = s.life.before(detaching, func() error {
			a.enter(there)
			return nil
		})
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	if pairs.unframed > 0 {
		s.openCalls.lackTables(file)
	}
	go func() {
		<-a.links[0].Done()
		if errors.Is(a.links[0].Err(), usdt.ErrWritten) { // the others have ended, too
			_ = a.Close()
		}
	}()
	return a, nil
}

// errNoFailure is why a condition on failed may not hold.
var errNoFailure = errors.New("no probe ends a call that fails (PAIR|PROBE names one)")

func (w *work) isUseless() bool { return len(w.wanted) == 0 || w.ends && !w.delivers }

func (a *Attachment) attach(w *work) error {
	steps, err := a.stepsOf(w)
	if err == nil && a.session.mode == usdt.ModeSingleIPMap { // each is a perf event
		err = w.sel.CheckPerfEvents(len(steps))
	}
	for i := 0; err == nil && i < len(steps); i++ {
		err = a.attachStep(w, &steps[i])
	}
	return err
}

func (a *Attachment) stepsOf(w *work) (steps []step, err error) {
	s := a.session
	switch {
	case len(w.sites) > 1 && w.plan.Kernel.HasSlots() && s.slots.reserve(len(w.sites)):
		a.reserved = len(w.sites)
		return a.stepsOfGroups(w)
	// A single site in all processes needs no cookie. With a PID, a program
	// that takes the site's number from the cookie can serve other processes,
	// too.
	case s.mode == usdt.ModeSingleIPMap || len(w.sites) == 1 && w.sel.PID() == 0:
		for _, n := range w.sitesOf(&bpfgen.Program{Blocks: math.MaxInt}) {
			steps = append(steps, step{sites: []int{n}, own: func() bpfgen.Program {
				return w.blocks.Fixed(int(w.sites[n].number), w.cookie(&bpfgen.Program{}, n))
			}})
		}
		return steps, nil
	}
	// One program serves all sites, or several if it would be too large. It
	// tells the sites apart by the BPF cookie.
	steps = w.steps(w.blocks.Programs(nil), func([]int) bool { return true })
	for i := range steps {
		if p := &steps[i].program; p.Cookie {
			steps[i].cookie = func(n int) uint64 { return w.cookie(p, n) }
		}
	}
	return steps, nil
}

// maxHelpers is the greatest number of sites that are attached for others to
// fire. Real helpers have one.
const maxHelpers = 16

// attachHelpers attaches the probes without which others do not fire, unless
// these are attached anyway. They run a program that does nothing.
func (a *Attachment) attachHelpers(w *work) error {
	var helpers []elfnote.Pattern
	var of string
	known := cmp.Or(a.session.opts.known(), defs.Builtin())
	for i, site := range w.sites {
		if i > 0 && site.Provider == w.sites[i-1].Provider && site.Name == w.sites[i-1].Name {
			continue
		}
		probe, symbol, ok := known.Helper(site.Provider, site.Name)
		if !ok || slices.ContainsFunc(w.sites, func(s *Site) bool {
			return probe.Match(s.Provider, s.Name)
		}) {
			continue
		}
		if _, err := w.symbols.Symbol(symbol); symbol == "" || err == nil {
			helpers, of = append(helpers, probe), site.probeName()
		}
	}
	if len(helpers) == 0 {
		return nil
	}
	sel, err := usdt.Select(usdt.Target{ELF: w.elf, PID: w.sel.PID(),
		NoLease: w.sel.HoldsWriters() != nil}, helpers...)
	if errors.As(err, new(*usdt.NotFoundError)) {
		return nil // the file is of another version
	}
	if err == nil {
		defer sel.Close()
	}
	if err == nil && len(sel.Sites()) > maxHelpers {
		err = fmt.Errorf("%s: %d sites are more than %d", helpers[0], len(sel.Sites()), maxHelpers)
	}
	if err == nil {
		idle := &bpfgen.Program{Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}}
		err = a.attachProgram(sel, idle, "usdt_helper", nil, nil, rankStart)
	}
	if err == nil {
		for _, site := range sel.Sites() {
			name := elffile.ShortName(site.Provider) + ":" + elffile.ShortName(site.Name)
			if !slices.Contains(a.helpers, name) {
				a.helpers = append(a.helpers, name)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("attaching %s, without which %s does not fire: %w", helpers[0], of, err)
	}
	return nil
}

func (a *Attachment) attachStep(w *work, step *step) error {
	program := step.program
	if step.own != nil {
		program = step.own()
	}
	var cookies []uint64
	sites := make([]*Site, len(step.sites))
	indices := make([]int, len(step.sites))
	for i, n := range step.sites {
		sites[i], indices[i] = w.sites[n], w.wanted[n]
		if step.cookie != nil {
			cookies = append(cookies, step.cookie(n))
		}
	}
	if len(indices) == len(w.sel.Sites()) && slices.IsSorted(indices) {
		indices = nil // all of them
	}
	return a.attachProgram(w.sel, &program, programName(sites), w.blocks.Table, cookies,
		w.rank(step.sites[0]), indices...)
}

func (a *Attachment) attachProgram(
	sel *usdt.Selection, generated *bpfgen.Program, name string, table *bpfgen.Table, cookies []uint64,
	rank int, indices ...int,
) error {
	// Programs refer to the maps by their descriptors: no map must be closed.
	s := a.session
	var p *program
	err := s.life.before(detaching, func() (err error) {
		p, err = s.programs.acquire(generated, name, table)
		return err
	})
	if err != nil {
		return err
	}
	a.programs = append(a.programs, p)
	// The kernel may wait here for the file's pages, as long as the file system
	// likes. The session can be closed meanwhile.
	lnk, err := s.attach(sel, p.Program, cookies, indices...)
	if err == nil {
		a.links = append(a.links, rankedLink{lnk, rank})
	}
	return err
}

// A Site is one of the places in a file where a probe is, as a session watches
// it.
type Site struct {
	usdt.Site

	// File is the path of the file, as the process sees it if the file was
	// found through a process.
	File string
	// Cookie is the cookie that AttachOptions gave the site.
	Cookie uint64
	// SameInstruction has the probes at the site's instruction, as in "p:a" and
	// "p:b (2 sites)", if the file has several sites there, watched or not: of
	// at most 16. Linkers make one of equal functions (lld --icf=all), and then
	// each site has the hits of all of them. It is nil for nearly every site.
	SameInstruction []string

	id uint32
	siteKind

	// event is the event that is reused, nil before the first one. It belongs
	// to the iteration over events.
	event *Event
}

// siteKind is the part that the sites of a probe with equal arguments share.
type siteKind struct {
	probe  string  // PROVIDER:NAME
	events *events // nil if none are sent
	starts *events // of the starts of calls, which their ends send; nil if they send none

	own       int             // number of Args of the probe itself; captured variables follow
	arguments []defs.Argument // the meaning of Args; nil if there is no definition
	call      *defs.Pair      // the call of several probes that starts here, or nil
	done      *defs.FileProbe // the usual end of a call that starts here and may fail, or nil
	later     []laterRead     // what is read again of a call that goes on
	mapped    procfs.FileID   // the file, if there are some

	// Of the code, which is not kept: whether there is any, and whether it is
	// for starts or ends of calls.
	wanted, isStart, isEnd bool
	number                 uint32 // of its block
	low                    uint32 // half of the cookie, with a table
}

// Argument returns the definition of an argument of the probe in
// [SessionOptions.Definitions], or of a captured variable or member. If there
// is none, it has the Name "arg0", "arg1" and so on, no Type and the Length -1.
func (s *Site) Argument(i int) Argument {
	a := Argument{Length: bpfgen.None}
	if i < len(s.arguments) {
		d := &s.arguments[i]
		a = Argument{Name: d.Name, Type: d.Type, IsText: d.IsText, Length: d.Length,
			Values: d.Values}
	}
	if a.Name == "" {
		a.Name = "arg" + strconv.Itoa(i)
	}
	return a
}

// siteTable numbers sites. The generated programs send these numbers. Finding a
// site takes no lock: it is done for each event.
type siteTable struct {
	sites atomic.Pointer[[]atomic.Pointer[Site]] // by number; replaced by a larger one

	mu   sync.Mutex
	next uint32
	free []uint32
	kept bool // see keep
}

func (t *siteTable) get(id uint32) *Site {
	sites := t.sites.Load()
	if sites == nil || uint64(id) >= uint64(len(*sites)) {
		return nil
	}
	return (*sites)[id].Load()
}

// add numbers sites: all or none.
func (t *siteTable) add(more ...*Site) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int64(len(more)-len(t.free)) > math.MaxUint32-int64(t.next) {
		return errors.New("the session has more sites than it can number")
	}
	sites := t.sites.Load()
	if sites == nil {
		sites = new([]atomic.Pointer[Site])
	}
	if all := int(t.next) + max(0, len(more)-len(t.free)); all > len(*sites) {
		larger := make([]atomic.Pointer[Site], max(64, all, 2*len(*sites)))
		for i := range *sites {
			larger[i].Store((*sites)[i].Load())
		}
		sites = &larger
		t.sites.Store(sites)
	}
	for _, s := range more {
		if n := len(t.free); n > 0 {
			s.id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			s.id = t.next
			t.next++
		}
		(*sites)[s.id].Store(s)
	}
	return nil
}

// keep keeps the numbers of all sites for good: keys in the kernel may have
// them.
func (t *siteTable) keep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = true
}

// remove frees the numbers of sites. No event of these can come any more.
func (t *siteTable) remove(sites []*Site) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept {
		return
	}
	for _, s := range sites {
		(*t.sites.Load())[s.id].Store(nil)
		t.free = append(t.free, s.id)
	}
	if len(t.free) == int(t.next) {
		// Nothing is attached: one large file must not cost memory for good.
		t.sites.Store(nil)
		t.next, t.free = 0, nil
	}
}

// The kernel attaches and detaches one site after the other, while calls go on.
// So the ends of calls are attached before the starts, and detached before
// them. Otherwise a later end could be taken for that of a start before: a call
// as long as the session.
const (
	rankEnd  = iota // or neither end nor start
	rankBoth        // an end that is a start, too
	rankStart
	ranks
)

func (w *work) rank(site int) int {
	switch site := w.sites[site]; {
	case !site.isStart:
		return rankEnd
	case site.isEnd:
		return rankBoth
	default:
		return rankStart
	}
}

// sitesOf returns the indices of the sites that a program is for, in the order
// in which they are to be attached.
func (w *work) sitesOf(p *bpfgen.Program) []int {
	var some []int
	for n, site := range w.sites {
		if number := int(site.number); number >= p.First && number-p.First < p.Blocks {
			some = append(some, n)
		}
	}
	slices.SortStableFunc(some, func(a, b int) int { return w.rank(a) - w.rank(b) })
	return some
}

// A step becomes one link: a program, and sites by their indices, in the order
// of their ranks.
type step struct {
	program bpfgen.Program
	sites   []int
	own     func() bpfgen.Program // in place of program: there may be one for each site
	cookie  func(site int) uint64 // nil for none
}

// steps returns the order in which programs are attached to their sites. Each
// rank has links of its own, unless there is one program, and oneLink says that
// one link keeps the order of its sites.
func (w *work) steps(programs []bpfgen.Program, oneLink func(sites []int) bool) []step {
	var all, ranked []step
	for _, p := range programs {
		all = append(all, step{program: p, sites: w.sitesOf(&p)})
	}
	if !w.ends || len(all) == 1 && oneLink(all[0].sites) {
		return all
	}
	for rank := range ranks {
		for _, s := range all {
			other := func(n int) bool { return w.rank(n) != rank }
			if sites := slices.DeleteFunc(slices.Clone(s.sites), other); len(sites) > 0 {
				ranked = append(ranked, step{program: s.program, sites: sites})
			}
		}
	}
	return ranked
}

// rankedLink is a link with the least rank of its sites.
type rankedLink struct {
	kernelLink
	rank int
}

// A kernelLink is what is attached: a *usdt.Link, or a test's.
type kernelLink interface {
	Close() error
	Done() <-chan struct{}
	Err() error
	Selection() *usdt.Selection
	PerfEvents() int
}

func attachRaw(
	sel *usdt.Selection, prog *ebpf.Program, cookies []uint64, sites ...int,
) (kernelLink, error) {
	return sel.AttachRaw(prog, cookies, sites...)
}
