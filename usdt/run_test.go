// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/testbpf"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/internal/sitespec"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// The tests here run programs without a probe: as programs of another type,
// which the kernel runs with a given context. So the registers can hold
// anything, and be those of any machine of this byte order.

// The context has the words of struct pt_regs, then the BPF cookie, for which
// programs of that type cannot ask.
const (
	contextSize  = cookieOffset + 8
	cookieOffset = 512
)

// collectors are the programs, by the number in their events.
var collectors = []string{"collect", "collect3", "collect12"}

// A codeRunner has loaded programs.
type codeRunner struct {
	t       testing.TB
	machine elf.Machine // of the kernel
	layout  *sitespec.Layout

	programs *ebpf.Collection
	events   *ringbuf.Reader
}

// nativeOrder is binary.NativeEndian as something that can be compared.
func nativeOrder() binary.ByteOrder {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// newCodeRunner takes a collection with the programs of a kernel of that
// machine.
func newCodeRunner(t testing.TB, spec *ebpf.CollectionSpec, machine elf.Machine) *codeRunner {
	t.Helper()
	testneeds.Kernel(t, "5.14", "programs that are run with a context of the caller's")
	// only they can be run with registers of another machine
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		return !slices.Contains(collectors, name)
	})
	usdt.MakeHeaderFunctionsStatic(spec)
	specs := spec.Maps[usdt.SpecMapName]
	layout, err := sitespec.LayoutOf(specs.ValueSize, specs.Value)
	qt.Assert(t, qt.IsNil(err))
	c := &codeRunner{t: t, machine: machine, layout: layout}
	for _, name := range usdt.CookieVariables {
		if variable := spec.Variables[name]; variable != nil {
			qt.Assert(t, qt.IsNil(variable.Set(true)))
		}
	}
	for _, name := range collectors {
		asRunnable(spec.Programs[name])
	}
	c.programs, err = ebpf.NewCollection(spec)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(c.programs.Close)
	c.events, err = ringbuf.NewReader(c.programs.Maps["events"])
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { c.events.Close() })
	return c
}

// asRunnable turns a program into one that can be run.
func asRunnable(program *ebpf.ProgramSpec) {
	program.Type, program.AttachType, program.AttachTo = ebpf.Syscall, ebpf.AttachNone, ""
	program.Flags |= unix.BPF_F_SLEEPABLE
	program.Instructions = slices.Clone(program.Instructions)
	for i := range program.Instructions {
		ins := &program.Instructions[i]
		if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie {
			*ins = asm.LoadMem(asm.R0, asm.R1, cookieOffset, asm.DWord).WithMetadata(ins.Metadata)
		}
	}
}

// describe enters a spec for the programs. Arguments that the layout cannot
// describe become unavailable.
func (c *codeRunner) describe(program elf.Machine, id uint32, args []argspec.Arg) {
	c.t.Helper()
	machines := sitespec.Machines{Kernel: c.machine, Program: program}
	for n := range args {
		if err := c.layout.Check(machines, &args[n]); err != nil {
			args[n].Kind, args[n].Err = argspec.Unavailable, err
		}
	}
	value := make([]byte, c.layout.Size)
	c.layout.Encode(value, machines, nativeOrder(), uint64(id)<<32, args)
	qt.Assert(c.t, qt.IsNil(c.programs.Maps[usdt.SpecMapName].Put(id, value)))
}

// run runs all programs with a context, and returns what they report.
func (c *codeRunner) run(context []byte, id uint32) (events [3]testbpf.ArgsEvent) {
	c.t.Helper()
	context = bytes.Clone(context)
	binary.NativeEndian.PutUint64(context[cookieOffset:], uint64(id))
	for i, name := range collectors {
		_, err := c.programs.Programs[name].Run(&ebpf.RunOptions{Context: context})
		qt.Assert(c.t, qt.IsNil(err))
		record, err := c.events.Read()
		qt.Assert(c.t, qt.IsNil(err))
		qt.Assert(c.t,
			qt.IsNil(binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian,
				&events[i])))
		qt.Assert(c.t, qt.Equals(int(events[i].Program), i))
		events[i].Tid = 0 // of the thread that this goroutine happens to be on
	}
	return events
}

