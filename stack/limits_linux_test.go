// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/usdt/proc"
)

// fixture is a Symbolizer of processes that are made up.
type fixture struct {
	*Symbolizer
	t *testing.T
}

func newFixture(t *testing.T) fixture {
	return fixture{NewSymbolizer(proc.FS(t.TempDir())), t}
}

// Where processes of a fixture map the code of an image.
const (
	mappedAt  = 0x7f00_0000_0000
	functions = mappedAt + 0x10 // where its function begins
)

// process makes a process that maps a file.
func (f fixture) process(pid int, mapped *file) *process {
	p := &process{owner: fmt.Sprint(pid), steps: budget{processSteps}, bytes: budget{processBytes}}
	p.PID = pid
	f.processes[pid] = p
	at := procfs.Mapping{Start: mappedAt, End: mappedAt + elfimage.CodeSize,
		Offset: elfimage.CodeOffset}
	f.setMapped(p, []mapping{{at, mapped, "/file"}})
	return p
}

// file makes a file of an image, as the first one that maps it does.
func (f fixture) file(owner int, im *elfimage.Image) *file {
	f.t.Helper()
	opened, err := debuginfo.New(bytes.NewReader(im.Bytes()))
	qt.Assert(f.t, qt.IsNil(err))
	placeholder, err := os.CreateTemp(f.t.TempDir(), "")
	qt.Assert(f.t, qt.IsNil(err))
	defer placeholder.Close()
	id, err := procfs.IdentifyFile(placeholder)
	qt.Assert(f.t, qt.IsNil(err))
	this := &file{id: procwatch.Version{FileID: id.FileID}, owner: fmt.Sprint(owner)}
	this.use(openedFile{elf: opened, functionBytes: opened.FunctionBytes()})
	f.files.known[this.id] = this
	return this
}

// named is an image with a function.
func named(name string) *elfimage.Image {
	im := elfimage.New64()
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol(name, elfimage.CodeAddress+0x10,
		elf.STT_FUNC, 1))
	return im
}

func (f fixture) name(pid int) string {
	f.t.Helper()
	return f.Frames(f.t.Context(), pid, []uint64{functions})[0].Function
}

func TestFramesAreReadAtTheExpenseOfAProcess(t *testing.T) {
	f := newFixture(t)
	shared := f.file(1, named("shared"))
	poor, rich := f.process(1, shared), f.process(2, shared)
	poor.bytes.left = -bytesPerStack // which the stack earns
	qt.Check(t, qt.Equals(f.name(1), ""))
	qt.Check(t, qt.Equals(f.Counts(), Counts{Frames: 1, NoFunction: 1}))
	qt.Check(t, qt.Equals(f.name(2), "shared"))
	qt.Check(t, qt.Equals(f.name(1), "shared"), qt.Commentf("it was read for another one"))
	qt.Check(t, qt.Equals(processBytes-rich.bytes.left, shared.elf.FunctionBytes()))
}

// A process that has used up what it may have read gets more with its stacks.
func TestFramesEarnReading(t *testing.T) {
	f := newFixture(t)
	im := named("function")
	im.Sections[2].Data = append(im.Sections[2].Data, make([]byte, 3*bytesPerStack)...)
	f.process(1, f.file(1, im)).bytes.left = 0
	for n := range 10 {
		if f.name(1) != "" {
			qt.Check(t, qt.Equals(n, 3))
			return
		}
	}
	t.Error("the file was never read")
}

func TestSymbolizerDropsTablesOfTheOwnerThatHoldsMost(t *testing.T) {
	const mebi = 1 << 20
	f := newFixture(t)
	f.memory.most = 256 * mebi
	add := func(owner, size int) *file {
		this := f.file(owner, named("f"))
		this.functions = new(debuginfo.Functions)
		f.holdTables(this, size)
		return this
	}
	first, second := add(1, 100*mebi), add(1, 50*mebi)
	other := add(2, 90*mebi)
	qt.Check(t, qt.Equals(f.memory.bytes, 240*mebi))
	last := add(3, 20*mebi)
	qt.Check(t, qt.Equals(first.tables.bytes, 0),
		qt.Commentf("the larger one of the owner that holds 150 MiB"))
	qt.Check(t, qt.IsNotNil(first.functions), qt.Commentf("is not read again"))
	qt.Check(t, qt.DeepEquals([]int{second.tables.bytes, other.tables.bytes, last.tables.bytes},
		[]int{50 * mebi, 90 * mebi, 20 * mebi}))
	qt.Check(t, qt.Equals(f.memory.bytes, 160*mebi))
	add(4, 256*mebi+1)
	qt.Check(t, qt.Equals(f.memory.bytes, 160*mebi),
		qt.Commentf("what is larger than all together is not kept"))
	lines := &lineFile{known: map[uint64][]source{}}
	f.hold(&lines.knownHeld, "2", 100*mebi, func() { lines.known = nil })
	qt.Check(t, qt.IsNil(lines.known), qt.Commentf("lines share the room with tables"))
	qt.Check(t, qt.Equals(f.memory.bytes, 160*mebi))
}

