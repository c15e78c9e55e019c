// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const probes = `package main

import "time"

//go:generate go tool sdt

//sdt:provider shop

type status uint16

//go:noescape
func requestStart(path string, id int)

//go:noescape
func requestDone(route []byte, code status, ok bool, took time.Duration, load float32, rate float64, p *int)

//sdt:probe beat
func tick()
`

// newProgram makes a program with the probes above. Its tool is this module.
func newProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "go.mod", fmt.Sprintf(`module example.com/shop

go 1.25.0

tool github.com/gousdt/gousdt/sdt

require github.com/gousdt/gousdt/sdt v0.0.0

replace github.com/gousdt/gousdt/sdt => %s
`, here))
	write(t, dir, "probes.go", probes)
	write(t, dir, "main.go", `package main

func main() {
	if requestStartEnabled() {
		requestStart("/", 1)
	}
	requestDone([]byte("/"), 200, true, 1, 1.5, 2.5, new(int))
	tick()
}
`)
	write(t, dir, "main_test.go", "package main\n\nimport \"testing\"\n\nfunc TestTick(*testing.T) { tick() }\n")
	command(t, dir, "go", "generate")
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// environment is the machine and more for what a test runs.
func commandIn(t *testing.T, dir string, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off"), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return commandIn(t, dir, nil, args...)
}

// tool is the path of sdt for -toolexec.
func tool(t *testing.T, dir string) string {
	t.Helper()
	return strings.TrimSpace(command(t, dir, "go", "tool", "-n", "sdt"))
}

// site is a note, with the code that its address leads to.
type site struct {
	name, args string
	address    uint64
	code       []byte
}

// sites returns the sites of a program by probe, and checks that each semaphore
// is 0 in the file.
func sites(t *testing.T, name string) map[string]site {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := make(map[string]site)
	section := f.Section(noteSection)
	if section == nil {
		return found
	}
	data, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	var base uint64
	if s := f.Section(baseSection); s != nil {
		base = s.Addr
	}
	at := func(address uint64, n int) []byte {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr+uint64(n) <= p.Filesz {
				b := make([]byte, n)
				if _, err := p.ReadAt(b, int64(address-p.Vaddr)); err != nil {
					t.Fatal(err)
				}
				return b
			}
		}
		t.Fatalf("%s: %#x is in no segment", name, address)
		return nil
	}
	for len(data) > 0 {
		size := int(f.ByteOrder.Uint32(data[4:]))
		desc := data[20 : 20+size]
		if got := f.ByteOrder.Uint64(desc[8:]); got != base {
			t.Errorf("base is %#x in the note, %#x in the section", got, base)
		}
		semaphore := f.ByteOrder.Uint64(desc[16:])
		if semaphore != 0 && !bytes.Equal(at(semaphore, 2), []byte{0, 0}) {
			t.Errorf("a semaphore is % x", at(semaphore, 2))
		}
		texts := strings.Split(string(desc[24:]), "\x00")
		address := f.ByteOrder.Uint64(desc)
		found[texts[0]+":"+texts[1]] = site{texts[1], texts[2], address, at(address, 12)}
		data = data[20+(size+3)&^3:]
	}
	return found
}

// checkSites checks the sites of the program above.
func checkSites(t *testing.T, name string) {
	t.Helper()
	found := sites(t, name)
	if len(found) != 3 {
		t.Fatalf("%d probes, not 3", len(found))
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, memory, register := "", "", ""
	switch f.Machine {
	case elf.EM_X86_64:
		want, memory, register = "90662e0f1f840000000000c3", "%d(%%rsp)", "%r14"
	case elf.EM_AARCH64:
		want, memory, register = "1f2003d5c0035fd6", "[sp, %d]", "x28"
	case elf.EM_RISCV:
		want, memory, register = "13000000", "%d(sp)", "s11"
	case elf.EM_S390:
		want, memory, register = "4700000007fe", "%d(%%r15)", "%r13"
	}
	for probe, args := range map[string]string{
		"shop:request__start": "8@8 8@16 -8@24 8@g",
		"shop:request__done":  "8@8 8@16 2@32 1@34 -8@40 4f@48 8f@56 8@64 8@g",
		"shop:beat":           "8@g",
	} {
		args = regexp.MustCompile(`@(\d+)`).ReplaceAllStringFunc(args, func(at string) string {
			var n int
			_, _ = fmt.Sscanf(at, "@%d", &n)
			return "@" + fmt.Sprintf(memory, n)
		})
		args = strings.Replace(args, "@g", "@"+register, 1)
		if got := found[probe].args; got != args {
			t.Errorf("%s: arguments %q, not %q", probe, got, args)
		}
		if got := fmt.Sprintf("%x", found[probe].code); !strings.HasPrefix(got, want) {
			t.Errorf("%s: code %s, not %s", probe, got, want)
		}
	}
}

// Each way to link a program leaves its probes where the code has them, and a
// program that runs.
func TestLink(t *testing.T) {
	dir := newProgram(t)
	sdt := tool(t, dir)
	for _, flags := range [][]string{
		nil, {"-trimpath"}, {"-ldflags=-s -w"}, {"-buildmode=pie"}, {"-race"}, {"-cover"},
		{"-buildmode=pie", "-trimpath", "-ldflags=-linkmode=external -s"},
		{"-buildmode=pie", "-ldflags=-linkmode=external -extldflags=-Wl,-z,pack-relative-relocs"},
		{"-ldflags=-linkmode=external -extldflags=-static"},
		{"-buildmode=c-shared"}, {"-buildmode=plugin"},
	} {
		t.Run(strings.Join(append([]string{"flags"}, flags...), " "), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "shop")
			args := slices.Concat([]string{"go", "build", "-o", name, "-toolexec", sdt}, flags, []string{"."})
			commandIn(t, dir, []string{"CGO_ENABLED=1"}, args...)
			checkSites(t, name)
			if flags := strings.Join(flags, " "); strings.Contains(flags, "shared") ||
				strings.Contains(flags, "plugin") {
				return // libraries
			}
			commandIn(t, dir, []string{"GOCOVERDIR=" + t.TempDir()}, name)
			if _, err := buildinfo.ReadFile(name); err != nil {
				t.Error(err)
			}
			if !strings.Contains(strings.Join(flags, " "), "-s") {
				checkDebuggers(t, dir, name)
			}
			command(t, dir, "strip", name)
			checkSites(t, name)
			command(t, dir, name)
		})
	}
}

// checkDebuggers checks that debuggers and profilers find code and lines.
func checkDebuggers(t *testing.T, dir, name string) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.DWARF(); err != nil {
		t.Error(err)
	}
	if out := command(t, dir, "go", "tool", "objdump", "-s", "main.tick", name); !strings.Contains(out,
		"probes_sdt_linux_") {
		t.Error(out)
	}
}

// The newest two releases of Go link as is expected.
func TestReleases(t *testing.T) {
	dir := newProgram(t)
	for _, release := range []string{"go1.25.5", "go1.26.8"} {
		t.Setenv("GOTOOLCHAIN", release)
		if out, err := exec.Command("go", "version").CombinedOutput(); err != nil {
			if os.Getenv("CI") == "true" {
				t.Errorf("%s", out)
			}
			t.Logf("no %s: %s", release, out)
			continue
		}
		name := filepath.Join(dir, release)
		for _, mode := range []string{"exe", "pie"} {
			command(t, dir, "go", "build", "-buildmode", mode, "-o", name, "-toolexec", tool(t, dir), ".")
			checkSites(t, name)
			command(t, dir, name)
			info, err := buildinfo.ReadFile(name)
			if err != nil || info.GoVersion != release {
				t.Errorf("%v, %v", info, err)
			}
		}
	}
}

// The command does what -toolexec does, once, also for a stripped program.
func TestLinkCommand(t *testing.T) {
	dir := newProgram(t)
	sdt := tool(t, dir)
	command(t, dir, "go", "build", "-o", "plain", ".")
	command(t, dir, "go", "build", "-o", "linked", "-toolexec", sdt, ".")
	command(t, dir, "go", "build", "-ldflags=-linkmode=external", "-o", "stripped", ".")
	if len(sites(t, filepath.Join(dir, "plain"))) != 0 {
		t.Error("a program is linked without sdt in the build cache")
	}
	command(t, dir, "strip", "stripped")
	for range 2 {
		command(t, dir, sdt, "link", "plain", "stripped")
		checkSites(t, filepath.Join(dir, "plain"))
		checkSites(t, filepath.Join(dir, "stripped"))
	}
	sections := func(name string) int {
		f, err := elf.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return len(f.Sections)
	}
	if sections("plain") != sections("linked") {
		t.Error("the second link has added sections")
	}
	out, err := exec.Command(sdt, "link", sdt).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no function that go tool sdt has written") {
		t.Errorf("%s", out)
	}
}

// The notes of C code in a program stay, with the address that they are
// relative to.
func TestNotesOfOthers(t *testing.T) {
	dir := newProgram(t)
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "c"), "c.go", `package c

