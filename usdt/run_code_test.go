// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
		"-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_" + name, "-I..", "-c",
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
