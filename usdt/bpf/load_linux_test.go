// SPDX-License-Identifier: BSD-2-Clause

package bpf_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/bpf"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// thisMachine returns the machine of this kernel as clang is told it.
func thisMachine(t *testing.T) string {
	t.Helper()
	testneeds.Only(t, "the header has no other machines", "amd64", "arm64", "s390x", "riscv64")
	return map[string]string{"amd64": "x86", "arm64": "arm64", "s390x": "s390",
		"riscv64": "riscv"}[runtime.GOARCH]
}

// load loads an object as a kernel with or without cookies makes it necessary.
func load(t *testing.T, object string, cookie bool,
	change func(*ebpf.CollectionSpec)) *ebpf.Collection {
	t.Helper()
	spec, err := libbpf.LoadCollectionSpec(object)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(spec.Variables["__bpf_usdt_has_cookie"].Set(cookie)))
	if change != nil {
		change(spec)
	}
	collection, err := ebpf.NewCollection(spec)
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%s: %+v", object, verifier)
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(collection.Close)
	return collection
}

// instructionSets returns those that the compiler has of the ones that it can
// be told to use.
func instructionSets(compiler string) []string {
	sets := []string{"v1", "v2", "v3"}
	// Prints the list, and fails where there is nothing to compile.
	help, _ := exec.Command(compiler, "-target", "bpf", "-mcpu=help", "-c", "-x", "c", os.DevNull,
		"-o", os.DevNull).CombinedOutput()
	if strings.Contains(string(help), "v4") {
		sets = append(sets, "v4")
	}
	return sets
}

func TestVerifierAcceptsWhatEveryCompilerMakes(t *testing.T) {
	testprog.RequireBPF(t)
	machine := thisMachine(t)
	for _, compiler := range compilers(t) {
		for _, set := range instructionSets(compiler) {
			t.Run(compiler+"/"+set, func(t *testing.T) {
				for _, source := range []string{"testdata/samples.bpf.c", "testdata/reader.bpf.c"} {
					object := mustCompile(t, compiler, machine, source, "-mcpu="+set)
					load(t, object, true, nil)
					load(t, object, false, nil)
				}
			})
		}
	}
}

// listing matches the lines of a verifier log that list the program with the
// registers alive, walked through or not (since 6.16).
var listing = regexp.MustCompile(`(?m)^ *[0-9]+: [0-9.]{10} \(.*$`)

// A kernel before 5.15 does not have the helper: it must not even see the call.
func TestCookieHelperIsNotCalledWithoutCookies(t *testing.T) {
	testprog.RequireBPF(t)
	object := mustCompile(t, compilers(t)[0], thisMachine(t), "testdata/reader.bpf.c")
	for _, cookie := range []bool{true, false} {
		spec, err := libbpf.LoadCollectionSpec(object)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(spec.Variables["__bpf_usdt_has_cookie"].Set(cookie)))
		collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
			Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelInstruction,
				LogSizeStart: 1 << 22},
		})
		qt.Assert(t, qt.IsNil(err))
		defer collection.Close()
		for _, name := range []string{"read_single", "read_all"} {
			log := listing.ReplaceAllString(collection.Programs[name].VerifierLog, "")
			qt.Assert(t, qt.StringContains(log, "call bpf_map_lookup_elem"))
			qt.Check(t, qt.Equals(strings.Contains(log, "call bpf_get_attach_cookie"), cookie),
				qt.Commentf("%s", name))
		}
	}
}

