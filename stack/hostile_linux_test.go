// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Files and processes that do not answer cost their owners their names, and
// nobody else.
func TestHostileUsersWhoseFilesDoNotAnswer(t *testing.T) {
	s := NewSymbolizer("") // and closed after the servers have ended
	t.Cleanup(func() { _ = s.Close() })
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	costs := testprog.StartCosts(t)
	began := time.Now()
	for range 3 {
		for pid := range hostile {
			s.Remember(pid)
		}
	}
	self := uint64(reflect.ValueOf(TestHostileUsersWhoseFilesDoNotAnswer).Pointer())
	frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
	took := time.Since(began)
	qt.Assert(t, qt.HasLen(frames, 1))
	executable, err := os.Executable() // go test strips it of its symbols
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(frames[0].File, executable))
	qt.Check(t, qt.IsTrue(took < testprog.InTime(3*time.Second)), qt.Commentf("after %v", took))
	costs.Report(2, "stacks of six users whose files do not answer", "no output any more",
		"others named", took)
}

// The symbol tables of a user's files claim and repeat more than there is
// memory, and to unwind by their tables takes more work than all others. Stacks
// of others are named and unwound in between.
func TestHostileUserWithCostlyTables(t *testing.T) {
	testneeds.Root(t)
	rounds, inflated := 3, 8<<20
	if testprog.IsComplete() {
		rounds, inflated = 100, 512<<20
	}
	dir := t.TempDir()
	images := map[string]*elfimage.Image{
		"repeated":   withRepeatedNames(100_000, 1<<20),
		"compressed": withCompressedSymbols(t, inflated),
		"claimed":    withClaimedSymbols(),
		// Remember and restore the state.
		"unwinding": withFrames(strings.Repeat("\x0a\x0b", 60_000)),
	}
	for name, image := range images {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), image.Bytes(), 0o755)))
	}
	hostile := testprog.StartMapper(t, testprog.Nobody, 0, dir)
	mapped := mappedFiles(t, hostile.PID)
	s := NewSymbolizer("")
	t.Cleanup(func() { _ = s.Close() })
	s.machine = elf.EM_X86_64
	self := uint64(reflect.ValueOf(TestHostileUserWithCostlyTables).Pointer())

	costs := testprog.StartCosts(t)
	late := time.Duration(0)
	for range rounds {
		began := time.Now()
		for name := range images {
			start := mapped[filepath.Join(dir, name)]
			qt.Assert(t, qt.Not(qt.Equals(start, 0)), qt.Commentf(name))
			code := start + elfimage.CodeOffset
			var stack []uint64
			var memory []byte
			for n := range maxDepth {
				stack = append(stack, code+1+uint64(n)%(elfimage.CodeSize-1))
				memory = binary.LittleEndian.AppendUint64(memory, stack[n])
			}
			frames := s.Frames(t.Context(), hostile.PID, stack)
			qt.Assert(t, qt.Equals(frames[1].Function != "", name == "repeated"), qt.Commentf(name))
			s.Unwind(t.Context(), hostile.PID, []uint64{7: stackAt, 16: code}, memory)
		}
		frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
		qt.Assert(t, qt.Equals(frames[0].FileOffset != 0, true))
		late = max(late, time.Since(began))
	}
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)), qt.Commentf("after %v", late))
	qt.Check(t, qt.IsTrue(s.Counts().CutStacks > 0))
	qt.Check(t, qt.IsTrue(s.memory.bytes <= maxHeldBytes), qt.Commentf("%d bytes", s.memory.bytes))
	costs.Report(6,
		fmt.Sprintf("%d stacks through symbols that repeat, claim and compress, and .eh_frame",
			rounds*len(images)),
		"4.5 GB of 1.3 MB, 2.3 GB of 0.5 MB; 5.6 s of CPU for each",
		"stacks are cut, others named", late)
}