// objectFor returns the programs for a kernel of a machine, this one's or
// another one of its byte order.
func objectFor(t testing.TB, machine elf.Machine) *ebpf.CollectionSpec {
	t.Helper()
	kernel, err := sys.KernelMachine()
	qt.Assert(t, qt.IsNil(err))
	if machine == kernel {
		spec, err := testbpf.LoadArgs()
		qt.Assert(t, qt.IsNil(err))
		return spec
	}
	testneeds.NoGuest(t, "it has no compiler for the programs of other machines")
	clang := testneeds.Tool(t, "clang", "clang")
	name := map[elf.Machine]string{
		elf.EM_X86_64: "x86", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_RISCV: "riscv",
		elf.EM_PPC64: "powerpc", elf.EM_LOONGARCH: "loongarch", elf.EM_S390: "s390",
	}[machine]
	object := filepath.Join(t.TempDir(), name+".bpf.o")
	arguments := []string{
		"-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_" + name, "-I.", "-c",
		"../internal/testbpf/args.bpf.c", "-o", object,
	}
	directories, _ := filepath.Glob("/usr/include/*-linux-gnu")
	for _, directory := range directories {
		arguments = append(arguments, "-idirafter", directory)
	}
	out, err := exec.Command(clang, arguments...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	spec, err := libbpf.LoadCollectionSpec(object)
	qt.Assert(t, qt.IsNil(err))
	return spec
}

// arena is memory at an address of 32 bits, so that registers of any machine
// can point to it. Nothing is mapped after its end.
type arena struct {
	start uint64
	bytes []byte
}

const arenaSize = 16 << 12

func newArena(t testing.TB) arena {
	t.Helper()
	testprog.RequireBPF(t)
	page := uintptr(unix.Getpagesize())
	for at := uint64(0x2000_0000); at < 0x7000_0000; at += 0x100_0000 {
		place, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, at), arenaSize+page,
			unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
		if err != nil {
			continue
		}
		t.Cleanup(func() { unix.MunmapPtr(place, arenaSize) })
		qt.Assert(t, qt.IsNil(unix.MunmapPtr(unsafe.Add(place, arenaSize), page)))
		return arena{at, unsafe.Slice((*byte)(place), arenaSize)}
	}
	t.Fatal("no place in memory below 2 GB")
	return arena{}
}

func (a *arena) fill(random *rand.Rand) {
	for i := range a.bytes {
		a.bytes[i] = byte(random.Uint32())
	}
}

// touch has the processor use each page.
func (a *arena) touch() {
	for i := 0; i < len(a.bytes); i += unix.Getpagesize() {
		touched += a.bytes[i]
	}
}

var touched byte // or the compiler would leave it out

// readOwnMemory returns what is in the memory of this process, which is the one
// that programs read when they are run here.
func readOwnMemory(address uint64, size int) ([]byte, bool) {
	memory := make([]byte, size)
	local := []unix.Iovec{{Base: &memory[0]}}
	local[0].SetLen(size)
	if address != uint64(uintptr(address)) {
		return nil, false
	}
	n, err := unix.ProcessVMReadv(unix.Getpid(), local,
		[]unix.RemoteIovec{{Base: uintptr(address), Len: size}}, 0)
	runtime.KeepAlive(memory)
	return memory, err == nil && n == size
}

// machineState is the contents of a kernel's registers.
type machineState struct {
	machine elf.Machine
	words   [48]uint64
}

func (s *machineState) size() int {
	if s.machine == elf.EM_ARM {
		return 4
	}
	return 8
}

// context returns the registers as the kernel lays them out.
func (s *machineState) context() []byte {
	context := make([]byte, contextSize)
	for i, word := range s.words {
		if s.size() == 4 {
			binary.NativeEndian.PutUint32(context[4*i:], uint32(word))
		} else {
			binary.NativeEndian.PutUint64(context[8*i:], word)
		}
	}
	return context
}

func (s *machineState) String() string {
	text := ""
	for i, word := range s.words {
		text += fmt.Sprintf(" %d:%#x", i, word)
	}
	return text
}

