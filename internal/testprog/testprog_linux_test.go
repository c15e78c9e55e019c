// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

var programs = []string{"target-pie", "target-static", "target-shared", "target-stripped",
	"target-clang"}

var programsWithProbes = []string{"target-pie", "target-static", "libtarget.so", "target-clang"}

func TestEveryProgramFiresEveryGroup(t *testing.T) {
	for _, name := range programs {
		t.Run(name, func(t *testing.T) {
			p := Start(t, name)
			for _, group := range p.must("list") {
				p.Fire(group, 2)
			}
			p.Stop()
		})
	}
}

func TestGroupsAreThoseExpected(t *testing.T) {
	var expected []string
	for _, probe := range Expected(elfMachine(t, Path(t, "target-pie"))) {
		expected = append(expected, probe.Group)
	}
	expected = append(expected, "broken", "cold")
	slices.Sort(expected)
	groups := Start(t, "target-pie").must("list")
	slices.Sort(groups)
	qt.Assert(t, qt.DeepEquals(groups, slices.Compact(expected)))
}

func TestThreadsHaveTheirOwnIDs(t *testing.T) {
	p := Start(t, "target-pie")
	tids := p.Thread("three", 5)
	slices.Sort(tids)
	qt.Assert(t, qt.HasLen(slices.Compact(tids), 5))
	qt.Assert(t, qt.IsFalse(slices.Contains(tids, p.PID)))
}

func TestForkAnswersTheChild(t *testing.T) {
	p := Start(t, "target-pie")
	qt.Assert(t, qt.Not(qt.Equals(p.Fork("three", 3), p.PID)))
}

func TestSemaphoresAreZeroWithoutTracer(t *testing.T) {
	p := Start(t, "target-shared")
	qt.Assert(t, qt.Equals(p.Semaphore("counted"), 0))
	qt.Assert(t, qt.DeepEquals(p.Semaphores("split"), []int{0, 0}))
	qt.Assert(t, qt.HasLen(p.Semaphores("none"), 0))
}

func TestExecKeepsThePIDAndMapsAnew(t *testing.T) {
	p := Start(t, "target-pie")
	before := processMaps(t, p)
	p.Exec()
	qt.Assert(t, qt.Equals(p.must("pid")[1], strconv.Itoa(p.PID)))
	qt.Assert(t, qt.Not(qt.Equals(processMaps(t, p), before)))
}

func TestLoadMapsALibrary(t *testing.T) {
	p := Start(t, "target-pie")
	library := Path(t, "libtarget.so")
	p.Do("load " + library)
	qt.Assert(t, qt.StringContains(processMaps(t, p), library))
	p.Do("unload")
	qt.Assert(t, qt.Not(qt.StringContains(processMaps(t, p), library)))
}

func processMaps(t *testing.T, p *Process) string {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
	qt.Assert(t, qt.IsNil(err))
	return string(maps)
}

func TestUnknownGroupIsAnErrorAndDoesNotEndTheProgram(t *testing.T) {
	p := Start(t, "target-pie")
	_, err := p.Command("fire nonesuch")
	qt.Assert(t,
		qt.ErrorMatches(err, `command "fire nonesuch": the program answers .*no such probe.*`))
	p.Fire("none", 1)
}

func TestDeadProgramIsReportedWithItsSignal(t *testing.T) {
	p := Start(t, "target-pie")
	qt.Assert(t, qt.IsNil(syscall.Kill(p.PID, syscall.SIGTRAP)))
	_, err := p.Command("fire none")
	for err == nil { // it may have answered before the signal came
		_, err = p.Command("fire none")
	}
	qt.Assert(t, qt.ErrorMatches(err, `(?s).*(trace/breakpoint trap|broken pipe).*`))
}

