// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// form is one of the two forms in which code is generated, for some sites.
type form struct {
	table   *Table
	program asm.Instructions
	blocks  []*Block
	cookies []uint64
}

// newForm returns nil if a block cannot be generated.
func newForm(plan *Plan, sites []*Site, lookedUp bool) *form {
	f := &form{}
	blocks := &Blocks{}
	generate := plan.Block
	if lookedUp {
		f.table = plan.NewTable()
		blocks.Table, generate = f.table, f.table.Block
	}
	for i, site := range sites {
		block, err := generate(site)
		if err != nil {
			return nil
		}
		f.blocks = append(f.blocks, block)
		cookie := uint64(0)
		if block != nil {
			cookie = uint64(blocks.Add(block))
			if lookedUp {
				cookie = uint64(f.table.Add(int(cookie), block, site))
			}
		}
		f.cookies = append(f.cookies, uint64(i+1)<<32|cookie)
	}
	if blocks.Len() > 0 {
		program := blocks.Program(0, blocks.Len(), nil)
		f.program = program.Instructions
	}
	return f
}

// addTable gives the machine the map of a table.
func (m *bpfMachine) addTable(t *Table) {
	entries := t.Entries()
	table := m.addMap(TableMap, true, 4, EntrySize, len(entries)/EntrySize)
	for i := range table.max {
		key := make([]byte, 4)
		m.order.PutUint32(key, uint32(i))
		table.values[string(key)] = entries[i*EntrySize:][:EntrySize]
	}
}

// hit passes a site, and returns what that sent and what it left in the maps,
// in words that are the same for both forms.
func (f *form) hit(t *testing.T, w *world, kernel Kernel, sites []*Site, n int) string {
	t.Helper()
	block := f.blocks[n]
	if f.table != nil {
		w.addTable(f.table)
	}
	w.cookie, w.records = f.cookies[n], nil
	if block != nil {
		qt.Assert(t, qt.IsNil(w.run(f.program)), qt.Commentf("%v", sites[n].Args))
	}
	said := ""
	for _, raw := range w.records {
		said += w.describeRecord(kernel, sites[n], block.Record, raw)
		if span := block.Record.Span; span != nil {
			word := w.load(raw[span.Word:][:8]) &^ (1 << flagSaved)
			start := word>>32 - 1
			said += fmt.Sprintf(" span %x %x", raw[span.Duration:][:16], word)
			// Where all arguments are constants, nothing needs to be saved.
			if saved := f.blocks[start].Saved; w.load(raw[span.Found:][:8]) == 1 {
				said += w.describeArguments(sites[start], saved, raw[span.Saved:][:span.Size])
			} else {
				said += strings.Repeat(" none", len(sites[start].Args))
			}
		}
	}
	for _, fd := range []int{testCounters, testRows, testRows + 100} {
		if m := w.maps[fd]; m != nil {
			for _, key := range slices.Sorted(maps.Keys(m.values)) {
				if value := bytes.TrimRight(m.values[key], "\x00"); len(value) > 0 {
					said += fmt.Sprintf("\n%d %x %x", fd, key, value)
				}
			}
		}
	}
	return said
}

func (w *world) describeRecord(kernel Kernel, site *Site, r *Record, raw []byte) (said string) {
	said = fmt.Sprint("\nsite ", w.load(raw[:4]))
	if r.Time != None {
		said += fmt.Sprint(" ", raw[r.Time:][:8], raw[r.Process:][:8], w.load(raw[r.CPU:][:4]))
	}
	said += w.describeArguments(site, r, raw)
	for _, c := range r.Captures {
		status := int64(w.load(raw[c.Status:][:8]))
		said += fmt.Sprintf(" arg%d %d of %d: %q", c.Arg, status, c.Max,
			raw[c.Data:][:max(0, min(int(status), c.Max))])
	}
	return said
}

func (w *world) describeArguments(site *Site, r *Record, raw []byte) (said string) {
	for i := range site.Args {
		switch p, arg := r.Args[i], &site.Args[i]; {
		case p.Value == None:
			said += " none"
		case p.Failed != None && raw[p.Failed] != 0:
			said += " unreadable"
		default:
			said += fmt.Sprintf(" %x", w.load(raw[p.Value:][:arg.Size]))
		}
	}
	return said
}