// A user's files have MiniDebugInfo that takes long to unpack. Others are named
// in between, and Close does not wait for it.
func TestHostileUserWithPackedSymbols(t *testing.T) {
	testneeds.Root(t)
	files := 3
	if testprog.IsComplete() {
		files = 8
	}
	dir := t.TempDir()
	contents := withPackedSymbols(t).Bytes()
	for n := range files {
		path := filepath.Join(dir, fmt.Sprint("packed", n))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
	}
	hostile := testprog.StartMapper(t, testprog.Nobody, 0, dir)
	mapped := mappedFiles(t, hostile.PID)
	s := NewSymbolizer("")
	costs := testprog.StartCosts(t)
	var stack []uint64
	for n := range files {
		code := mapped[filepath.Join(dir, fmt.Sprint("packed", n))] + elfimage.CodeOffset
		stack = append(stack, code+1)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			s.Frames(t.Context(), hostile.PID, stack)
		}
	}()
	self := uint64(reflect.ValueOf(TestHostileUserWithPackedSymbols).Pointer())
	late, kept := time.Duration(0), time.Now()
	for isDone := false; !isDone; {
		select {
		case <-done:
			isDone = true
		case <-time.After(time.Millisecond):
		}
		began := time.Now()
		s.Remember(os.Getpid())
		frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
		qt.Assert(t, qt.Not(qt.Equals(frames[0].FileOffset, 0)))
		late = max(late, time.Since(began))
	}
	waited := time.Since(kept)
	began := time.Now()
	qt.Check(t, qt.IsNil(s.Close()))
	closed := time.Since(began)
	for _, took := range []time.Duration{late, closed, waited / 2} {
		qt.Check(t, qt.IsTrue(took < testprog.InTime(time.Second)), qt.Commentf("%v, %v, %v", late,
			closed, waited))
	}
	costs.Report(6, fmt.Sprintf("%d files whose .gnu_debugdata takes 2 s to unpack", files),
		"no other process named, printed or attached in 16 s; SIGTERM ends it after 16 to 50 s",
		"others named", late)
}

// A user maps very many small files, each of them reported on its own. That
// costs the user the names, and others are remembered and named in between.
func TestHostileUserWithManyFiles(t *testing.T) {
	testneeds.Root(t)
	number := 200
	if testprog.IsComplete() {
		number = 1300
	}
	dir := t.TempDir()
	contents := append(withRepeatedNames(100, 100).Bytes(), make([]byte, 8<<10)...)
	for n := range number {
		path := filepath.Join(dir, fmt.Sprint("library", n))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, contents, 0o755)))
	}
	hostile := testprog.StartMapper(t, testprog.Nobody, 0, dir)
	s := NewSymbolizer("")
	t.Cleanup(func() { _ = s.Close() })
	self := uint64(reflect.ValueOf(TestHostileUserWithManyFiles).Pointer())
	costs := testprog.StartCosts(t)
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range number {
			s.Remember(hostile.PID)
		}
	}()
	late := time.Duration(0)
	for isDone := false; !isDone; {
		select {
		case <-done:
			isDone = true
		case <-time.After(time.Millisecond):
		}
		began := time.Now()
		frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
		qt.Assert(t, qt.Not(qt.Equals(frames[0].FileOffset, 0)))
		late = max(late, time.Since(began))
	}
	qt.Check(t, qt.IsTrue(late < testprog.InTime(time.Second)), qt.Commentf("after %v", late))
	qt.Check(t, qt.IsTrue(costs.CPU() < 5*time.Second), qt.Commentf("%v of CPU", costs.CPU()))
	qt.Check(t, qt.IsTrue(len(s.files.open) <= maxOpen+maxClosing))
	t.Logf("%v for %d files", time.Since(began), number)
	costs.Report(6, fmt.Sprintf("%d small files of a user, each reported on its own", number),
		"31 s of CPU for 800, nothing printed in 89 s for 1,300", "others are named", late)
}

