// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// compileProgram compiles a program with probes.
func compileProgram(t *testing.T, source string, compiler ...string) (path string) {
	t.Helper()
	testneeds.Tool(t, compiler[0], compiler[0])
	path = filepath.Join(t.TempDir(), "program")
	args := append(slices.Clone(compiler[1:]), "-w", "-pthread", "-x", "c", "-", "-o", path)
	switch {
	case strings.HasSuffix(compiler[0], "++"):
		args[len(args)-4] = "c++"
	case compiler[0] == "rustc":
		args = append(slices.Clone(compiler[1:]), "-", "-o", path)
	}
	cmd := exec.Command(compiler[0], args...)
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return path
}

// calls runs a program, and returns the numbers of the calls that it says have
// ended, and of those that were measured, in the order of their ends.
func calls(t *testing.T, s *trace.Session, path string, args ...string) (said, measured []string) {
	t.Helper()
	out, err := exec.Command(path, args...).Output()
	qt.Assert(t, qt.IsNil(err))
	said = strings.Fields(string(out))
	for _, e := range next(t, s, len(said)) {
		text := strconv.FormatInt(e.Start.Args[0].Int(), 10)
		if text != strconv.FormatInt(e.Args[0].Int(), 10) {
			text += fmt.Sprintf(" ended as %v", e.Args[0])
		}
		if e.Failed {
			text += "*"
		}
		measured = append(measured, text)
	}
	return said, measured
}

// Which end belongs to which start is known from the first call of a thread on,
// whatever the compiler has made of the program, and what is left is counted.
func TestCallsAreKnown(t *testing.T) {
	testprog.RequireBPF(t)
	for _, compiler := range [][]string{
		{"gcc", "-O0"}, {"gcc", "-O1"}, {"clang", "-O0"}, {"clang", "-O3"}, {"g++", "-O0"}, {"g++", "-O3"},
		{"clang++", "-O2"}, {"rustc", "-Copt-level=0"}, {"rustc", "-Copt-level=3"},
		{"gcc", "-O2", "-fno-asynchronous-unwind-tables"},
		{"built", "frames-0"}, {"built", "frames-2"}, // where there is no compiler
	} {
		t.Run(strings.Join(compiler, " "), func(t *testing.T) {
			file, pair := "../internal/testdata/frames.cc", "frames:q|q__error"
			if compiler[0] == "rustc" {
				file, pair = "../internal/testdata/frames.rs", "frames:q"
			}
			var path string
			if compiler[0] == "built" {
				testneeds.Only(t, "frames are known", "amd64", "arm64", "riscv64", "s390x")
				path = testprog.Path(t, compiler[1])
			} else {
				source, err := os.ReadFile(file)
				if err != nil {
					testneeds.Missing(t, "needs the source of a traced program: %v", err)
				}
				path = compileProgram(t, string(source), compiler...)
			}
			s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
				Spans: []trace.Latency{{Pair: pair}}}})
			attach(t, s, usdt.Target{Path: path}, "frames:*", nil)
			var before trace.Losses
			for scenario, want := range map[string]trace.Losses{
				"jumps": {Left: 8}, "moves": {}, "fails": {}, "helped": {}, "signals": {},
				"coroutines": {}, "forks": {Unmatched: 1}, "execs": {Replaced: 1, Unmatched: 1},
				"execs helped":        {Replaced: 1, Unmatched: 1},
				"execs with one left": {Left: 1, Replaced: 1, Unmatched: 1},
				"execs in a thread":   {Replaced: 2, Unmatched: 1}, "exceptions": {Left: 10}, "guards": {},
				"panics": {Left: 40}, "drops": {},
			} {
				cplusplus := scenario == "exceptions" || scenario == "guards"
				rust := scenario == "panics" || scenario == "drops"
				inside := scenario == "moves" || scenario == "signals" || scenario == "forks"
				if cplusplus && !strings.HasSuffix(compiler[0], "++") || rust != (compiler[0] == "rustc") ||
					!inside && len(compiler) > 2 {
					continue // without tables, the last one in is the first one out
				}
				said, measured := calls(t, s, path, scenario)
				qt.Check(t, qt.DeepEquals(measured, said), qt.Commentf("%s", scenario))
				losses, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				want.Left, want.Unmatched = want.Left+before.Left, want.Unmatched+before.Unmatched
				want.Replaced += before.Replaced
				if len(compiler) > 2 {
					want.NoTables = path
				}
				qt.Check(t, qt.Equals(losses, want), qt.Commentf("%s", scenario))
				before = losses
			}
			silent(t, s) // nothing else was measured
		})
	}
}

