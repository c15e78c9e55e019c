// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
	"github.com/gousdt/gousdt/usdt"
)

// maxArguments bounds the arguments for which code is generated. There can be
// more of them than in the selection: probes, and sites with different cookies,
// may share their arguments there. A site counts as one argument more.
const maxArguments = 1 << 20

// work is the sites of a selection that one attachment watches, and their code.
type work struct {
	plan *bpfgen.Plan
	sel  *usdt.Selection

	wanted []int   // indices of the sites in the selection
	sites  []*Site // those, in the same order
	blocks bpfgen.Blocks
	events map[eventsKey]*events

	session *Session
	elf     *elfnote.File
	symbols argspec.File                       // of the file
	globals []string                           // the variables that expressions name
	starts  map[*bpfgen.Latency]*bpfgen.Starts // see bpfgen.Site

	missing  error // the reason why an argument is not available at a site that is left out
	pairs    *filePairs
	ends     bool // some site ends calls
	delivers bool // some site may send or aggregate something
}

// maxSpecialised is the greatest number of blocks with code of their own.
// Almost all files need fewer; the kernel verifies that many in some tens of
// milliseconds.
const maxSpecialised = 64

var errManyBlocks = errors.New("many different blocks")

// generate generates the code for all sites of a selection. Sites with equal
// argument strings share the parsed arguments, and for these the code is
// generated once: a file has few.
func (s *Session) generate(
	plan *bpfgen.Plan, sel *usdt.Selection, file string, opts *usdt.AttachOptions,
	pairs *filePairs, table *bpfgen.Table,
) (*work, error) {
	type key struct {
		argumentsOf
		cookie      uint64
		instruction uint64 // variables are found relative to it
		frame       siteFrame
	}
	w := &work{plan: plan, sel: sel, pairs: pairs, events: make(map[eventsKey]*events),
		starts: make(map[*bpfgen.Latency]*bpfgen.Starts), session: s, elf: sel.File(),
		symbols: sel.Symbols(), globals: plan.Globals()}
	w.blocks.Table = table
	if err := w.lookAtStarts(); err != nil {
		return nil, err
	}
	known := make(map[key]*Site) // the first one of each kind
	args := 0                    // of all kinds
	for i, found := range sel.Sites() {
		site := &Site{Site: found, File: file, Cookie: opts.Cookie}
		if opts.SiteCookie != nil {
			site.Cookie = opts.SiteCookie(found)
		}
		k := key{argumentsOf: argumentsAt(&found), cookie: site.Cookie, frame: pairs.frames[frameOf(&found)]}
		if len(w.globals) > 0 || len(s.captures.globals(found.Provider, found.Name)) > 0 ||
			pairs.of(found.Provider, found.Name).call != nil || pairs.activations > 0 {
			k.instruction = found.Instruction
		}
		if first := known[k]; first != nil {
			site.siteKind, site.Args = first.siteKind, first.Args
		} else {
			if args += 1 + len(found.Args) + len(w.globals); args > maxArguments {
				return nil, fmt.Errorf("more than %d arguments and sites of different probes: %w",
					maxArguments, elffile.ErrTooLarge)
			}
			if err := w.setKind(site); err != nil {
				return nil, err
			}
			known[k] = site
		}
		if site.wanted {
			w.wanted = append(w.wanted, i)
			w.sites = append(w.sites, site)
		}
	}
	return w, nil
}

// argumentsOf are the arguments of sites of a probe: a selection has equal ones
// once.
type argumentsOf struct {
	provider, name string
	args           *argspec.Arg // the first one, nil if there is none
}

func argumentsAt(site *usdt.Site) argumentsOf {
	of := argumentsOf{provider: site.Provider, name: site.Name}
	if len(site.Args) > 0 {
		of.args = &site.Args[0]
	}
	return of
}