// BPF_USDT pays for what it reads: nothing without parameters, and one
// look-up, without a helper for each register, with them.
func TestBPF_USDTLooksTheSpecUpOnce(t *testing.T) {
	object := mustCompile(t, compilers(t)[0], machines[0], "testdata/reader.bpf.c")
	spec, err := libbpf.LoadCollectionSpec(object)
	qt.Assert(t, qt.IsNil(err))
	helpers := func(name string) map[asm.BuiltinFunc]int {
		calls := make(map[asm.BuiltinFunc]int)
		for _, instruction := range spec.Programs[name].Instructions {
			if instruction.IsBuiltinCall() {
				calls[asm.BuiltinFunc(instruction.Constant)]++
			}
		}
		return calls
	}
	qt.Check(t, qt.HasLen(helpers("read_nothing"), 0))
	qt.Check(t, qt.DeepEquals(helpers("read_all"), map[asm.BuiltinFunc]int{
		asm.FnGetAttachCookie: 1,
		asm.FnMapLookupElem:   2, // by cookie, and by address where there is none
		asm.FnProbeReadUser:   2, // the window, and one argument
	}))
}

// What cilium/ebpf and bpf2go need of the declarations.
func TestSupportMapsAreStrongAndUntyped(t *testing.T) {
	object := mustCompile(t, compilers(t)[0], machines[0], "testdata/samples.bpf.c")
	spec, err := ebpf.LoadCollectionSpec(object)
	qt.Assert(t, qt.IsNil(err))

	specs := spec.Maps["__bpf_usdt_specs"]
	qt.Check(t, qt.Equals(specs.Type, ebpf.Array))
	qt.Check(t, qt.Equals(specs.KeySize, 4))
	qt.Check(t, qt.Equals(specs.ValueSize, 208))
	qt.Check(t, qt.Equals(specs.MaxEntries, 1024)) // the program's own number
	qt.Check(t, qt.IsNil(specs.Value))

	addresses := spec.Maps["__bpf_usdt_ip_to_spec_id"]
	qt.Check(t, qt.Equals(addresses.Type, ebpf.Hash))
	qt.Check(t, qt.Equals(addresses.KeySize, 8))
	qt.Check(t, qt.Equals(addresses.ValueSize, 4))
	qt.Check(t, qt.Equals(addresses.MaxEntries, 2048))
}

// A compiler may change what a static function is given, and an object has a
// global one once.
func TestFunctionsAreHiddenAndWeak(t *testing.T) {
	file, err := elf.Open(mustCompile(t, compilers(t)[0], machines[0], "testdata/samples.bpf.c"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	symbols, err := file.Symbols()
	qt.Assert(t, qt.IsNil(err))
	for _, symbol := range symbols {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || !strings.Contains(symbol.Name, "bpf_usdt_") {
			continue
		}
		qt.Check(t, qt.Equals(elf.ST_BIND(symbol.Info), elf.STB_WEAK),
			qt.Commentf("%s", symbol.Name))
		qt.Check(t, qt.Equals(elf.ST_VISIBILITY(symbol.Other), elf.STV_HIDDEN),
			qt.Commentf("%s", symbol.Name))
	}
}

// libbpf defines the helpers in a way that is no C++.
func TestHeaderIsCPlusPlus(t *testing.T) {
	testprog.RequireBPF(t)
	helpers, err := os.ReadFile("/usr/include/bpf/bpf_helper_defs.h")
	if err != nil {
		testneeds.Missing(t, "needs libbpf's headers (Debian: libbpf-dev): %v", err)
	}
	include := t.TempDir()
	qt.Assert(t, qt.IsNil(os.CopyFS(filepath.Join(include, "bpf"), bpf.Headers())))
	for _, name := range []string{"bpf_helpers.h", "bpf_tracing.h"} {
		text, err := os.ReadFile("/usr/include/bpf/" + name)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(include, "bpf", name), text, 0o666)))
	}
	helpers = regexp.MustCompile(`= \(void ?\*\) ?(\d+);`).ReplaceAll(helpers,
		[]byte("= CXX_HELPER($1);"))
	qt.Assert(t,
		qt.IsNil(os.WriteFile(filepath.Join(include, "bpf", "bpf_helper_defs.h"), helpers, 0o666)))
	for _, compiler := range compilers(t) {
		t.Run(compiler, func(t *testing.T) {
			object, output, err := compile(t, compiler, thisMachine(t), "testdata/plusplus.bpf.cc",
				"-I", include, "-std=c++17")
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
			qt.Check(t, qt.IsNotNil(load(t, object, true, nil).Programs["plusplus"]))
			load(t, object, false, nil)
		})
	}
}

