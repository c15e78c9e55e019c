// SPDX-License-Identifier: BSD-2-Clause

package libbpf_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// headers are the versions of libbpf's header that objects are compiled with.
var headers = []string{"libbpf-installed", "libbpf-newest"}

func load(t *testing.T, header, name string) *ebpf.CollectionSpec {
	t.Helper()
	file, err := os.Open(testprog.Path(t, header+"/"+name+".bpf.o"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	spec, err := libbpf.LoadCollectionSpecFromReader(file)
	qt.Assert(t, qt.IsNil(err))
	return spec
}

func TestLoad(t *testing.T) {
	for _, header := range headers {
		t.Run(header, func(t *testing.T) {
			t.Run("takes weak maps", func(t *testing.T) {
				spec := load(t, header, "values")
				for _, name := range []string{"__bpf_usdt_specs", "__bpf_usdt_ip_to_spec_id",
					"events"} {
					qt.Check(t, qt.IsNotNil(spec.Maps[name]), qt.Commentf("%s", name))
				}
			})
			t.Run("makes hidden functions static", func(t *testing.T) {
				seen := 0
				for _, program := range load(t, header, "values").Programs {
					for i := range program.Instructions {
						f := btf.FuncMetadata(&program.Instructions[i])
						switch {
						case f == nil:
						case f.Name == "bpf_usdt_arg":
							qt.Check(t, qt.Equals(f.Linkage, btf.StaticFunc))
							seen++
						case f.Name == program.Name:
							qt.Check(t, qt.Equals(f.Linkage, btf.GlobalFunc))
						}
					}
				}
				qt.Check(t, qt.Equals(seen, 3))
			})
			t.Run("makes a variable of what says whether there is a cookie", func(t *testing.T) {
				spec := load(t, header, "sections")
				variable := spec.Variables["LINUX_HAS_BPF_COOKIE"]
				qt.Assert(t, qt.IsNotNil(variable))
				qt.Assert(t, qt.IsNil(variable.Set(true)))
				var value bool
				qt.Assert(t, qt.IsNil(variable.Get(&value)))
				qt.Check(t, qt.IsTrue(value))

				// The other one is still the kernel's.
				var configuration *btf.Datasec
				qt.Assert(t, qt.IsNil(spec.Types.TypeByName(".kconfig", &configuration)))
				qt.Assert(t, qt.HasLen(configuration.Vars, 1))
				qt.Check(t,
					qt.Equals(configuration.Vars[0].Type.TypeName(), "LINUX_KERNEL_VERSION"))
			})
			t.Run("leaves other programs as they are", func(t *testing.T) {
				spec := load(t, header, "sections")
				for name, section := range map[string]string{
					"other_kprobe":     "kprobe/do_nanosleep",
					"other_tracepoint": "tracepoint/syscalls/sys_enter_getpid",
					"other_uprobe":     "uprobe",
					"optional":         "?usdt/TARGET:gousdt_test:twelve",
				} {
					qt.Assert(t, qt.IsNotNil(spec.Programs[name]))
					qt.Check(t, qt.Equals(spec.Programs[name].SectionName, section))
				}
				qt.Check(t, qt.HasLen(spec.Programs, 7))
			})
		})
	}
}

// What a linked object keeps of a function that is overridden must not be taken
// for a part of the functions after it.
func TestLoadOfLinkedObjects(t *testing.T) {
	testneeds.Only(t, "bpftool links objects of its own byte order alone", "amd64",
		"arm64", "riscv64")
	for _, header := range headers {
		t.Run(header, func(t *testing.T) {
			spec := load(t, header, "linked")
			qt.Assert(t, qt.HasLen(spec.Programs, 2))
			functions := make(map[string]int)
			var relocated string
			symbol := ""
			for _, ins := range spec.Programs["second"].Instructions {
				if ins.Symbol() != "" {
					symbol = ins.Symbol()
					functions[symbol]++
					f := btf.FuncMetadata(&ins)
					qt.Assert(t, qt.IsNotNil(f), qt.Commentf("%s", symbol))
					qt.Check(t, qt.Equals(f.Name, symbol))
				}
				if btf.CORERelocationMetadata(&ins) != nil {
					qt.Check(t, qt.Equals(ins.OpCode.Class(), asm.ALU64Class))
					relocated = symbol
				}
			}
			qt.Check(t, qt.Equals(functions["process_id"], 1))
			qt.Check(t, qt.Equals(functions["first_argument"], 1))
			qt.Check(t, qt.Equals(relocated, "process_id"))
		})
	}
}

func TestLoadedObjectsRun(t *testing.T) {
	testprog.RequireBPF(t)
	names := []string{"values", "sections", "tail"}
	if runtime.GOARCH != "s390x" {
		names = append(names, "linked")
	}
	for _, header := range headers {
		for _, name := range names {
			t.Run(header+"/"+name, func(t *testing.T) {
				spec := load(t, header, name)
				collection, err := ebpf.NewCollection(spec)
				qt.Assert(t, qt.IsNil(err))
				collection.Close()
			})
		}
	}
}

// An object that is only a part of one says what it lacks.
func TestLoadOfParts(t *testing.T) {
	testneeds.NoGuest(t, "it has no compiler")
	clang := testneeds.Tool(t, "clang", "clang")
	const header = "struct event { int x; };\n#define SEC(name) __attribute__((section(name), used))\n"
	for _, test := range []struct{ name, source string }{
		{"a variable", `extern int my_pid; SEC("usdt") int f(void *ctx) { return my_pid; }`},
		{"a variable, beside the kernel's configuration", `extern int my_pid;
			extern int LINUX_KERNEL_VERSION SEC(".kconfig");
			SEC("usdt") int f(void *ctx) { return my_pid + LINUX_KERNEL_VERSION; }`},
		{"a function", `extern int my_pid(void); SEC("usdt") int f(void *ctx) { return my_pid(); }`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			source, object := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.o")
			qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(header+test.source), 0o644)))
			out, err := exec.Command(clang, "-O2", "-g", "-target", "bpf", "-c", source, "-o",
				object).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			file, err := os.Open(object)
			qt.Assert(t, qt.IsNil(err))
			defer file.Close()
			_, err = libbpf.LoadCollectionSpecFromReader(file)
			qt.Check(t, qt.ErrorMatches(err, "the object uses my_pid, which it does not define .*"))
		})
	}
}

func TestLoadOfDamagedObjects(t *testing.T) {
	data, err := os.ReadFile(testprog.Path(t, "libbpf-installed/first.bpf.o"))
	qt.Assert(t, qt.IsNil(err))
	_, err = libbpf.LoadCollectionSpecFromReader(bytes.NewReader(nil))
	qt.Check(t, qt.IsNotNil(err))
	for size := 1; size < len(data); size += 1 + size/16 {
		_, err := libbpf.LoadCollectionSpecFromReader(bytes.NewReader(data[:size]))
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%d bytes", size))
	}
	for at := range data[:64] {
		changed := bytes.Clone(data)
		for _, b := range []byte{0, 1, 0x7f, 0xff} {
			changed[at] = b
			_, _ = libbpf.LoadCollectionSpecFromReader(bytes.NewReader(changed))
		}
	}
}