// lookAtStarts finds which values of starts some site has, if any are asked
// for: without them an end may have nothing to do.
func (w *work) lookAtStarts() error {
	for _, l := range w.session.latencies {
		if len(l.Values)+len(l.Conditions) == 0 && l.Path == nil {
			continue
		}
		known := make(map[argumentsOf]bool)
		starts := new(bpfgen.Starts)
		for _, found := range w.sel.Sites() {
			k := argumentsAt(&found)
			ends := w.pairs.of(k.provider, k.name).ends[&l.Latency]
			if known[k] || ends == nil || ends.Start == 0 {
				continue
			}
			known[k] = true
			site := &Site{Site: found}
			if err := w.describe(site); err != nil {
				return err
			}
			w.plan.AddStart(starts, &l.Latency, w.toGenerate(site))
			w.starts[&l.Latency] = starts
		}
	}
	return nil
}

// describe gives a site its arguments with their meaning, and those that are
// read in addition.
func (w *work) describe(site *Site) error {
	paired := w.pairs.of(site.Provider, site.Name)
	site.siteKind = siteKind{probe: site.Provider + ":" + site.Name, own: len(site.Args),
		done: paired.done}
	if d := w.session.opts.known(); d != nil {
		if probe, ok := d.Probe(site.Provider, site.Name, len(site.Args)); ok {
			site.arguments = probe.Arguments
			w.readPointers(site)
		}
	}
	if paired.call != nil {
		call := paired.call.call
		w.setCall(site, call)
		site.call = &defs.Pair{
			Start: defs.FileProbe{Provider: site.Provider, Name: call.Name + "__start"},
			Done:  defs.FileProbe{Provider: site.Provider, Name: call.Name + "__done"}}
	}
	return w.addCaptured(site)
}

// setKind generates the code for the first site of a kind. The site is not
// wanted if there is nothing to do.
func (w *work) setKind(site *Site) error {
	if err := w.describe(site); err != nil {
		return err
	}
	toGenerate, table, blockOf := w.toGenerate(site), w.blocks.Table, w.plan.Block
	if table != nil {
		blockOf = table.Block
	}
	block, err := blockOf(toGenerate)
	if err != nil {
		return err
	}
	if (block == nil || block.Ends && !block.Delivers) && w.missing == nil {
		w.missing = w.plan.Missing(toGenerate)
	}
	if block == nil {
		return nil
	}
	// Sites with equal code may differ in values that are not in the code, such
	// as constants.
	site.wanted, site.isStart, site.isEnd = true, block.Starts, block.Ends
	number := w.blocks.Add(block)
	site.number = uint32(number)
	site.events, site.starts = w.eventsOf(block.Record, site.Args), w.eventsOf(block.Saved, site.Args)
	if toGenerate.NoneAtEnd {
		site.events = w.eventsOf(block.Record, nil)
	}
	w.ends = w.ends || block.Ends
	w.delivers = w.delivers || block.Delivers
	if table != nil {
		site.low = table.Add(number, block, toGenerate)
	} else if w.blocks.Len() > maxSpecialised {
		return errManyBlocks
	}
	return nil
}

// eventsOf returns the form of records. Sites share it, because a file can have
// thousands of kinds.
func (w *work) eventsOf(r *bpfgen.Record, args []argspec.Arg) *events {
	var all []byte // that newEvents looks at
	for i := range args {
		arg := &args[i]
		all = binary.NativeEndian.AppendUint64(append(all, byte(arg.Kind)), arg.Constant)
		all = strconv.AppendInt(all, int64(arg.Size), 10)
		all = strconv.AppendBool(strconv.AppendBool(all, arg.Float), arg.Signed)
	}
	key := eventsKey{r, string(all)}
	if _, known := w.events[key]; !known {
		w.events[key] = newEvents(r, args)
	}
	return w.events[key]
}

type eventsKey struct {
	record *bpfgen.Record
	args   string
}