// A thread that waits for an answer of the server keeps the descriptors of the
// process that has been killed.
func TestHostileUsersEndWithTheTestProgram(t *testing.T) {
	const variable = "GOUSDT_TEST_HOSTILE_CHILD"
	if os.Getenv(variable) != "" {
		h := StartHostile(t, 1001, Path(t, "target-pie"))
		h.Do(fmt.Sprint("stop ", fuseOpen))
		go os.ReadFile(fmt.Sprintf("/proc/%d/root%s/%s", h.PID, h.cmd.Args[2], h.File))
		h.Do(fmt.Sprint("await ", fuseOpen))
		server := h.must("freeze")[0]
		fmt.Println("servers:", server, h.PID)
		select {}
	}
	testneeds.Root(t)
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	child := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), variable+"=1", "TMPDIR="+t.TempDir())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(child.Start()))
	t.Cleanup(func() { child.Process.Kill() })
	var said strings.Builder
	server, user := 0, 0
	for lines := bufio.NewScanner(io.TeeReader(out, &said)); user == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "servers: %d %d", &server, &user)
	}
	if user == 0 && strings.Contains(said.String(), "--- SKIP") {
		testneeds.Missing(t, "%s", &said)
	}
	qt.Assert(t, qt.Not(qt.Equals(user, 0)), qt.Commentf("%s", &said))
	qt.Assert(t, qt.IsNil(child.Process.Kill()))
	hung := time.AfterFunc(testneeds.Patience(5*time.Second), func() {
		t.Error("the server has not ended")
		syscall.Kill(server, syscall.SIGKILL)
	})
	defer hung.Stop()
	qt.Assert(t, qt.ErrorMatches(child.Wait(), "signal: killed"))
}

func elfMachine(t *testing.T, path string) elf.Machine {
	f, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	return f.Machine
}

func TestFilesHaveTheShapesTheyAreBuiltFor(t *testing.T) {
	tests := []struct {
		name       string
		kind       elf.Type
		sameOffset bool // of the code
		base       bool // has .stapsdt.base
		notes      bool
		symbols    bool
	}{
		{"target-pie", elf.ET_DYN, true, true, true, true},
		{"target-static", elf.ET_EXEC, false, true, true, true},
		{"target-shared", elf.ET_DYN, true, false, false, true},
		{"libtarget.so", elf.ET_DYN, false, false, true, true},
		{"target-stripped", elf.ET_DYN, true, true, true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := elf.Open(Path(t, test.name))
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()
			code := f.Section(".text")
			qt.Check(t, qt.Equals(f.Type, test.kind))
			qt.Check(t, qt.Equals(code.Addr == code.Offset, test.sameOffset))
			qt.Check(t, qt.Equals(f.Section(".stapsdt.base") != nil, test.base))
			qt.Check(t, qt.Equals(f.Section(".note.stapsdt") != nil, test.notes))
			qt.Check(t, qt.Equals(f.Section(".symtab") != nil, test.symbols))
		})
	}
}

// The places that the programs are there to offer: compilers change.
func TestNotesHoldEveryForm(t *testing.T) {
	forms := map[string][]string{
		"amd64": {
			`-[124]@%[a-z]+\b`, `1@%[abcd]h`, `8@%rip`, `8f@%xmm`, `16@`, // registers
			`-8@\$-[0-9]+`, `8@\$18446744073709551615`, // constants
			`4@\(%r`, `8@-?[0-9]+\(%rsp\)`, `-4@-12\+8\+4\(`, // base
			`@\(%r[a-z0-9]+,%r[a-z0-9]+\)`, `@\(%r[a-z0-9]+,%r[a-z0-9]+,2\)`,
			`@4\(%r[a-z0-9]+,%r[a-z0-9]+,4\)`, `@4\(,%r[a-z0-9]+,4\)`, // index
			`@global_s32\(%rip\)`, `@gousdt_array\+4\(%rip\)`, `@8\+gousdt_array\(%rip\)`,
			`4f@[-0-9]+\(`, `8f@%r`, // floating point
			`^%r[a-z]+ \$5 -?[0-9]+\(`, // without sizes
		},
		"386": {
			`-1@%e[abcd]x`, `1@%[abcd]h`, `-8@[0-9]+\(%esp\)`, `8f@[0-9]+\(%esp\)`,
			`-8@%[a-z]+ 8@%[a-z]+ -4@`, // pairs
			`@global_s32@GOTOFF\(%e`, `@6\+global_array@GOTOFF\(%e`, `@\(%e[a-z]+,%e[a-z]+,4\)`,
		},
		"s390x": {
			`-4@%r[0-9]+`, `8@[0-9]+\(%r15\)`, `-4@17`, `@0\(%r[0-9]+,%r[0-9]+\)`, `@4\(%r0,`,
		},
		"arm64": {
			`-4@x[0-9]+`, `-4@w[0-9]+`, `@\[x[0-9]+\]`, `@\[sp, [0-9]+\]`, `@\[x[0-9]+,#4\]`,
			`@\[x[0-9]+, x[0-9]+\]`, `lsl 2\]`, `w[0-9]+, uxtw 2\]`, `w[0-9]+, sxtw 2\]`,
			`#:lo12:`, `8f@v`,
		},
		"riscv64": {`-4@a[0-7]`, `8@[0-9]+\(sp\)`, `-4@17`, `8@ra`, `8f@fa`},
	}
	for arch, wanted := range forms {
		for _, name := range []string{"target-pie", "target-static", "libtarget.so"} {
			t.Run(arch+"/"+name, func(t *testing.T) {
				arguments := notes(t, CrossPath(t, arch, name))
				for _, form := range wanted {
					if arch == "386" && name == "target-static" &&
						strings.Contains(form, "GOTOFF") {
						continue // a position-dependent program has no need for it
					}
					found := slices.ContainsFunc(arguments, regexp.MustCompile(form).MatchString)
					qt.Check(t, qt.IsTrue(found), qt.Commentf("no argument like %s", form))
				}
			})
		}
	}
}