// The debug information of a user's files has no end, is deep, names the same
// long list again and again, and becomes larger than it was. It costs the user
// the lines, and others find theirs.
func TestHostileUserWithCostlyLines(t *testing.T) {
	testneeds.Root(t)
	rounds := testprog.Soak(3, 100)
	order := binary.LittleEndian
	dir := t.TempDir()
	for name, change := range map[string]func(map[string][]byte){
		"deep": func(s map[string][]byte) { insert(s, bytes.Repeat([]byte{6}, 16<<20)) },
		"ranges": func(s map[string][]byte) {
			insert(s, bytes.Repeat([]byte("\x05\x00\x00\x00\x00\x00"), 1<<20))
			s[".debug_ranges"] = bytes.Repeat([]byte{1}, 16<<20)
		},
		"rows": func(s map[string][]byte) {
			lines := s[".debug_line"]
			lines = append(lines[:len(lines)-3:len(lines)-3], bytes.Repeat([]byte{1}, 32<<20)...)
			order.PutUint32(lines, uint32(len(lines)-4))
			s[".debug_line"] = lines
		},
		"grows": func(s map[string][]byte) { s[".debug_str"] = make([]byte, 64<<20) },
	} {
		sections := madeDebugInfo(order)
		change(sections)
		im := elfimage.New64()
		for section, data := range sections {
			s := elfimage.Section{Name: section, Kind: elf.SHT_PROGBITS, Data: data}
			im.Compress(&s, elf.COMPRESS_ZLIB)
			if section == ".debug_info" || name != "grows" && len(data) < 1<<20 {
				s.Flags, s.Data = 0, data
			}
			im.Sections = append(im.Sections, s)
		}
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), im.Bytes(), 0o755)))
	}
	honest := testprog.Start(t, testprog.Path(t, "target-pie"))
	honest.Do("list") // it runs
	hostile := testprog.StartMapper(t, testprog.Nobody, 0, dir)
	s := NewSymbolizer("")
	s.Lines = true
	t.Cleanup(func() { _ = s.Close() })
	costs := testprog.StartCosts(t)
	late := time.Duration(0)
	for n := range rounds {
		began := time.Now()
		for path, start := range mappedFiles(t, hostile.PID) {
			if filepath.Dir(path) == dir {
				code := start + elfimage.CodeOffset + uint64(n)
				frames := s.Frames(t.Context(), hostile.PID, []uint64{code})
				qt.Check(t, qt.Equals(frames[0].Source, ""), qt.Commentf(path))
			}
		}
		late = max(late, time.Since(began))
	}
	began := time.Now()
	s.Remember(honest.PID)
	file, err := debuginfo.Open(testprog.Path(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	main, err := file.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	code := file.Segment(main.Value, 1, 0)
	qt.Assert(t, qt.IsNotNil(code))
	offset := main.Value - code.Address + code.Offset
	var source string
	for _, m := range s.processes[honest.PID].mapped {
		if at, ok := m.Address(offset); ok && filepath.Base(m.path) == "target-pie" {
			s.Want(t.Context(), honest.PID, []uint64{at})
			source = s.Frames(t.Context(), honest.PID, []uint64{at})[0].Source
		}
	}
	qt.Check(t, qt.Matches(source, `.*\.c:\d+`))
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)), qt.Commentf("after %v", late))
	took := time.Since(began)
	costs.Report(6, fmt.Sprintf("%d stacks through lines without end, depth or measure", 4*rounds),
		"the tracer ends: its stack has 1 GB", "others have lines", took)
}

// A process says that it has made functions without end and on top of each
// other, and says it anew for each stack. Reading that has a limit for the
// process, and others are named.
func TestHostileUserWithMapOfMadeCode(t *testing.T) {
	testneeds.Root(t)
	rounds := testprog.Soak(20, 1000)
	hostile := testprog.StartMapper(t, testprog.Nobody, 0, t.TempDir())
	path := fmt.Sprintf("/tmp/perf-%d.map", hostile.PID)
	t.Cleanup(func() { os.Remove(path) })
	const line = "1 ffffffff \x1b[2J\n"
	overlapping := strings.Repeat(line, maxPerfMap/len(line))
	costs := testprog.StartCosts(t)
	s := NewSymbolizer("")
	t.Cleanup(func() { _ = s.Close() })
	self := uint64(reflect.ValueOf(TestHostileUserWithMapOfMadeCode).Pointer())
	late, work := time.Duration(0), time.Duration(0)
	for n := range rounds {
		switch n {
		case 0:
			qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(overlapping), 0o644)))
			qt.Assert(t, qt.IsNil(os.Chown(path, testprog.Nobody, testprog.Nobody)))
		case rounds / 2: // sparse: any size, at no cost
			qt.Assert(t, qt.IsNil(os.Truncate(path, 1<<40)))
		}
		changed := time.Now().Add(time.Duration(n) * time.Second)
		qt.Assert(t, qt.IsNil(os.Chtimes(path, changed, changed)))
		began := time.Now()
		stack := make([]uint64, maxDepth)
		for i := range stack {
			stack[i] = 0x1000 + uint64(i)
		}
		s.Frames(t.Context(), hostile.PID, stack)
		work += time.Since(began)
		frames := s.Frames(t.Context(), os.Getpid(), []uint64{self})
		qt.Assert(t, qt.Not(qt.Equals(frames[0].FileOffset, 0)))
		late = max(late, time.Since(began))
	}
	qt.Check(t, qt.IsTrue(late < testprog.InTime(2*time.Second)), qt.Commentf("after %v", late))
	qt.Check(t, qt.IsTrue(s.processes[hostile.PID].made.size <= maxPerfMap))
	costs.Report(6, fmt.Sprintf("%d stacks of a process that says anew for each what it has made",
		rounds), "all of the file is read for each, whatever its size",
		"read for a part of the time, others named", late)
	t.Logf("%v for %d stacks", work, rounds)
}