// unreadable is what form.hit says of CounterUnreadable.
var unreadable = regexp.MustCompile(fmt.Sprintf(`\n%d (01000000|00000001) \w+`, testCounters))

// differ hits sites in both forms and returns how many hits sent something.
func differ(t *testing.T, k *testKernel, w *world, plan *Plan, sites []*Site, hits []int) int {
	t.Helper()
	forms := [2]*form{newForm(plan, sites, false), newForm(plan, sites, true)}
	if forms[0] == nil {
		return 0
	}
	qt.Assert(t, qt.IsNotNil(forms[1]))
	// Each form has its own maps.
	var own [2]map[int]*bpfMap
	for i := range own {
		own[i] = make(map[int]*bpfMap)
		for fd, m := range w.maps {
			mine := *m
			mine.values = make(map[string][]byte)
			for key, value := range m.values {
				mine.values[key] = slices.Clone(value)
			}
			own[i][fd] = &mine
		}
	}
	sent := 0
	for _, n := range hits {
		w.now += 10
		var said [2]string
		for i, f := range forms {
			w.maps, w.args = own[i], sites[n].Args
			said[i] = f.hit(t, w, plan.Kernel, sites, n)
			if plan.Filter != nil { // the forms may look at another part of it first
				said[i] = unreadable.ReplaceAllString(said[i], "")
			}
		}
		qt.Assert(t, qt.Equals(said[1], said[0]), qt.Commentf("%s: %v", k.name, sites[n].Args))
		sent += len(w.records)
	}
	return sent
}

// checkBothForms makes up what is to be done at some sites, and has the code
// that is specialised and the code that looks arguments up do it.
func checkBothForms(t *testing.T, k *testKernel, random *rand.Rand) int {
	count := random.IntN(9)
	w := k.newWorld(random, count)
	kernel := k.forPlan()
	plan := &Plan{Kernel: kernel, Counters: testCounters,
		Events: &Events{Ring: testRing, RingSize: 1 << 20, Header: random.IntN(2) == 0}}
	condition := func() *expr.Node {
		if random.IntN(2) == 0 || len(w.args) == 0 {
			return nil
		}
		node, err := expr.ParseCondition(w.randomCondition(kernel, random, random.IntN(3)), nil, nil)
		if err != nil {
			return nil
		}
		return node
	}
	plan.Filter = condition()
	if count > 0 && random.IntN(2) == 0 {
		captures := randomCaptures(random, count)(nil)
		for i := range captures {
			captures[i].Max = 1 + captures[i].Max%40
		}
		plan.Events.Captures = func(site *Site) (here []Capture) {
			here = slices.DeleteFunc(slices.Clone(captures),
				func(c Capture) bool { return c.Arg >= len(site.Args) })
			for i := range site.Args {
				if site.Args[i].Kind == argspec.Bytes && !slices.ContainsFunc(here,
					func(c Capture) bool { return c.Arg == i }) {
					here = append(here, Capture{Arg: i, Length: None, Max: min(site.Args[i].Size, 30)})
				}
			}
			return here
		}
	}
	w.addMap(testCounters, true, 4, 8, int(CounterCount))
	if count > 0 && random.IntN(2) == 0 {
		a := randomAggregation(random, count)
		a.Keys = slices.DeleteFunc(a.Keys,
			func(t expr.Term) bool { return t.Source == expr.Stack })
		a.Keys, a.Map, a.Where = a.Keys[:min(len(a.Keys), 3)], testRows, condition()
		a.Names = func(name string) uint32 { return uint32(len(name)) }
		size := 4
		if len(a.Keys) > 0 {
			_, size = a.KeyLayout()
			a.Overflow = testRows + 100
			w.addMap(a.Overflow, true, 4, a.ValueSize(), a.Entries())
		}
		w.addMap(testRows, len(a.Keys) == 0, size, a.ValueSize(), a.Entries())
		plan.Aggregations = append(plan.Aggregations, a)
	}
	if random.IntN(2) == 0 {
		by := expr.Term{Source: expr.TID}
		if count > 0 && random.IntN(3) == 0 {
			by = expr.Term{Source: expr.Argument, Index: random.IntN(count)}
		}
		l := &Latency{Match: Match{by, by}, Starts: testCalls, Zeros: testZeros, Saved: testSaved,
			SavedSize: 1 << 12, Birth: 40, Spans: random.IntN(2) == 0}
		w.addMap(testCalls, false, 16, CallsSize, 100)
		w.addMap(testZeros, true, 4, 1<<12, 1)
		w.maps[testZeros].valueSize = 0 // any size up to its own is read
		w.addMap(testSaved, false, 24, l.SavedSize, 1000)
		plan.Latencies = append(plan.Latencies, l)
	}
	var sites []*Site
	var hits []int
	var pairs [3]map[*Latency]Ends
	for i := range pairs {
		pairs[i] = make(map[*Latency]Ends)
		for _, l := range plan.Latencies {
			pairs[i][l] = Ends{Start: uint32(random.IntN(3)), Done: uint32(random.IntN(3)),
				Compared: random.IntN(3), Width: random.IntN(9)}
		}
	}
	for n := range 1 + random.IntN(6) {
		site := &Site{Provider: "p", Name: fmt.Sprint("name", n%3), Args: w.args,
			Pairs: pairs[n%3]}
		if n > 0 {
			site.Args = k.otherArguments(random, w, 1+random.IntN(9))
		}
		sites = append(sites, site)
		hits = append(hits, n)
	}
	for range 6 {
		hits = append(hits, random.IntN(len(sites)))
	}
	return differ(t, k, w, plan, sites, hits)
}