// value returns the value that reading an argument gives by its meaning in the
// vectors, independently of this module's parser. least is the number of bytes
// that must be mapped to read any.
func (s *machineState) value(means string, least int) (value uint64, err unix.Errno) {
	words := strings.Fields(means)
	size, _ := strconv.Atoi(words[0])
	signed, place := words[1] == "signed", words[2:]
	if words[1] == "bytes" || place[0] == "unavailable" {
		return 0, unix.EOPNOTSUPP
	}
	number := func(text string) uint64 {
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return uint64(n)
		}
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			panic(means)
		}
		return n
	}
	register := func(text string) uint64 {
		_, slot, _ := strings.Cut(text, "@")
		if slot == "none" {
			return 0
		}
		word := s.words[number(slot)]
		if s.size() == 4 {
			word = uint64(uint32(word))
		}
		return word
	}
	if strings.Contains(means, "@none") {
		return 0, unix.EOPNOTSUPP // this kernel does not save it
	}
	after := func(name string) string {
		if i := slices.Index(place, name); i >= 0 {
			return place[i+1]
		}
		return ""
	}
	sum := func() uint64 {
		var address uint64
		if text := after("index"); text != "" {
			address = register(text)
			switch {
			case slices.Contains(place, "uxtw"):
				address = uint64(uint32(address))
			case slices.Contains(place, "sxtw"):
				address = uint64(int32(address))
			}
			if text := after("scale"); text != "" {
				address *= number(text)
			}
		}
		if text := after("base"); text != "" {
			address += register(text)
		}
		address += number(after("displacement"))
		if slices.Contains(place, "address32") {
			address = uint64(uint32(address))
		}
		return address
	}
	switch place[0] {
	case "constant":
		return number(place[1]), 0
	case "register":
		value = register(place[1])
		if text := after("shift"); text != "" {
			value >>= number(text)
		}
		if text := after("high"); text != "" {
			value = register(text)<<32 | uint64(uint32(value))
		}
	case "address":
		value = sum()
	case "memory":
		bytes, ok := readOwnMemory(sum(), size)
		if _, all := readOwnMemory(sum(), max(size, least)); !ok || !all {
			return 0, unix.EFAULT
		}
		wide := make([]byte, 8)
		if nativeOrder() == binary.BigEndian {
			copy(wide[8-size:], bytes)
		} else {
			copy(wide, bytes)
		}
		value = nativeOrder().Uint64(wide)
	default:
		panic(means)
	}
	unused := 64 - 8*size
	if signed {
		return uint64(int64(value<<unused) >> unused), 0
	}
	return value << unused >> unused, 0
}

// randomState returns random registers, some of which point to memory, as the
// arguments need.
func randomState(
	random *rand.Rand, machine elf.Machine, memory arena, args []argspec.Arg,
) *machineState {
	s := &machineState{machine: machine}
	place := func() uint64 {
		if random.IntN(8) == 0 {
			return memory.start + arenaSize - uint64(random.IntN(16)) // at its end
		}
		return memory.start + uint64(random.IntN(arenaSize))
	}
	for i := range s.words {
		switch random.IntN(4) {
		case 0:
			s.words[i] = random.Uint64()
		case 1:
			s.words[i] = uint64(random.IntN(100) - 30)
		default:
			s.words[i] = place()
		}
	}
	for _, n := range random.Perm(len(args)) {
		a := &args[n]
		if slot, ok := a.Base.Slot(machine); ok && a.Kind == argspec.Memory {
			target := place()
			if random.IntN(2) == 0 {
				target &^= 7
			}
			s.words[slot] = target - uint64(a.Displacement)
			if index, ok := a.Index.Slot(machine); ok && index != slot {
				word := randomIndex(random, a.IndexSize)
				s.words[index] = word
				switch a.IndexSize {
				case 4:
					word = uint64(uint32(word))
				case -4:
					word = uint64(int32(word))
				}
				s.words[slot] -= word * uint64(a.Scale)
			}
		}
	}
	return s
}

// randomIndex returns a small index. The bits that do not count are random.
func randomIndex(random *rand.Rand, size int8) uint64 {
	index := uint64(random.IntN(40) - 20)
	if size != 0 {
		index = random.Uint64()<<32 | uint64(uint32(index))
	}
	return index
}