// mappedFiles returns where a process has mapped its files.
func mappedFiles(t *testing.T, pid int) map[string]uint64 {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	qt.Assert(t, qt.IsNil(err))
	all := make(map[string]uint64)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) == 6 {
			start, _, _ := strings.Cut(fields[0], "-")
			all[fields[5]], err = strconv.ParseUint(start, 16, 64)
			qt.Assert(t, qt.IsNil(err))
		}
	}
	return all
}

// symbols are the bytes of a symbol table, with a function at each byte of the
// code and more behind it.
func symbols(count, names int) []byte {
	const long = 16_000 // of the names of the code
	data := make([]byte, elfimage.SymbolSize64)
	for n := range count {
		data = binary.LittleEndian.AppendUint32(data, uint32(1+(max(names-long, 0)+n)%names))
		data = append(data, byte(elf.STT_FUNC), 0, 1, 0)
		data = binary.LittleEndian.AppendUint64(data, elfimage.CodeAddress+uint64(n))
		data = binary.LittleEndian.AppendUint64(data, 1)
	}
	return data
}

// withRepeatedNames is an image of functions that are named by the ends of one
// long text.
func withRepeatedNames(count, length int) *elfimage.Image {
	im := elfimage.New64()
	im.Sections = append(im.Sections, elfimage.Section{
		Name: ".symtab", Kind: elf.SHT_SYMTAB, Record: elfimage.SymbolSize64,
		Link: uint32(len(im.Sections) + 2), Data: symbols(count, length),
	}, elfimage.Section{Name: ".strtab", Kind: elf.SHT_STRTAB,
		Data: []byte("\x00" + strings.Repeat("x", length) + "\x00")})
	return im
}

// withCompressedSymbols is an image whose symbols are compressed zeros.
func withCompressedSymbols(t *testing.T, size int) *elfimage.Image {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []any{uint32(elf.COMPRESS_ZLIB), uint32(0), uint64(size), uint64(1)} {
		// An Elf64_Chdr.
		qt.Assert(t, qt.IsNil(binary.Write(&b, binary.LittleEndian, v)))
	}
	w := zlib.NewWriter(&b)
	for range size >> 20 {
		_, err := w.Write(make([]byte, 1<<20))
		qt.Assert(t, qt.IsNil(err))
	}
	qt.Assert(t, qt.IsNil(w.Close()))
	im := withRepeatedNames(0, 1)
	table := &im.Sections[len(im.Sections)-2]
	table.Flags, table.Data = elf.SHF_COMPRESSED, b.Bytes()
	return im
}

// packed is MiniDebugInfo that takes a second or two to unpack.
var packed = sync.OnceValues(func() ([]byte, error) {
	text := make([]byte, 24<<20)
	for i := range text {
		text[i] = "ABCDEFGHIJKLMNOP"[rand.IntN(16)]
	}
	xz := exec.Command("xz", "-0")
	xz.Stdin = bytes.NewReader(text)
	return xz.Output()
})

// withPackedSymbols is an image with MiniDebugInfo that is no file.
func withPackedSymbols(t *testing.T) *elfimage.Image {
	t.Helper()
	testneeds.Tool(t, "xz", "xz-utils")
	data, err := packed()
	qt.Assert(t, qt.IsNil(err))
	im := elfimage.New64()
	im.Sections = append(im.Sections,
		elfimage.Section{Name: ".gnu_debugdata", Kind: elf.SHT_PROGBITS, Data: data})
	return im
}

// withClaimedSymbols is an image whose tables claim to have what the file has
// not.
func withClaimedSymbols() *elfimage.Image {
	im := withRepeatedNames(1000, 1<<10)
	for i := range im.Sections[len(im.Sections)-2:] {
		im.Sections[len(im.Sections)-2+i].Size = elfimage.Ptr[uint64](1 << 40)
	}
	return im
}

// What tells of a process is asked with a deadline, from the first question on.
func TestProcessWhoseStatDoesNotAnswer(t *testing.T) {
	root := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(root, "7"), 0o755)))
	stat := filepath.Join(root, "7/stat")
	qt.Assert(t, qt.IsNil(syscall.Mkfifo(stat, 0o600)))
	s := NewSymbolizer(proc.FS(root))
	qt.Check(t, qt.Equals(s.Frames(t.Context(), 7, []uint64{1})[0].File, ""))
	calls, _ := s.unanswered.Count()
	qt.Check(t, qt.Equals(calls, 1))
	writer, err := os.OpenFile(stat, os.O_WRONLY, 0) // ends it
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(writer.Close()))
	qt.Check(t, qt.IsNil(s.Close()))
}