// frames is call frame information, with absolute addresses, of a function
// with instructions.
func frames(instructions string) []byte {
	order := binary.LittleEndian
	record := func(b []byte, text string) []byte {
		return append(order.AppendUint32(b, uint32(len(text))), text...)
	}
	// The canonical frame address is rsp+8, the return address below it.
	b := record(nil, "\x00\x00\x00\x00\x01\x00\x01\x78\x10\x0c\x07\x08\x90\x01")
	entry := order.AppendUint32(nil, uint32(len(b)+4))
	entry = order.AppendUint64(entry, elfimage.CodeAddress)
	entry = order.AppendUint64(entry, elfimage.CodeSize)
	b = record(b, string(entry)+instructions)
	return append(b, 0, 0, 0, 0)
}

func withFrames(instructions string) *elfimage.Image {
	im := elfimage.New64()
	im.Sections = append(im.Sections, elfimage.Section{
		Name: ".eh_frame", Kind: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Address: 0x10000,
		Data: frames(instructions),
	})
	return im
}

const stackAt = 0x7ffd_0000_0000

// unwind returns how deep a stack is in which the function calls itself, from
// different places, so that no row is known from before.
func (f fixture) unwind(pid, depth int) int {
	var memory []byte
	for n := range depth {
		memory = binary.LittleEndian.AppendUint64(memory,
			mappedAt+1+uint64(n)%(elfimage.CodeSize-1))
	}
	f.machine = elf.EM_X86_64
	return len(f.Unwind(f.t.Context(), pid, []uint64{7: stackAt, 16: mappedAt}, memory))
}

// What is kept of addresses shares the room with tables.
func TestRowsAreInTheOneBudget(t *testing.T) {
	f := newFixture(t)
	file := f.file(1, withFrames(""))
	f.process(1, file)
	f.unwind(1, 20)
	kept := file.frames.Kept()
	qt.Check(t, qt.Equals(file.rows.bytes, kept))
	qt.Check(t, qt.Equals(f.memory.bytes, file.tables.bytes+kept))
	f.memory.most = f.memory.bytes - 1
	qt.Check(t, qt.Equals(f.unwind(1, 30), 31))
	qt.Check(t, qt.IsTrue(f.memory.bytes <= f.memory.most))
	f.forget(1)
	qt.Check(t, qt.Equals(f.memory.bytes, 0))
}

func TestUnwindIsBoundedForAStack(t *testing.T) {
	f := newFixture(t)
	f.process(1, f.file(1, withFrames("")))
	qt.Check(t, qt.Equals(f.unwind(1, 20), 21))
	qt.Check(t, qt.Equals(f.Counts().CutStacks, 0))
	qt.Check(t, qt.Equals(f.unwind(1, 2*maxDepth), maxDepth))
	qt.Check(t, qt.Equals(f.Counts().CutStacks, 1))
}

// The call frame information of one function can be made to take more work than
// all others of a system. It costs its own process its stacks, and no other.
func TestUnwindIsBoundedForAProcess(t *testing.T) {
	f := newFixture(t)
	costly := withFrames(strings.Repeat("\x0a\x0b", 60_000))
	attacker, other := f.process(1, f.file(1, costly)), f.process(2, f.file(2, withFrames("")))
	steps := 0
	const stacks = 100
	for range stacks {
		before := attacker.steps.left
		depth := f.unwind(1, 100)
		qt.Assert(t, qt.IsTrue(depth < 5), qt.Commentf("%d functions", depth))
		earned := min(before+stepsPerStack, processSteps) - before
		steps += before + earned - attacker.steps.left
	}
	qt.Check(t, qt.IsTrue(steps <= processSteps+stacks*stepsPerStack),
		qt.Commentf("%d steps", steps))
	qt.Check(t, qt.Equals(f.Counts().CutStacks, stacks))
	qt.Check(t, qt.Equals(f.unwind(2, 50), 51))
	qt.Check(t, qt.IsTrue(other.steps.left > processSteps/2))
}

// A profile has a bounded number of names, and counts what it has not named.
func TestProfileNamesAreBounded(t *testing.T) {
	f := newFixture(t)
	this := f.file(1, named("function"))
	f.process(1, this)
	p := NewProfile(f.Symbolizer, profile.ValueType{Type: "hits", Unit: "count"})
	p.names = maxProfileNames - 5
	p.Add(t.Context(), 1, []uint64{functions}, []int64{1}, nil)
	qt.Check(t, qt.Equals(f.Counts(), Counts{Frames: 1, NoFunction: 1}))
	p.names = 0
	p.Add(t.Context(), 1, []uint64{functions + 1}, []int64{1}, nil)
	qt.Check(t, qt.Equals(f.Counts(), Counts{Frames: 2, NoFunction: 1}))
	qt.Check(t, qt.Equals(p.names, len("function")))
}