// Calls that have ended inside one of another coroutine take no room for those
// that go on.
func TestEndedCallsOfCoroutinesMakeRoom(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Only(t, "frames are known", "amd64", "arm64", "riscv64", "s390x")
	path := compileProgram(t, `
#include <stdio.h>
#include <sys/sdt.h>
#include <ucontext.h>
static ucontext_t high, low;
static char stacks[2][1 << 17];
__attribute__((noinline)) static void f(int id, int depth, ucontext_t *from, ucontext_t *to)
{
	DTRACE_PROBE1(coroutines, q__start, id);
	if (depth > 0)
		f(id + 1, depth - 1, from, to);
	else
		swapcontext(from, to);
	DTRACE_PROBE1(coroutines, q__done, id);
	printf("%d ", id);
}
static void below(void) { for (int i = 0;; i++) { f(100 * i, 19, &low, &high); swapcontext(&low, &high); } }
int main(void)
{
	getcontext(&low);
	low.uc_stack.ss_sp = stacks[0];
	low.uc_stack.ss_size = sizeof(stacks[0]);
	makecontext(&low, below, 0);
	for (int i = 0; i < 5; i++) {
		swapcontext(&high, &low); /* twenty calls of the other coroutine begin, */
		f(100 * i + 99, 0, &high, &low); /* and end inside this one */
		swapcontext(&high, &low);
		f(100 * i + 98, 0, &high, &low);
	}
	return 0;
}`, "gcc", "-O1")
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{{Pair: "coroutines:q"}}}})
	attach(t, s, usdt.Target{Path: path}, "coroutines:*", nil)
	said, measured := calls(t, s, path)
	qt.Check(t, qt.DeepEquals(measured, said))
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(losses, trace.Losses{}))
}

// randomProgram returns a program whose functions call each other, and leave
// each other by returns and by exceptions or long jumps, at random.
func randomProgram(random *rand.Rand, cplusplus bool) string {
	const functions = 5
	var b strings.Builder
	b.WriteString(`
#include <alloca.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/sdt.h>
#define START(id) DTRACE_PROBE1(model, q__start, id)
#define END(id) do { DTRACE_PROBE1(model, q__done, id); printf("%d ", id); } while (0)
static unsigned state, last;
static void *volatile kept;
static jmp_buf *catcher;
static unsigned pick(unsigned n) { state = state * 1103515245 + 12345; return (state >> 16) % n; }
`)
	attempt := `{ jmp_buf here, *volatile outer = catcher; catcher = &here; if (!setjmp(here)) { %s } catcher = outer; }`
	throw := "if (catcher) longjmp(*catcher, 1);"
	if cplusplus {
		attempt, throw = "{ catching++; try { %s } catch (int) { } catching--; }", "if (catching) throw 1;"
		b.WriteString("static int catching;\n")
	}
	for i := range functions {
		fmt.Fprintf(&b, "__attribute__((noinline)) static void f%d(int depth);\n", i)
	}
	for i := range functions {
		fmt.Fprintf(&b, "static void f%d(int depth)\n{\n\tvolatile int id = ++last;\n", i)
		if random.IntN(3) == 0 {
			fmt.Fprintf(&b, "\tchar array[%d + depth]; kept = array;\n", random.IntN(200))
		}
		b.WriteString("\tSTART(id);\n")
		for range 1 + random.IntN(3) {
			do := fmt.Sprintf("f%d(depth - 1);", random.IntN(functions))
			switch random.IntN(6) {
			case 0:
				do = "kept = memset(alloca(pick(300) + 1), 1, 1); " + do
			case 1:
				do = fmt.Sprintf(attempt, do)
			case 2:
				do = fmt.Sprintf("for (int i = pick(3); i >= 0; i--) %s", fmt.Sprintf(attempt, do))
			case 3:
				do += " if (!pick(4)) return;"
			case 4:
				do += " if (!pick(3)) { " + throw + " }"
			}
			fmt.Fprintf(&b, "\tif (depth > 0 && pick(4)) { %s }\n", do)
		}
		b.WriteString("\tEND(id);\n\tkept = (void *)&id;\n}\n")
	}
	fmt.Fprintf(&b, "int main(void)\n{\n\tstate = %d;\n\tfor (int n = 0; n < 20; n++) %s\n\tprintf(\"\\n\");\n\treturn 0;\n}\n",
		random.IntN(1<<20), fmt.Sprintf(attempt, "f0(5);"))
	return b.String()
}

// Calls of random programs are measured as the programs say. What is not
// measured has been left, and nothing else is.
func TestCallsOfRandomPrograms(t *testing.T) {
	testprog.RequireBPF(t)
	programs := 50
	if os.Getenv("GOUSDT_SOAK") != "" {
		programs = 1000
	}
	compilers := []string{"gcc", "clang", "g++"}
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{{Pair: "model:q"}}}})
	for n := range programs {
		random := rand.New(rand.NewPCG(31, uint64(n)))
		compiler := compilers[n%len(compilers)]
		level := "-O" + strconv.Itoa(random.IntN(4))
		source := randomProgram(random, compiler == "g++")
		path := compileProgram(t, source, compiler, level)
		a := attach(t, s, usdt.Target{Path: path}, "model:*", nil)
		said, measured := calls(t, s, path)
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		ok := qt.Check(t, qt.DeepEquals(measured, said)) &&
			qt.Check(t, qt.Equals(losses, trace.Losses{Left: losses.Left, Exited: losses.Exited,
				Replaced: losses.Replaced}))
		if !ok {
			t.Fatalf("%s %s, program %d:\n%s", compiler, level, n, source)
		}
		qt.Assert(t, qt.IsNil(a.Close()))
		qt.Assert(t, qt.IsNil(os.Remove(path)))
	}
	silent(t, s)
}
