// SPDX-License-Identifier: BSD-2-Clause

package stack_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/stack"
)

// A program of which perf samples the innermost function, with a hot loop so
// that it is on all stacks. It is inlined into check, which is inlined into
// work.
const inlining = `
static volatile unsigned long total;
static inline __attribute__((always_inline)) void add(unsigned n) {
	for (unsigned i = 0; i < n; i++)
		total += i * n;
}
static inline __attribute__((always_inline)) void check(unsigned n) {
	if (n > 1)
		add(n);
	total++;
}
__attribute__((noinline)) void work(unsigned n) {
	check(n);
	__asm__ volatile("");
}
int main(void) {
	for (unsigned n = 0;; n++)
		work(1000 + n % 7);
	return 0;
}
`

// compiled compiles a program in C, with debug information, and returns its
// path.
func compiled(t *testing.T, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(source), 0o644)))
	cmd := exec.Command(testneeds.Tool(t, "gcc", "gcc"),
		append([]string{"-O2", "-g", "-fno-omit-frame-pointer", "-o", path, file}, flags...)...)
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return path
}

// perfFrame is what perf script says of a frame: its offset in the file, the
// function with an offset, the line, and whether the function is inlined.
var perfFrame = regexp.MustCompile(`(?m)^\s*([0-9a-f]+) (\w+)\+0x[0-9a-f]+.*\n\s*(\S+:\d+)( \(inlined\))?$`)

// perfStacks returns the addresses of stacks that perf sampled of a process,
// from the innermost function to main, by what perf says of their functions.
func perfStacks(t *testing.T, pid int) map[string][]uint64 {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	run := func(arguments ...string) string {
		t.Helper()
		out, err := exec.Command("perf", arguments...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		return string(out)
	}
	run("record", "-q", "-N", "-e", "cpu-clock:u", "--call-graph", "dwarf", "-o", data,
		"-p", strconv.Itoa(pid), "sleep", "0.2")
	out := run("script", "-i", data, "-F", "ip,sym,symoff,dso,srcline", "--inline")
	all := make(map[string][]uint64)
	for sample := range strings.SplitSeq(out, "\n\n") {
		var stack []uint64
		var words []string
		for _, frame := range perfFrame.FindAllStringSubmatch(sample, -1) {
			at, err := strconv.ParseUint(frame[1], 16, 64)
			qt.Assert(t, qt.IsNil(err))
			if frame[4] == "" {
				stack = append(stack, at)
			}
			words = append(words, frame[2]+" "+frame[3]+frame[4])
			if frame[2] == "main" {
				all[strings.Join(words, "\n")] = stack
				break
			}
		}
	}
	qt.Assert(t, qt.IsTrue(len(all) > 0), qt.Commentf("%s", out))
	return all
}

// What perf says of the functions on a stack, and of their lines, is what
// Frames and profiles say.
func TestLinesAreThoseOfPerf(t *testing.T) {
	testneeds.Root(t)
	if err := exec.Command("perf", "version").Run(); err != nil {
		testneeds.Missing(t, "needs perf (Debian: linux-perf): %v", err)
	}
	for name, flags := range map[string][]string{
		"DWARF 5": nil, "DWARF 4": {"-gdwarf-4"}, "at a fixed address": {"-no-pie"},
		"compressed": {"-gz=zlib"},
	} {
		t.Run(name, func(t *testing.T) {
			path := compiled(t, inlining, flags...)
			program := exec.Command(path)
			qt.Assert(t, qt.IsNil(program.Start()))
			defer func() { _ = program.Process.Kill(); _ = program.Wait() }()
			pid := program.Process.Pid
			s := stack.NewSymbolizer("")
			s.Lines = true
			defer s.Close()
			hasInlined := false
			for want, addresses := range perfStacks(t, pid) {
				for i, at := range addresses {
					addresses[i] = runtimeAddress(t, pid, path, at)
					if i > 0 {
						addresses[i]++ // a return address
					}
				}
				s.Want(t.Context(), pid, addresses)
				var words []string
				inlined := 0
				for _, f := range s.Frames(t.Context(), pid, addresses) {
					qt.Check(t, qt.Equals(filepath.Dir(f.Source), filepath.Dir(path)))
					word := f.Function + " " + filepath.Base(f.Source)
					if f.Inlined {
						word += " (inlined)"
						inlined++
						qt.Check(t, qt.Equals(f.String(), f.Function+" (inlined) "+f.Source))
					}
					words = append(words, word)
				}
				got := strings.Join(words, "\n")
				if strings.Count(want, " (inlined)") < inlined {
					// perf does not always name them, as on a busy machine.
					got, want = called(got), called(want)
				} else {
					hasInlined = hasInlined || inlined > 0
				}
				qt.Check(t, qt.Equals(got, want))
				checkProfile(t, s, pid, addresses, words)
			}
			qt.Check(t, qt.IsTrue(hasInlined))
		})
	}
}

// called returns the names of the functions that are not inlined.
func called(words string) string {
	var names []string
	for word := range strings.SplitSeq(words, "\n") {
		if name, _, _ := strings.Cut(word, " "); !strings.HasSuffix(word, " (inlined)") {
			names = append(names, name)
		}
	}
	return strings.Join(names, "\n")
}

// runtimeAddress returns where a process has the byte with an offset in its
// program.
func runtimeAddress(t *testing.T, pid int, path string, offset uint64) uint64 {
	t.Helper()
	files, err := procfs.Files("", pid)
	qt.Assert(t, qt.IsNil(err))
	for _, f := range files {
		for _, m := range f.Mappings {
			if at, ok := m.Address(offset); ok && f.Path == path {
				return at
			}
		}
	}
	t.Fatalf("%#x is not mapped", offset)
	return 0
}

// checkProfile checks that a profile of a stack has these functions, with their
// lines, in all its formats.
func checkProfile(t *testing.T, s *stack.Symbolizer, pid int, addresses []uint64, want []string) {
	t.Helper()
	p := stack.NewProfile(s, profile.ValueType{Type: "hits", Unit: "count"})
	p.Add(t.Context(), pid, addresses, []int64{7}, nil)
	var folded, page, file bytes.Buffer
	qt.Assert(t, qt.IsNil(p.WriteFolded(t.Context(), &folded)))
	qt.Assert(t, qt.IsNil(p.WriteFlameGraph(t.Context(), &page, "")))
	qt.Assert(t, qt.IsNil(p.Write(t.Context(), &file)))
	read, err := profile.Parse(&file)
	qt.Assert(t, qt.IsNil(err))
	var names, words []string
	for _, l := range read.Sample[0].Location {
		for i, line := range l.Line {
			name, word := line.Function.Name, fmt.Sprintf("%s %s:%d", line.Function.Name,
				filepath.Base(line.Function.Filename), line.Line)
			if i < len(l.Line)-1 {
				name, word = name+" (inlined)", word+" (inlined)"
			}
			names, words = slices.Insert(names, 0, name), append(words, word)
			qt.Check(t, qt.StringContains(page.String(),
				fmt.Sprintf(`"name":"%s","value":7,"lines":"%s:%d"`, name, line.Function.Filename,
					line.Line)))
		}
		qt.Check(t, qt.IsTrue(l.Mapping.HasFilenames && l.Mapping.HasLineNumbers))
	}
	qt.Check(t, qt.DeepEquals(words, want))
	qt.Check(t, qt.Equals(folded.String(), strings.Join(names, ";")+" 7\n"))
}