// otherArguments returns arguments of any form, structures among them.
func (k *testKernel) otherArguments(random *rand.Rand, w *world, count int) []argspec.Arg {
	args := k.newWorld(random, count).args
	for i := range args {
		if args[i].Kind == argspec.Memory && random.IntN(6) == 0 {
			args[i].Kind, args[i].Size = argspec.Bytes, 1+random.IntN(50)
			args[i].Signed, args[i].Float = false, false
			args[i].Err = fmt.Errorf("bytes")
		}
	}
	// Most of what is in memory is there, in this world.
	for i := range args {
		if len(w.args) > 0 && random.IntN(2) == 0 {
			from := &w.args[random.IntN(len(w.args))]
			args[i].Base, args[i].Index = from.Base, from.Index
			args[i].IndexSize, args[i].Address32 = from.IndexSize, from.Address32
			args[i].Scale = max(from.Scale, 1)
			if args[i].Base.Name == "" && args[i].Index.Name == "" && args[i].Kind == argspec.Memory {
				args[i] = *from
			}
		}
	}
	return args
}

// Code that looks arguments up does what code does that is specialised for
// them.
func TestLookedUpIsWhatIsSpecialised(t *testing.T) {
	for i := range testKernels {
		k := &testKernels[i]
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(31, uint64(i)))
			sent := 0
			for range 200 {
				sent += checkBothForms(t, k, random)
			}
			qt.Assert(t, qt.IsTrue(sent > 300), qt.Commentf("%d", sent))
		})
	}
}

func FuzzLookedUp(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		for i := range testKernels {
			checkBothForms(t, &testKernels[i], rand.New(rand.NewPCG(seed, uint64(i))))
		}
	})
}

// Every argument that internal/testdata/vectors describes has the same value in
// both forms.
func TestLookedUpVectors(t *testing.T) {
	vectors, err := testprog.LoadVectors("../../../internal/testdata/vectors")
	qt.Assert(t, qt.IsNil(err))
	random := rand.New(rand.NewPCG(32, 33))
	compared := 0
	for _, v := range vectors {
		i := slices.IndexFunc(testKernels,
			func(k testKernel) bool { return k.program == v.File.Header().Machine })
		if i < 0 {
			continue
		}
		k := &testKernels[i]
		args := argspec.Decode(nil, v.File, v.Location, v.Text)
		w := k.newWorld(random, 1)
		plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20,
			Captures: func(site *Site) (here []Capture) {
				for i := range site.Args {
					if site.Args[i].Kind == argspec.Bytes {
						here = append(here, Capture{Arg: i, Length: None, Max: 128})
					}
				}
				return here
			}}}
		compared += differ(t, k, w, plan, []*Site{{Args: w.args}, {Args: args}}, []int{0, 1})
	}
	qt.Assert(t, qt.IsTrue(compared > 1000), qt.Commentf("%d", compared))
}