// #include <sys/sdt.h>
// static void probe(int i) { DTRACE_PROBE1(other, c, i); }
import "C"

func init() { C.probe(1) }
`)
	write(t, dir, "c.go", "package main\n\nimport _ \"example.com/shop/c\"\n")
	name := filepath.Join(dir, "shop")
	for _, mode := range []string{"exe", "pie"} {
		commandIn(t, dir, []string{"CGO_ENABLED=1"},
			"go", "build", "-buildmode", mode, "-o", name, "-toolexec", tool(t, dir), ".")
		found := sites(t, name)
		if len(found) != 4 || found["other:c"].code[0] != 0x90 && runtime.GOARCH == "amd64" {
			t.Errorf("%v", found)
		}
	}
}

// Builds are reproducible, and the go command's other ways to build work.
func TestBuilds(t *testing.T) {
	dir := newProgram(t)
	sdt := tool(t, dir)
	var builds [2][]byte
	for i := range builds {
		dir := newProgram(t) // each has a folder of its own
		command(t, dir, "go", "build", "-trimpath", "-o", "shop", "-toolexec", sdt, ".")
		var err error
		if builds[i], err = os.ReadFile(filepath.Join(dir, "shop")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(builds[0], builds[1]) {
		t.Error("two builds differ")
	}
	command(t, dir, "go", "vet", ".")
	command(t, dir, "go", "test", "-toolexec", sdt, "-c", "-o", "shop.test", ".")
	if found := sites(t, filepath.Join(dir, "shop.test")); len(found) != 1 {
		t.Errorf("a test that calls one probe has %v", found)
	}
	command(t, dir, "go", "test", "-toolexec", sdt, ".")
	command(t, dir, "go", "run", "-toolexec", sdt, ".")
	bin := t.TempDir()
	commandIn(t, dir, []string{"GOBIN=" + bin}, "go", "install", "-toolexec", sdt, ".")
	checkSites(t, filepath.Join(bin, "shop"))
	version := command(t, dir, "go", "version", "-m", filepath.Join(bin, "shop"))
	if !strings.Contains(version, "example.com/shop") {
		t.Error(version)
	}
}

// Programs for the other machines have their probes, too.
func TestOtherMachines(t *testing.T) {
	dir := newProgram(t)
	sdt := tool(t, dir)
	for _, flags := range [][]string{
		{"arm64", "exe"}, {"arm64", "pie"}, {"riscv64", "exe"}, {"s390x", "exe"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "shop")
			commandIn(t, dir, []string{"GOOS=linux", "CGO_ENABLED=0", "GOARCH=" + flags[0]},
				"go", "build", "-buildmode", flags[1], "-o", name, "-toolexec", sdt, ".")
			checkSites(t, name)
		})
	}
}

// What is written is assembled on each system and machine, and go vet's asmdecl
// has nothing against it.
func TestOtherSystems(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/shop\n\ngo 1.25.0\n")
	write(t, dir, "probes.go", "package shop\n\n//go:noescape\n"+
		"func requestStart(path string, id int, ok bool, x float64)\n\nfunc tick()\n")
	if err := generate(filepath.Join(dir, "probes.go")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"linux/amd64", "linux/arm64", "linux/riscv64", "linux/s390x", "linux/386", "linux/arm",
		"linux/ppc64le", "linux/loong64", "linux/mips64", "linux/mips", "android/arm64",
		"darwin/arm64", "windows/amd64", "freebsd/amd64", "js/wasm",
	} {
		system, arch, _ := strings.Cut(target, "/")
		environment := []string{"GOOS=" + system, "GOARCH=" + arch, "CGO_ENABLED=0"}
		commandIn(t, dir, environment, "go", "vet", ".")
		commandIn(t, dir, environment, "go", "build", ".")
	}
}

// A bad declaration is refused with its place and a way out.
func TestRefused(t *testing.T) {
	for _, test := range []struct{ declaration, want string }{
		{"func a(x int) int", "a: a probe returns nothing"},
		{"func (s) a()", "a: a probe is a function, not a method"},
		{"func a[T any]()", "a: a probe has no type parameters"},
		{"func a(x any)", "a: x has a type that tracers cannot read: use an integer.*"},
		{"func a(x ...int)", "a: x has a type that tracers cannot read.*"},
		{"func a(x []int)", "a: x has a type that tracers cannot read.*"},
		{"func a(x http.Header)", "a: x has a type that tracers cannot read.*"},
		{"func a(int)", "a: an argument has no name"},
		{"func a(_ int)", "a: the definition cannot have an argument called _: rename it"},
		{"func a(long int)", "a: the definition cannot have an argument called long: rename it"},
		{"func a(länge int)", "a: the definition cannot have an argument called länge: rename it"},
		{"func a(goroutine int)", "a: the argument goroutine is added to each probe: rename this one"},
		{"func a(x string)", "a: write //go:noescape above it, or what x points to is allocated on the heap"},
		{"//go:noescape\nfunc a(x string, x_length int)", "a: two arguments are called x_length"},
		{"//sdt:probe a-b\nfunc a()", `a: "a-b" is no name of a probe: letters, digits and _`},
		{"//sdt:probe b\nfunc a()\nfunc b()", "b: another function is the probe shop:b"},
		{"func a(a, b, c, d, e, f, g, h, i, j, k, l int)", "a: 12 arguments and the goroutine are more than the 12 .*"},
		{"//sdt:provider shop.one", `"shop.one" is no name of a provider: letters, digits and _`},
		{"import \"C\"\nfunc a()", "a package that uses cgo cannot have assembly: .*"},
	} {
		dir := t.TempDir()
		write(t, dir, "p.go", "package shop\n\n"+test.declaration+"\n")
		err := generate(filepath.Join(dir, "p.go"))
		want := regexp.MustCompile(`^\S+p\.go:[345]:\d+: ` + test.want + `$`)
		if err == nil || !want.MatchString(err.Error()) {
			t.Errorf("%s: %v", test.declaration, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 1 {
			t.Errorf("%s: %v are written", test.declaration, entries)
		}
	}

	dir := t.TempDir()
	write(t, dir, "p.go", "package shop\n")
	if err := generate(filepath.Join(dir, "p.go")); err == nil || !strings.HasSuffix(err.Error(),
		"no function without a body declares a probe") {
		t.Error(err)
	}
	write(t, dir, "p.go", "package main\n\nfunc a()\nfunc b() int\n")
	if err := generate(filepath.Join(dir, "p.go")); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not both errors: %v", err)
	}
	write(t, dir, "p.go", "package shop\n\nfunc a()\n")
	write(t, dir, "q.go", "package shop\n\nfunc b()\n")
	if err := generate(filepath.Join(dir, "p.go")); err != nil {
		t.Error(err)
	}
	if err := generate(filepath.Join(dir, "q.go")); err == nil || !strings.Contains(err.Error(),
		"declare the probes of a provider in one file") {
		t.Error(err)
	}
}

func TestProbeName(t *testing.T) {
	for function, want := range map[string]string{
		"requestStart": "request__start", "RequestStart": "request__start", "tick": "tick",
		"HTTPRequestDone": "http__request__done", "getURL": "get__url", "a1B2": "a1__b2", "x_y": "x_y",
	} {
		if got := probeName(function); got != want {
			t.Errorf("%s is %s, not %s", function, got, want)
		}
	}
}

// A file is linked once, or refused.
func FuzzLink(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := linkImage(data); err == nil {
			if again, err := linkImage(out); err != nil || !bytes.Equal(again, out) {
				t.Errorf("linking again: %v", err)
			}
		}
	})
}