func TestSymbolizerMergesMappings(t *testing.T) {
	at := func(ranges ...uint64) (mapped []mapping) {
		for i := 0; i < len(ranges); i += 2 {
			mapped = append(mapped,
				mapping{Mapping: procfs.Mapping{Start: ranges[i], End: ranges[i+1]}})
		}
		return mapped
	}
	for _, test := range []struct {
		name              string
		now, before, want []mapping
	}{
		{"first", at(1, 2, 5, 9), nil, at(1, 2, 5, 9)},
		{"all gone", nil, at(1, 2, 5, 9), at(1, 2, 5, 9)},
		{"the same", at(1, 2, 5, 9), at(1, 2, 5, 9), at(1, 2, 5, 9)},
		{"new ones", at(1, 2, 9, 10), at(3, 4, 5, 9, 11, 12), at(1, 2, 3, 4, 5, 9, 9, 10, 11, 12)},
		{"taken at the start", at(4, 6), at(5, 9), at(4, 6)},
		{"taken at the end", at(8, 10), at(5, 9), at(8, 10)},
		{"taken within", at(6, 7), at(5, 9), at(6, 7)},
		{"taken by more", at(1, 20), at(5, 9, 10, 11), at(1, 20)},
	} {
		qt.Check(t, qt.DeepEquals(ranges(merge(test.now, test.before)), ranges(test.want)),
			qt.Commentf(test.name))
	}
	var many []mapping
	for i := range uint64(maxMappings) {
		many = append(many, at(2*i, 2*i+1)...)
	}
	merged := merge(at(1<<40, 1<<40+1), many)
	qt.Check(t, qt.HasLen(merged, maxMappings))
	qt.Check(t, qt.Equals(merged[maxMappings-1].Start, 1<<40), qt.Commentf("those of now stay"))
}

func ranges(mapped []mapping) (all []procfs.Mapping) {
	for _, m := range mapped {
		all = append(all, m.Mapping)
	}
	return all
}

func TestSymbolizerFindsMappings(t *testing.T) {
	p := &process{}
	for _, start := range []uint64{0x1000, 0x3000, 0x4000} {
		p.mapped = append(p.mapped,
			mapping{Mapping: procfs.Mapping{Start: start, End: start + 0x1000}})
	}
	for address, want := range map[uint64]uint64{
		0xfff: 0, 0x1000: 0x1000, 0x1fff: 0x1000, 0x2000: 0, 0x2fff: 0, 0x3fff: 0x3000,
		0x4000: 0x4000, 0x4fff: 0x4000, 0x5000: 0, 1<<64 - 1: 0,
	} {
		at := p.find(address)
		qt.Check(t, qt.Equals(at != nil, want != 0), qt.Commentf("%#x", address))
		if at != nil {
			qt.Check(t, qt.Equals(at.Start, want))
		}
	}
	qt.Check(t, qt.IsNil((*process)(nil).find(1)))
}

// running makes a process that runs, as far as its proc file system says.
func (f fixture) running(pid int, mapped *file) *process {
	f.t.Helper()
	dir := filepath.Join(f.fs.Root(), fmt.Sprint(pid))
	qt.Assert(f.t, qt.IsNil(os.MkdirAll(dir, 0o755)))
	stat := fmt.Sprintf("%d (program) S 1%s\n", pid, strings.Repeat(" 7", 48))
	qt.Assert(f.t, qt.IsNil(os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600)))
	p := f.process(pid, mapped)
	var err error
	p.Process, err = proc.Find(proc.FS(f.fs.Root()), pid)
	qt.Assert(f.t, qt.IsNil(err))
	return p
}

func TestSymbolizerForgetsWhatHasEnded(t *testing.T) {
	f := newFixture(t)
	shared := f.file(1, named("f"))
	for pid := range 10 {
		f.running(pid+1, shared)
	}
	const ended, large = 3, 5
	qt.Assert(t, qt.IsNil(os.RemoveAll(filepath.Join(f.fs.Root(), fmt.Sprint(ended)))))
	f.makeRoom()
	qt.Check(t, qt.HasLen(f.processes, 9))
	qt.Check(t, qt.IsNil(f.processes[ended]))
	qt.Check(t, qt.Equals(shared.users, 9))

	// All run: those with the most mappings go.
	f.setMapped(f.processes[large], nil)
	f.mappings += maxAllMappings
	f.processes[large].mapped = slices.Repeat([]mapping{{file: shared}}, maxAllMappings)
	shared.users += maxAllMappings
	f.makeRoom()
	qt.Check(t, qt.HasLen(f.processes, 8))
	qt.Check(t, qt.IsNil(f.processes[large]))
	qt.Check(t, qt.Equals(f.mappings, 8))
	qt.Check(t, qt.Equals(shared.users, 8))

	for pid := range 10 {
		f.forget(pid + 1)
	}
	qt.Check(t, qt.HasLen(f.files.known, 0), qt.Commentf("a file that nobody maps"))
	qt.Check(t, qt.Equals(f.mappings, 0))
}