// Two files that include the header, linked into one object.
func TestSeveralFilesMakeOneObject(t *testing.T) {
	testprog.RequireBPF(t)
	linker, err := exec.LookPath("bpftool")
	if err != nil {
		if linker = "/usr/sbin/bpftool"; !exists(linker) {
			testneeds.Missing(t, "needs bpftool (Debian: bpftool)")
		}
	}
	for _, compiler := range compilers(t) {
		t.Run(compiler, func(t *testing.T) {
			linked := filepath.Join(t.TempDir(), "linked.bpf.o")
			arguments := []string{"gen", "object", linked}
			for _, source := range []string{"testdata/reader.bpf.c", "testdata/several.bpf.c"} {
				object := mustCompile(t, compiler, thisMachine(t), source,
					"-DBPF_USDT_SEVERAL_FILES")
				arguments = append(arguments, object)
			}
			output, err := exec.Command(linker, arguments...).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", output))
			for _, cookie := range []bool{true, false} {
				collection := load(t, linked, cookie, nil)
				qt.Check(t, qt.IsNotNil(collection.Programs["read_all"]))
				qt.Check(t, qt.IsNotNil(collection.Programs["read_sum"]))
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// What is left of the stack to a program's own variables is at least what
// libbpf's header leaves.
func TestStackOfProgramsIsTheirs(t *testing.T) {
	machine := thisMachine(t)
	for _, compiler := range compilers(t) {
		for _, parameters := range []int{1, 3, 6, 12} {
			for _, use := range []string{"-DEARLY", "-DLATE"} {
				t.Run(fmt.Sprintf("%s/%d%s", compiler, parameters, use), func(t *testing.T) {
					flags := []string{fmt.Sprintf("-DPARAMETERS=%d", parameters), use}
					ours := mustCompile(t, compiler, machine, "testdata/stack.bpf.c", flags...)
					theirs, output, err := compile(t, compiler, machine, "testdata/stack.bpf.c",
						append(flags, "-Wno-sign-compare", "-Wno-unused-parameter")...)
					if err != nil {
						testneeds.Missing(t,
							"needs libbpf's header (Debian: libbpf-dev): %s", output)
					}
					qt.Check(t, qt.IsTrue(stackOf(t, ours) <= stackOf(t, theirs)),
						qt.Commentf("%d bytes, libbpf's %d", stackOf(t, ours), stackOf(t, theirs)))
				})
			}
		}
	}
}

// stackOf returns how many bytes of stack the program of an object takes, with
// the functions that it calls, as older kernels count them.
func stackOf(t *testing.T, object string) int {
	t.Helper()
	spec, err := libbpf.LoadCollectionSpec(object)
	qt.Assert(t, qt.IsNil(err))
	var function string
	own, called := make(map[string]int), make(map[string][]string)
	for _, ins := range spec.Programs["program"].Instructions {
		if ins.Symbol() != "" {
			function = ins.Symbol()
		}
		if ins.IsFunctionCall() {
			called[function] = append(called[function], ins.Reference())
		}
		class := ins.OpCode.Class()
		switch {
		case class.IsLoad() && ins.Src == asm.R10, class.IsStore() && ins.Dst == asm.R10:
			own[function] = max(own[function], -int(ins.Offset))
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Add && ins.Constant < 0:
			own[function] = max(own[function], -int(ins.Constant)) // of the frame pointer
		}
	}
	var total func(function string) int
	total = func(function string) int {
		deepest := 0
		for _, other := range called[function] {
			deepest = max(deepest, total(other))
		}
		return (max(own[function], 1)+31)/32*32 + deepest
	}
	return total("program")
}