// Programs read the value that an argument string means, which is evaluated
// here in another way.
func FuzzReadsOfText(f *testing.F) {
	testneeds.Only(f, "the argument strings are those of x86-64", "amd64")
	for _, seed := range []string{
		"8@%rdi", "-4@%eax", "1@%ah", "2@%r9w", "-1@%sil", "8@$-1", "4@$18446744073709551615",
		"-2@$0x8000",
		"8@(%rsp)", "-4@-20(%rbp)", "4@16(%rax,%rbx,4)", "1@(%rsi,%rdi)", "8@-8(,%rcx,8)",
		"8f@(%rbx)", "-8@1(%r15,%r14,2)",
	} {
		f.Add(seed, uint64(1))
	}
	const machine = elf.EM_X86_64
	memory := newArena(f)
	memory.fill(rand.New(rand.NewPCG(16, 16)))
	runner := newCodeRunner(f, objectFor(f, machine), machine)
	read := func(to []byte, address uint64) bool {
		from, ok := readOwnMemory(address, len(to))
		copy(to, from)
		return ok
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, seed))
		registers := make([]byte, contextSize)
		if _, _, _, known := testprog.ReadX86(text, registers, read); !known {
			return
		}
		args := argspec.Parse(machine, text)
		qt.Assert(t, qt.HasLen(args, 1), qt.Commentf("%q", text))
		c := *runner
		c.t = t
		c.describe(machine, 1, args)
		for range 8 {
			state := randomState(random, machine, memory, args)
			size, want, readable, _ := testprog.ReadX86(text, state.context(), read)
			if unused := 64 - 8*size; strings.HasPrefix(text, "-") {
				want = uint64(int64(want<<unused) >> unused)
			}
			code := int32(0)
			if !readable {
				want, code = 0, -int32(unix.EFAULT)
			}
			for n, event := range c.run(state.context(), 1) {
				comment := qt.Commentf("%s: %q is %v: %s", collectors[n], text, args[0], state)
				qt.Check(t, qt.Equals(uint64(event.Val[0]), want), comment)
				if n == 0 { // the one that reports how it went
					qt.Check(t, qt.Equals(event.Err[0], code), comment)
				}
			}
		}
	})
}

// A vectorArg is one argument of internal/testdata/vectors.
type vectorArg struct {
	place   string
	program elf.Machine
	arg     argspec.Arg
	means   string // what the vectors say it means
}

// vectorArgs returns the arguments of all vectors for kernels of this byte
// order, by the kernel's machine.
func vectorArgs(t testing.TB) map[elf.Machine][]vectorArg {
	t.Helper()
	vectors, err := testprog.LoadVectors("../internal/testdata/vectors")
	qt.Assert(t, qt.IsNil(err))
	all := make(map[elf.Machine][]vectorArg)
	for _, v := range vectors {
		isBig := v.File.Header().ByteOrder == binary.BigEndian || v.Kernel == elf.EM_S390
		if isBig != (nativeOrder() == binary.BigEndian) || v.Expected == "none" ||
			v.Kernel == elf.EM_NONE {
			continue
		}
		args := argspec.Decode(nil, v.File, v.Location, v.Text)
		if v.NoSymbols {
			args = argspec.Parse(v.File.Header().Machine, v.Text)
		}
		means := strings.Split(v.Expected, " ; ")
		qt.Assert(t, qt.HasLen(args, len(means)), qt.Commentf("%s", v.Place))
		for i, arg := range args {
			all[v.Kernel] = append(all[v.Kernel],
				vectorArg{v.Place, v.File.Header().Machine, arg, means[i]})
		}
	}
	return all
}

// wantOf returns the events that programs should report for these arguments,
// given those that they reported.
func (c *codeRunner) wantOf(
	s *machineState, id uint32, means []string, got [3]testbpf.ArgsEvent,
) (want [3]testbpf.ArgsEvent) {
	least := 1
	if c.layout.IsLibbpf {
		least = 8 // libbpf's header reads as many in any case
	}
	for program := range want {
		w := &want[program]
		*w = got[program] // the process, the instruction pointer and sizes
		w.Cookie, w.ArgCnt = uint64(id)<<32, int32(min(len(means), sitespec.MaxArgs))
		for n := range w.Val {
			w.Val[n], w.Err[n] = 0, 0
			if program == 0 {
				w.Err[n] = -int32(unix.ENOENT)
			}
			if n >= len(means) || n >= []int{12, 3, 12}[program] {
				continue
			}
			value, err := s.value(means[n], least)
			w.Val[n] = int64(value)
			if err == unix.EOPNOTSUPP && c.layout.IsLibbpf {
				err = unix.EINVAL
			}
			if program == 0 {
				w.Err[n] = -int32(err)
			}
		}
	}
	return want
}