// readPointers makes arguments be read from the memory that another argument
// points to, if their definition says so.
func (w *work) readPointers(s *Site) {
	size, own := w.pointer(), s.Args
	for i := range s.arguments {
		value := s.arguments[i].Value
		n, pointer, ok := tracing.PointerAt(value)
		if !ok || i >= len(own) {
			continue
		}
		s.Args = slices.Clone(s.Args)
		s.Args[i] = argspec.Arg{Raw: value, Err: fmt.Errorf("%s needs a pointer in a register", value)}
		switch {
		case n >= len(own) || own[n].Size != size:
		case own[n].Kind == argspec.Memory && n == i:
			s.Args[i] = own[n] // see toGenerate
		case own[n].Kind == argspec.InRegister && own[n].Register.Shift == 0:
			s.Args[i] = argspec.Arg{Raw: value, Size: size, Kind: argspec.Memory,
				Base: own[n].Register, Displacement: int64(pointer * size), Scale: 1,
				Address32: size == 4}
		}
	}
}

// setCall gives a site the arguments of the call that starts there in place of
// its own.
func (w *work) setCall(s *Site, call *defs.Call) {
	own, named := s.Args, s.arguments
	s.Args = make([]argspec.Arg, len(call.Arguments))
	for i := range s.Args {
		name := cmp.Or(call.Arguments[i].Value, call.Arguments[i].Name)
		s.Args[i] = argspec.Arg{Raw: name, Err: errors.New("the probe does not pass it")}
		if expr.IsVariable(name) {
			s.Args[i], _, _ = w.variable(s, name)
		}
		for j := range own {
			if name == fmt.Sprintf("arg%d", j) || named != nil && named[j].Name == name {
				s.Args[i] = own[j]
			}
		}
	}
	s.own, s.arguments = len(s.Args), call.Arguments
}

// addCaptured gives a site the variables and members that are captured there,
// as arguments after its own. It fails where the file does not say where a
// member is, and for the address of a text as a key.
func (w *work) addCaptured(s *Site) error {
	for _, a := range w.plan.Aggregations {
		for _, key := range a.Keys {
			m, _, _, err := w.member(s, key.Name)
			if err == nil && m.Text && key.Source == expr.Argument && !key.HasMask {
				return fmt.Errorf("%s of %s is a string: write str(%s)", key.Name, s.probeName(), key.Name)
			}
		}
	}
	names := w.session.captures.globals(s.Provider, s.Name)
	if len(names) == 0 {
		return nil
	}
	arguments := slices.Repeat([]defs.Argument{{Length: bpfgen.None}}, s.own)
	copy(arguments, s.arguments)
	s.Args = slices.Clip(s.Args)
	for _, name := range names {
		arg, m, err := w.variable(s, name)
		switch {
		case errors.Is(err, errNoArgument):
			continue
		case err != nil:
			return fmt.Errorf("%s of %s is not available: %w", name, s.probeName(), err)
		}
		s.Args = append(s.Args, arg)
		shown := name
		for _, c := range w.session.captures {
			if c.arg != nil && c.arg.Name == name && pattern.MatchAny(c.probes, s.Provider, s.Name) {
				shown = cmp.Or(c.shown, shown)
				w.readLater(s, len(s.Args)-1, &c)
				break
			}
		}
		arguments = append(arguments, defs.Argument{Name: shown, Value: name, Type: m.Type,
			IsText: m.Text, Length: bpfgen.None})
	}
	s.arguments = arguments
	return nil
}

func (s *Site) probeName() string {
	return elffile.ShortName(s.Provider) + ":" + elffile.ShortName(s.Name)
}

// variable returns the argument by which a site reads a variable of the program
// or a member, by its name in expressions. The error says why the file has no
// such member.
func (w *work) variable(s *Site, name string) (argspec.Arg, debuginfo.Member, error) {
	if symbol, ok := (&expr.Term{Name: name}).Global(); ok {
		return argspec.Global(w.symbols, s.Instruction, symbol), debuginfo.Member{}, nil
	}
	arg := argspec.Arg{Raw: name, Kind: argspec.Memory}
	m, base, _, err := w.member(s, name)
	arg.Size, arg.Signed, arg.Float, arg.Err = m.Size, m.Signed, m.Float, err
	switch {
	case err != nil:
	case base.Err != nil:
		arg.Err = base.Err
	case base.Size != w.pointer() || base.Float:
		of, _, _ := expr.CutMember(name)
		arg.Err = fmt.Errorf("%s does not have the size of a pointer", of)
	case m.Owner != "":
		arg.Err = argspec.Global(w.symbols, s.Instruction, m.Owner).Err
	}
	if arg.Err != nil {
		arg.Kind = argspec.Unavailable
	}
	return arg, m, err
}