// Structures of different sizes are captured whole, by the same code.
func TestLookedUpStructuresKeepTheirSize(t *testing.T) {
	random := rand.New(rand.NewPCG(34, 35))
	for i := range testKernels {
		k := &testKernels[i]
		w := k.newWorld(random, 0)
		k.setRegister(w.bpfMachine, k.registers[0], userMemory)
		structure := argspec.Parse(k.program, "8@"+fillIn(k.memory, k.registers[0], "", 8, ""))[0]
		structure.Kind, structure.Err = argspec.Bytes, errors.New("bytes")
		var sites []*Site
		var hits []int
		for n := range 40 {
			arg := structure
			arg.Size = 1 + n
			sites = append(sites, &Site{Args: []argspec.Arg{arg}})
			hits = append(hits, n)
		}
		plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20,
			Captures: func(*Site) []Capture { return []Capture{{Length: None, Max: 35}} }}}
		qt.Assert(t, qt.Equals(differ(t, k, w, plan, sites, hits), len(hits)))
		codes := make(map[string]bool)
		for _, block := range newForm(plan, sites, true).blocks {
			codes[string(fingerprint(block.Instructions))] = true
		}
		qt.Check(t, qt.IsTrue(len(codes) <= 8), qt.Commentf("%d", len(codes)))
	}
}

func randomCaptures(random *rand.Rand, args int) func(*Site) []Capture {
	var captures []Capture
	for i := range args {
		if random.IntN(4) > 0 {
			continue
		}
		c := Capture{Arg: i, Text: random.IntN(2) == 0, Max: 1 + random.IntN(5000), Length: None}
		if random.IntN(2) == 0 {
			c.Length = random.IntN(args)
		}
		captures = append(captures, c)
	}
	return func(*Site) []Capture { return append([]Capture(nil), captures...) }
}

func randomAggregation(random *rand.Rand, args int) *Aggregation {
	a := &Aggregation{
		Applies: func(*Site) bool { return true },
		Names:   func(string) uint32 { return 7 },
		Sum:     random.IntN(2) == 0, Min: random.IntN(2) == 0, Max: random.IntN(2) == 0,
		Value: &expr.Term{Source: expr.Argument, Index: random.IntN(args)},
	}
	switch random.IntN(3) {
	case 0:
		a.Histogram = &Histogram{Scale: random.IntN(MaxScale + 1)}
	case 1:
		a.Histogram = &Histogram{Low: -100, High: 100, Step: uint64(1 + random.IntN(2))}
	}
	for range random.IntN(5) {
		sources := []expr.Source{
			expr.Argument, expr.String, expr.PID, expr.TID, expr.UID, expr.GID, expr.CPU,
			expr.Cgroup, expr.Command, expr.Cookie, expr.Provider,
			expr.Probe, expr.Site, expr.Stack,
		}
		a.Keys = append(a.Keys, expr.Term{
			Source: sources[random.IntN(len(sources))], Index: random.IntN(args),
			Max: 1 + random.IntN(60),
		})
	}
	return a
}

// Sites of a probe differ in the pairs that they belong to: where one function
// has both ends, and where the linker has put both at one instruction.
func TestLookedUpSitesKeepTheirPairs(t *testing.T) {
	l := &Latency{Match: Match{Start: expr.Term{Source: expr.TID}, Done: expr.Term{Source: expr.TID}}}
	plan := &Plan{Kernel: Kernel{Machine: elf.EM_X86_64, Order: binary.LittleEndian},
		Latencies: []*Latency{l}, Aggregations: []*Aggregation{{Latency: l}}}
	table := plan.NewTable()
	code := make(map[string]bool)
	for _, pairs := range []map[*Latency]Ends{{l: {Done: 1}}, {l: {Done: 1, Framed: true}}, nil} {
		block, err := table.Block(&Site{Provider: "p", Name: "n", Pairs: pairs,
			Frame: Frame{Known: true, Register: 7}})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(block == nil, pairs == nil))
		if block != nil {
			code[block.code] = true
		}
	}
	qt.Check(t, qt.HasLen(code, 2))
}