// Programs read the value that internal/testdata/vectors gives for an argument,
// with any registers.
func TestProgramsReadWhatTheVectorsSay(t *testing.T) {
	testprog.RequireBPF(t)
	kernel, err := sys.KernelMachine()
	qt.Assert(t, qt.IsNil(err))
	all := vectorArgs(t)
	for machine, args := range all {
		if machine == elf.EM_MIPS {
			continue // the header has no registers of it
		}
		t.Run(machine.String(), func(t *testing.T) {
			newCodeRunner(t, objectFor(t, machine), machine).compareVectors(args)
		})
	}
	for _, header := range []string{"libbpf-installed", "libbpf-newest"} {
		t.Run(header, func(t *testing.T) {
			spec, err := libbpf.LoadCollectionSpec(testprog.Path(t, header+"/values.bpf.o"))
			qt.Assert(t, qt.IsNil(err))
			if spec.Maps[usdt.SpecMapName].ValueSize != sitespec.Size {
				testneeds.Kernel(t, "6.12",
					"a verifier that follows libbpf's newest reader through twelve arguments")
			}
			newCodeRunner(t, spec, kernel).compareVectors(all[kernel])
		})
	}
}

// compareVectors compares what programs read of these arguments.
func (c *codeRunner) compareVectors(args []vectorArg) {
	c.t.Helper()
	memory := newArena(c.t)
	random := rand.New(rand.NewPCG(14, uint64(c.machine)))
	memory.fill(random)
	// A spec is of one file.
	byProgram := make(map[elf.Machine][]vectorArg)
	for _, arg := range args {
		byProgram[arg.program] = append(byProgram[arg.program], arg)
	}
	read := 0
	for _, program := range slices.Sorted(maps.Keys(byProgram)) {
		for chunk := range slices.Chunk(byProgram[program], sitespec.MaxArgs) {
			read += c.compareSite(memory, random, chunk)
		}
	}
	c.t.Logf("%d arguments, of which %d times memory was read", len(args), read)
	qt.Check(c.t, qt.IsTrue(read > len(args)/4), qt.Commentf("%d of %d arguments", read, len(args)))
}

// compareSite compares what programs read of a site, and returns how often that
// was mapped memory.
func (c *codeRunner) compareSite(memory arena, random *rand.Rand, site []vectorArg) (read int) {
	c.t.Helper()
	const id = 1
	var args []argspec.Arg
	for _, arg := range site {
		args = append(args, arg.arg)
	}
	c.describe(site[0].program, id, args)
	var means []string
	for n := range site {
		if args[n].Kind == argspec.Unavailable {
			site[n].means = "0 unsigned unavailable"
		}
		means = append(means, site[n].means)
	}
	for range 8 {
		state := randomState(random, c.machine, memory, args)
		for _, text := range means {
			if _, err := state.value(text, 1); err == 0 && strings.Contains(text, " memory ") {
				read++
			}
		}
		context := state.context()
		got := c.run(context, id)
		want := c.wantOf(state, id, means, got)
		// A program cannot read a page that the kernel has marked as long
		// unused, if the processor does not remove the mark (arm64 without
		// FEAT_HAFDBS).
		for try := 0; try < 3 && got != want; try++ {
			memory.touch()
			got = c.run(context, id)
			want = c.wantOf(state, id, means, got)
		}
		for program := range got {
			for n, arg := range site {
				w, g := &want[program], &got[program]
				if g.Val[n] != w.Val[n] || g.Err[n] != w.Err[n] {
					c.t.Errorf("%s: %q, %s: argument %d is %#x, error %d, not %#x, error %d: %s",
						arg.place, arg.means, collectors[program], n, g.Val[n], g.Err[n], w.Val[n],
						w.Err[n], state)
				}
			}
			qt.Check(c.t, qt.Equals(got[program], want[program]), qt.Commentf("%s", site[0].place))
		}
		if c.t.Failed() {
			c.t.FailNow()
		}
	}
	return read
}