func (w *work) pointer() int {
	if w.elf.Header().Class == elf.ELFCLASS32 {
		return 4
	}
	return 8
}

// errNoArgument is why a site has no member of a structure.
var errNoArgument = errors.New("the probe has no argument")

// member returns where a member is, and what points to its structure: an
// argument and its number, or a variable, which has none.
func (w *work) member(s *Site, name string) (
	m debuginfo.Member, base argspec.Arg, index int, err error,
) {
	from, path, ok := expr.CutMember(name)
	if !ok {
		return m, base, index, errNoArgument
	}
	if symbol, ok := (&expr.Term{Name: from}).Global(); ok {
		m, err = w.session.members.find(w.elf, w.symbols, from, path, w.session.opts.known())
		return m, argspec.Global(w.symbols, s.Instruction, symbol), bpfgen.None, err
	}
	for index = 0; ; index++ {
		switch {
		case index >= s.own:
			return m, base, index, fmt.Errorf("%w %s", errNoArgument, from)
		case from == fmt.Sprintf("arg%d", index):
		case s.arguments == nil || s.arguments[index].Name != from:
			continue
		}
		break
	}
	if s.arguments == nil {
		return m, base, index, fmt.Errorf("no definition of the probe says what %s points to", from)
	}
	m, err = w.session.members.find(w.elf, w.symbols, s.arguments[index].Type, path, nil)
	return m, s.Args[index], index, err
}

func (w *work) toGenerate(s *Site) *bpfgen.Site {
	paired := w.pairs.of(s.Provider, s.Name)
	ends, frame := w.pairs.at(&s.Site, w.session.latencies)
	site := &bpfgen.Site{Provider: s.Provider, Name: s.Name, Cookie: s.Cookie,
		Args: slices.Clip(s.Args), Globals: len(s.Args) - s.own, Pointer: w.pointer(),
		Pairs: ends, Frame: frame.Frame, Starts: w.starts,
		Absent: make(map[string]error), Members: make(map[int]bpfgen.Member),
		// Calls have the same arguments at all starts, and none at their ends.
		NoneAtEnd: len(w.session.events.Spans) > 0 && paired.ends != nil && !paired.other}
	for i, a := range s.arguments {
		if i >= s.own {
			a.Name = a.Value // as expressions have it
		}
		site.Names = append(site.Names, a.Name)
		site.Lengths = append(site.Lengths, a.Length)
		site.Texts = append(site.Texts, a.IsText)
		var values map[string]int64
		if a.Values != nil {
			values = make(map[string]int64)
		}
		for _, value := range slices.Sorted(maps.Keys(a.Values)) {
			values[a.Values[value]] = value
		}
		site.Enums = append(site.Enums, values)
	}
	// unsent adds an argument that is read but not sent.
	unsent := func(arg argspec.Arg) (index int) {
		site.Args = append(site.Args, arg)
		site.Globals++
		site.Unsent++
		return len(site.Args) - 1
	}
	for i := range min(s.own, len(site.Names)) {
		value := s.arguments[i].Value
		n, pointer, ok := tracing.PointerAt(value)
		if !ok || n != i || s.Args[i].Err != nil || s.Args[i].Raw == value {
			continue
		}
		// The pointer is in memory. What it points to is read as members are.
		if len(site.Members) == 0 {
			site.Args = slices.Clone(site.Args)
		}
		site.Members[i] = bpfgen.Member{Arg: unsent(s.Args[i]), Member: debuginfo.Member{
			Offsets: []int64{int64(pointer * w.pointer())}, Size: w.pointer(), Pointer: true}}
		site.Args[i] = argspec.Arg{Raw: value, Kind: argspec.Memory, Size: w.pointer()}
	}
	for _, name := range w.globals {
		if slices.Contains(site.Names, name) {
			continue
		}
		arg, _, _ := w.variable(s, name)
		if arg.Err != nil {
			site.Absent[name] = arg.Err
			continue
		}
		unnamed := make([]string, len(site.Args)-len(site.Names))
		site.Names = append(append(site.Names, unnamed...), name)
		unsent(arg)
	}
	for i, name := range site.Names {
		m, base, arg, err := w.member(s, name)
		if err != nil || site.Args[i].Err != nil {
			continue
		}
		if arg == bpfgen.None {
			arg = unsent(base)
		}
		member := bpfgen.Member{Arg: arg, Member: m}
		if m.Owner != "" {
			member.OwnerArg = unsent(argspec.Global(w.symbols, s.Instruction, m.Owner))
		}
		site.Members[i] = member
	}
	return site
}