func TestProbesWithManySitesHaveTheSpecsTheyClaim(t *testing.T) {
	distinct := func(arguments []string) int {
		slices.Sort(arguments)
		return len(slices.Compact(arguments))
	}
	for _, name := range programsWithProbes {
		t.Run(name, func(t *testing.T) {
			probes := notesByName(t, Path(t, name))
			qt.Check(t, qt.HasLen(probes["many"], 400))
			qt.Check(t, qt.Equals(distinct(probes["many"]), 1))
			qt.Check(t, qt.HasLen(probes["specs"], 300))
			qt.Check(t, qt.Equals(distinct(probes["specs"]), 300))
			qt.Check(t, qt.HasLen(probes["inlined"], 5))
			// clang keeps two of the callers' arguments in the same stack
			// slots.
			qt.Check(t, qt.IsTrue(distinct(probes["inlined"]) >= 4))
			qt.Check(t, qt.HasLen(probes["duplicate"], 2))
		})
	}
}

// Whatever the compiler makes of the sources, each site must be there once.
func TestEveryExpectedProbeIsInEveryProgram(t *testing.T) {
	for _, arch := range []string{"amd64", "386", "s390x", "arm64", "riscv64"} {
		for _, name := range []string{"target-pie", "target-static", "libtarget.so"} {
			t.Run(arch+"/"+name, func(t *testing.T) {
				path := CrossPath(t, arch, name)
				probes := notesByName(t, path)
				for _, probe := range Expected(elfMachine(t, path)) {
					if probe.Provider == "gousdt::names" || probe.Name == "duplicate" {
						continue // readelf writes their names, or counts them, otherwise
					}
					qt.Check(t, qt.HasLen(probes[probe.Name], probe.Sites),
						qt.Commentf("%s", probe.Name))
					for _, args := range probe.Hits {
						if len(args) == 0 {
							continue
						}
						places := strings.Count(probes[probe.Name][0], "@")
						if probe.Name != "sizeless" && !strings.Contains(probes[probe.Name][0],
							"@GOT") {
							qt.Check(t, qt.Equals(places, len(args)), qt.Commentf("%s", probe.Name))
						}
					}
				}
			})
		}
	}
}

// notesByName returns the argument strings of each probe's sites as binutils
// sees them.
func notesByName(t *testing.T, path string) map[string][]string {
	if _, err := exec.LookPath("readelf"); err != nil {
		testneeds.Missing(t, "needs readelf (Debian: binutils): %v", err)
	}
	out, err := exec.Command("readelf", "-nW", path).Output()
	qt.Assert(t, qt.IsNil(err))
	probes := make(map[string][]string)
	var name string
	for line := range strings.Lines(string(out)) {
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "Name: "); ok {
			name = after
		}
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "Arguments:"); ok {
			probes[name] = append(probes[name], strings.TrimSpace(after))
		}
	}
	return probes
}

func notes(t *testing.T, path string) []string {
	var all []string
	for _, arguments := range notesByName(t, path) {
		all = append(all, arguments...)
	}
	return all
}