// license is compatible with the GPL, as the kernel requires of programs that
// read the memory of processes.
const license = "Dual BSD/GPL"

// program is code that is loaded once. Attachments that need the same code
// share it: those of one file in many processes.
type program struct {
	*ebpf.Program
	key  string
	refs int
	load func() error
}

// programCache keeps the programs of a session while something uses them.
type programCache struct {
	template ebpf.ProgramSpec

	mu    sync.Mutex
	known map[string]*program
}

// acquire loads a program, or returns a loaded one with the same code and
// table. The caller must release it.
func (c *programCache) acquire(
	generated *bpfgen.Program, name string, table *bpfgen.Table,
) (*program, error) {
	key := generated.Fingerprint()
	if table != nil {
		sum := sha256.Sum256(table.Entries())
		key += string(sum[:])
	}
	c.mu.Lock()
	p := c.known[key]
	if p == nil {
		p = &program{key: key}
		p.load = sync.OnceValue(func() (err error) {
			spec := c.template
			spec.Name, spec.Instructions = name, generated.Instructions
			if table != nil {
				// The program keeps the map for as long as it is loaded.
				m, err := newTable(table)
				if err != nil {
					return err
				}
				defer m.Close()
				spec.Instructions = generated.WithTable(m.FD())
			}
			if p.Program, err = ebpf.NewProgram(&spec); err != nil {
				return explain("loading the program "+name, err)
			}
			return nil
		})
		c.known[key] = p
	}
	p.refs++
	c.mu.Unlock()
	// Without the lock: the verifier takes its time, and others load theirs
	// meanwhile.
	if err := p.load(); err != nil {
		_ = c.release(p)
		return nil, err
	}
	return p, nil
}

func newTable(table *bpfgen.Table) (*ebpf.Map, error) {
	entries := table.Entries()
	keys := make([]uint32, len(entries)/bpfgen.EntrySize)
	values := make([][bpfgen.EntrySize]byte, len(keys))
	for i := range keys {
		keys[i] = uint32(i)
		values[i] = [bpfgen.EntrySize]byte(entries[i*bpfgen.EntrySize:])
	}
	m, err := ebpf.NewMap(mapSpec("trace_table", ebpf.Array, 4, bpfgen.EntrySize, len(keys)))
	if err != nil {
		return nil, explain("creating a table of sites", err)
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		m.Close()
		return nil, explain("filling a table of sites", err)
	}
	return m, nil
}

func (c *programCache) release(p *program) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.refs--; p.refs > 0 {
		return nil
	}
	delete(c.known, p.key)
	return p.Close() // does nothing with one that was not loaded
}

// maxProgramName is the length of a program's name in the kernel
// (BPF_OBJ_NAME_LEN without the terminator).
const maxProgramName = 15

// programName returns the name of a program for system profilers and bpftool:
// PROVIDER_PROBE, cut to maxProgramName. The provider loses its end first.
func programName(sites []*Site) string {
	provider, name := sites[0].Provider, sites[0].Name
	for _, s := range sites[1:] {
		provider, name = commonPrefix(provider, s.Provider), commonPrefix(name, s.Name)
	}
	legal := func(s string) string { // the kernel allows letters, digits and underscores
		return strings.Trim(strings.Map(func(r rune) rune {
			if r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				return '_'
			}
			return r
		}, s), "_")
	}
	provider, name = legal(provider), legal(name)
	provider = provider[:min(len(provider), max(maxProgramName-len(name)-1, 5))]
	full := cmp.Or(strings.Trim(provider+"_"+name, "_"), "usdt")
	return full[:min(len(full), maxProgramName)]
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// maxSlots is the greatest number of sites of a session in the map of slots. It
// takes 80 bytes of kernel memory for each, used or not. Sites without room
// take longer to detach.
const maxSlots = 8192

// slotTable is the map of slots, see [bpfgen.Slots]. With it, sites share a
// cookie and so a perf event: the kernel closes these one after the other.
type slotTable struct {
	slots *ebpf.Map // nil where there is none

	group atomic.Uint64 // the last one

	mu   sync.Mutex
	used int
}

// reserve reports whether there is room for n slots, and keeps it for the
// caller. One file takes at most half of the rest, so that others find room.
func (t *slotTable) reserve(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots == nil || n > (maxSlots-t.used)/2 {
		return false
	}
	t.used += n
	return true
}

func (t *slotTable) release(keys []uint64, reserved int) {
	for _, key := range keys {
		_ = t.slots.Delete(key) // it is there
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used -= reserved
}

// stepsOfGroups puts groups of sites into the map of slots. Room is reserved.
// The sites of a group share a cookie: package usdt attaches each group by one
// perf event, if it can. Programs tell the sites apart by the low bits of the
// instruction pointer, which are the same in all processes.
func (a *Attachment) stepsOfGroups(w *work) (steps []step, err error) {
	table := &a.session.slots
	slots := bpfgen.Slots{Map: table.slots.FD(), Kernel: w.plan.Kernel,
		Cookie: a.session.mode == usdt.ModeSingle}
	inOrder := func(sites []int) bool { return len(w.groups(sites)) == 1 }
	for _, all := range w.steps(w.blocks.Programs(&slots), inOrder) {
		p := &all.program
		if !p.Cookie {
			steps = append(steps, all)
			continue
		}
		numbers := make(map[int]uint64, len(all.sites)) // the group of each site
		for _, group := range w.groups(all.sites) {
			own := slots
			own.Group = table.group.Add(1)
			for _, n := range group {
				numbers[n] = own.Group
				key := bpfgen.Slot(own.Group, w.sites[n].Instruction)
				err := a.session.use(func() error { return table.slots.Put(key, w.cookie(p, n)) })
				if err != nil {
					return nil, explain("adding to the map of slots", err)
				}
				a.slots = append(a.slots, key)
			}
			if !slots.Cookie {
				steps = append(steps, step{sites: group,
					own: func() bpfgen.Program { return w.blocks.Program(p.First, p.Blocks, &own) }})
			}
		}
		if slots.Cookie {
			all.cookie = func(n int) uint64 { return numbers[n] }
			steps = append(steps, all)
		}
	}
	return steps, nil
}

// groups returns sites in as few groups as there can be: no two in a group have
// the same low bits of their address.
func (w *work) groups(some []int) [][]int {
	var groups [][]int
	taken := make(map[uint64]int) // by the low bits: how many groups have them
	for _, n := range some {
		bits := bpfgen.LowBits(w.sites[n].Instruction)
		group := taken[bits]
		taken[bits]++
		if group == len(groups) {
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], n)
	}
	return groups
}

// cookie returns the cookie by which a program knows its site: the ID of the
// site, and the number of its block or its place in the table.
func (w *work) cookie(p *bpfgen.Program, n int) uint64 {
	site := w.sites[n]
	low := uint64(int(site.number) - p.First)
	if w.blocks.Table != nil {
		low = uint64(site.low)
	}
	return uint64(site.id)<<32 | low
}
