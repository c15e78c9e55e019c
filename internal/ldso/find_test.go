// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

func TestFind(t *testing.T) {
	cacheOf := func(pairs ...string) []byte {
		var f cacheFile
		for i := 0; i < len(pairs); i += 2 {
			f.entries = append(f.entries, cacheEntry{name: pairs[i], path: pairs[i+1]})
		}
		return f.bytes()
	}
	const multiarch = "/usr/lib/x86_64-linux-gnu/"
	for _, test := range []struct {
		behaviour string
		make      func(tree)
		env       map[string]string
		name      string
		want      string
	}{
		{"the exact name is found through the cache",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", cacheOf("libx.so.2", "/opt/b/libx.so.2", "libx.so.1",
					"/opt/a/libx.so.1"), 0o644)
				tr.elf("/opt/a/libx.so.1", "/opt/b/libx.so.2")
			}, nil, "libx.so.1", "/opt/a/libx.so.1"},
		{"the exact name is found in a default directory without a cache",
			func(tr tree) { tr.elf(multiarch + "libx.so.1") },
			nil, "libx.so.1", multiarch + "libx.so.1"},
		{"lib64 of other distributions is searched",
			func(tr tree) { tr.elf("/usr/lib64/libx.so.1") },
			nil, "libx.so.1", "/usr/lib64/libx.so.1"},
		{"LD_LIBRARY_PATH comes before the cache",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", cacheOf("libx.so.1", "/opt/a/libx.so.1"), 0o644)
				tr.elf("/opt/a/libx.so.1", "/mine/libx.so.1")
			}, map[string]string{"LD_LIBRARY_PATH": "/none:$ORIGIN/lib:/mine"}, "libx.so.1",
			"/mine/libx.so.1"},
		{"LD_LIBRARY_PATH is also divided by semicolons",
			func(tr tree) { tr.elf("/mine/libx.so.1") },
			map[string]string{"LD_LIBRARY_PATH": "/none;/mine"}, "libx.so.1", "/mine/libx.so.1"},
		{"a relative LD_LIBRARY_PATH means nothing in another root",
			func(tr tree) { tr.elf("/mine/libx.so.1", "/usr/lib/libx.so.1") },
			map[string]string{"LD_LIBRARY_PATH": "mine:"}, "libx.so.1", "/usr/lib/libx.so.1"},
		{"a stale cache entry is passed over",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", cacheOf("libx.so.1", "/gone/libx.so.1"), 0o644)
				tr.elf("/usr/lib/libx.so.1")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"another machine's library is passed over",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", cacheOf("libx.so.1", "/a/libx.so.1", "libx.so.1",
					"/b/libx.so.1"), 0o644)
				tr.write("/a/libx.so.1",
					elfHeader(elf.EM_386, elf.ELFCLASS32, elf.ELFDATA2LSB), 0o644)
				tr.elf("/b/libx.so.1")
			}, nil, "libx.so.1", "/b/libx.so.1"},
		{"a library of the same machine but another class is passed over",
			func(tr tree) {
				tr.write("/lib64/libx.so.1", elfHeader(elf.EM_X86_64, elf.ELFCLASS32,
					elf.ELFDATA2LSB), 0o644)
				tr.elf("/usr/lib/libx.so.1")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"a library of the same class but another machine is passed over",
			func(tr tree) {
				tr.write("/lib64/libx.so.1", elfHeader(elf.EM_AARCH64, elf.ELFCLASS64,
					elf.ELFDATA2LSB), 0o644)
				tr.elf("/usr/lib/libx.so.1")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"a linker script is passed over for the library it stands for",
			func(tr tree) {
				tr.write(multiarch+"libc.so",
					[]byte("/* GNU ld script */\nGROUP ( /lib/libc.so.6 )\n"), 0o644)
				tr.elf(multiarch + "libc.so.6")
			}, nil, "libc.so", multiarch + "libc.so.6"},
		{"a name without version finds the newest version in the cache",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", cacheOf("libx.so.9", "/l/libx.so.9", "libx.so.10",
					"/l/libx.so.10",
					"libx.so.2.5", "/l/libx.so.2.5", "libx.so.old", "/l/libx.so.old", "libxy.so.11",
					"/l/libxy.so.11"), 0o644)
				tr.elf("/l/libx.so.9", "/l/libx.so.10", "/l/libx.so.2.5", "/l/libx.so.old",
					"/l/libxy.so.11")
			}, nil, "libx.so", "/l/libx.so.10"},
		{"a name without version finds the newest version in a directory",
			func(tr tree) {
				tr.elf("/lib64/libx.so.1.9", "/lib64/libx.so.1.10.0",
					"/lib64/libx.so.1.10-dbg")
			},
			nil, "libx.so", "/lib64/libx.so.1.10.0"},
		{"a name without version prefers the exact file",
			func(tr tree) { tr.elf("/lib64/libx.so", "/lib64/libx.so.3") },
			nil, "libx.so", "/lib64/libx.so"},
		{"a word finds the library of that name",
			func(tr tree) { tr.elf(multiarch + "libstdc++.so.6") },
			nil, "stdc++", multiarch + "libstdc++.so.6"},
		{"a word with lib in front finds the library",
			func(tr tree) { tr.elf(multiarch + "libc.so.6") },
			nil, "libc", multiarch + "libc.so.6"},
		{"a word finds the program before the library",
			func(tr tree) { tr.elf("/usr/bin/python3", multiarch+"libpython3.so") },
			nil, "python3", "/usr/bin/python3"},
		{"PATH is followed in order",
			func(tr tree) { tr.elf("/usr/bin/tool", "/mine/tool") },
			map[string]string{"PATH": "/none:/mine:/usr/bin"}, "tool", "/mine/tool"},
		{"a file that cannot be executed is no program",
			func(tr tree) {
				tr.write("/usr/local/bin/tool", elfHeader(elf.EM_X86_64, elf.ELFCLASS64,
					elf.ELFDATA2LSB), 0o644)
				tr.elf("/usr/bin/tool")
			}, nil, "tool", "/usr/bin/tool"},
		{"another machine's program is found: it may run emulated",
			func(tr tree) {
				tr.write("/usr/bin/tool", elfHeader(elf.EM_S390, elf.ELFCLASS64, elf.ELFDATA2MSB),
					0o755)
			}, nil, "tool", "/usr/bin/tool"},
		{"a name with .so is no program",
			func(tr tree) { tr.elf("/usr/bin/libx.so.1", "/usr/lib/libx.so.1") },
			nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"an absolute link leads to inside the root",
			func(tr tree) {
				tr.elf("/opt/real/libx.so.1.2")
				tr.link("/usr/lib64/libx.so.1", "/opt/current/libx.so.1.2")
				tr.link("/opt/current", "/opt/real")
			}, nil, "libx.so.1", "/opt/real/libx.so.1.2"},
		{"a relative link cannot lead out of the root",
			func(tr tree) {
				tr.elf("/etc/libx.so.1")
				tr.link("/usr/lib64/libx.so.1", "../../../../../../../../../../etc/libx.so.1")
			}, nil, "libx.so.1", "/etc/libx.so.1"},
		{"a merged /usr is followed",
			func(tr tree) {
				tr.elf("/usr/lib/libx.so.1")
				tr.link("/lib", "usr/lib")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"a loop of links is passed over",
			func(tr tree) {
				tr.link("/lib64/libx.so.1", "libx.so.1")
				tr.elf("/usr/lib/libx.so.1")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
		{"musl's path file is read where glibc's places have nothing",
			func(tr tree) {
				tr.write("/etc/ld-musl-x86_64.path", []byte("/none\n/musl/a:/musl/b\n"), 0o644)
				tr.elf("/musl/b/libx.so.1")
			}, nil, "libx.so.1", "/musl/b/libx.so.1"},
		{"musl's built-in path is used where musl is installed",
			func(tr tree) { tr.elf("/lib/ld-musl-x86_64.so.1", "/usr/local/lib/libx.so.1") },
			nil, "libx.so.1", "/usr/local/lib/libx.so.1"},
		{"glibc comes before musl where both are installed",
			func(tr tree) {
				tr.write("/etc/ld-musl-x86_64.path", []byte("/lib/x86_64-linux-musl"), 0o644)
				tr.elf("/lib/x86_64-linux-musl/libc.so", "/lib64/libc.so.6")
			}, nil, "libc.so", "/lib64/libc.so.6"},
		{"a damaged cache does not hide the directories",
			func(tr tree) {
				tr.write("/etc/ld.so.cache", []byte("glibc-ld.so.cache1.1\xff\xff\xff\xff"), 0o644)
				tr.elf("/usr/lib/libx.so.1")
			}, nil, "libx.so.1", "/usr/lib/libx.so.1"},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			tr := newTree(t)
			test.make(tr)
			got, err := tr.find(test.name, test.env)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(got, test.want))
		})
	}
}

// newProcess makes a directory as a process has it in the proc file system,
// which runs a program for a machine. It returns the directory and its root.
func newProcess(t *testing.T, machine elf.Machine, class elf.Class, data elf.Data) (process,
	root tree) {
	process, root = newTree(t), newTree(t)
	process.write("/exe", elfHeader(machine, class, data), 0o755)
	process.link("/root", root.root)
	return process, root
}

func TestFindInProcess(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		class   elf.Class
		data    elf.Data
		want    string
	}{
		{elf.EM_S390, elf.ELFCLASS64, elf.ELFDATA2MSB, "/lib/s390x-linux-gnu/libx.so.1"},
		{elf.EM_386, elf.ELFCLASS32, elf.ELFDATA2LSB, "/lib/i386-linux-gnu/libx.so.1"},
		{elf.EM_MIPS, elf.ELFCLASS32, elf.ELFDATA2MSB, "/usr/lib/libx.so.1"},
	} {
		t.Run("for the machine of its program "+test.machine.String(), func(t *testing.T) {
			process, root := newProcess(t, test.machine, test.class, test.data)
			root.elf("/lib/x86_64-linux-gnu/libx.so.1")
			root.write(test.want, elfHeader(test.machine, test.class, test.data), 0o644)
			got, err := FindInProcess(process.root, "libx.so")
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(got, test.want))
		})
	}
	t.Run("by the variables of its environment", func(t *testing.T) {
		process, root := newProcess(t, elf.EM_X86_64, elf.ELFCLASS64, elf.ELFDATA2LSB)
		process.write("/environ",
			[]byte("A=B\x00PATH=/mine\x00LD_LIBRARY_PATH=/mine/lib\x00"), 0o600)
		root.elf("/mine/lib/libx.so.1", "/usr/lib/libx.so.1", "/mine/tool", "/usr/bin/tool")
		t.Setenv("LD_LIBRARY_PATH", "/usr/lib") // is another one's
		for name, want := range map[string]string{"x": "/mine/lib/libx.so.1",
			"tool": "/mine/tool"} {
			got, err := FindInProcess(process.root, name)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(got, want))
		}
	})
	t.Run("not found", func(t *testing.T) {
		process, _ := newProcess(t, elf.EM_X86_64, elf.ELFCLASS64, elf.ELFDATA2LSB)
		_, err := FindInProcess(process.root, "libx.so")
		qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
		qt.Check(t, qt.ErrorMatches(err, "libx.so: no such library for x86-64 under .*/root .*"))
	})
}

func TestIsNamed(t *testing.T) {
	for _, name := range []string{"libc.so.6", "libc.so", "libc", "c"} {
		qt.Check(t, qt.IsTrue(IsNamed("/lib/libc.so.6", name)), qt.Commentf(name))
	}
	for _, name := range []string{"lib", "libc.so.7", "so", "", "b", "/lib/libc.so.6"} {
		qt.Check(t, qt.IsFalse(IsNamed("/lib/libc.so.6", name)), qt.Commentf(name))
	}
	qt.Check(t, qt.IsTrue(IsNamed("/usr/bin/python3.11", "python3")))
	qt.Check(t, qt.IsFalse(IsNamed("/usr/bin/python3.11", "python3.1")))
}

func TestNotFoundNamesWhatWasSearched(t *testing.T) {
	tr := newTree(t)
	tr.write("/usr/lib/libx.so.1", []byte("INPUT(libx.so.2)"), 0o644)
	tr.write("/lib64/libx.so.1", elfHeader(elf.EM_386, elf.ELFCLASS32, elf.ELFDATA2LSB), 0o644)
	_, err := tr.find("libx.so.1", map[string]string{"LD_LIBRARY_PATH": "/$LIB:/mine:/${LIB}"})
	qt.Assert(t, qt.ErrorIs(err, fs.ErrNotExist))
	qt.Assert(t, qt.ErrorMatches(err, `libx\.so\.1: no such library for x86-64 under .*; `+
		`.*/lib64/libx\.so\.1: built for another machine \(EM_386, ELFCLASS32\); `+
		`.*/usr/lib/libx\.so\.1: not an ELF file `+
		`\(searched /mine, /etc/ld\.so\.cache, /lib/x86_64-linux-gnu, /usr/lib/x86_64-linux-gnu, .*`))
}

func TestNotFoundTellsOfADamagedCache(t *testing.T) {
	tr := newTree(t)
	tr.write("/etc/ld.so.cache", []byte("garbage"), 0o644)
	_, err := tr.find("libx.so.1", nil)
	qt.Assert(t,
		qt.ErrorMatches(err,
			`.*/etc/ld\.so\.cache: not a cache of library names, or a malformed one.*`))
}

func TestAScriptOnPathIsAnErrorAndNotReplacedByAnother(t *testing.T) {
	tr := newTree(t)
	tr.write("/usr/local/bin/python3", []byte("#!/bin/sh\n"), 0o755)
	tr.elf("/usr/bin/python3")
	_, err := tr.find("python3", nil)
	qt.Assert(t, qt.ErrorMatches(err, `python3: .*/usr/local/bin/python3 is a script or wrapper.*`))
}

func TestEmptyEntriesOfMuslsPathFileAreNotTheCurrentDirectory(t *testing.T) {
	tr := newTree(t)
	tr.write("/etc/ld-musl-x86_64.path", []byte("\n:/musl::\n"), 0o644)
	_, err := tr.find("libx.so.1", nil)
	qt.Assert(t, qt.ErrorMatches(err, `.*, /usr/lib, /musl; give a path .*`))
}

func TestAnEmptyEntryOfLdLibraryPathIsTheCurrentDirectory(t *testing.T) {
	tr := newTree(t)
	tr.elf("/libgousdt-here.so.1")
	t.Chdir(tr.root)
	got, err := newSearch("libgousdt-here.so.1", "/", amd64,
		func(string) string { return "/nowhere:" }).find()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(got, "./libgousdt-here.so.1"))
}

func TestNamesThatAreNotBare(t *testing.T) {
	for _, name := range []string{"./libx.so", "/lib/libx.so", "a/b", "", "a\x00b"} {
		_, err := Find(name)
		qt.Check(t, qt.ErrorIs(err, fs.ErrInvalid), qt.Commentf("%q", name))
	}
}

func TestTheHostsVariablesAreUsedOnTheHost(t *testing.T) {
	testneeds.Only(t, "others have no such library", "linux")
	libc, err := Find("libc.so.6")
	qt.Assert(t, qt.IsNil(err))
	content, err := os.ReadFile(libc)
	qt.Assert(t, qt.IsNil(err))
	tr := newTree(t)
	tr.write("/libgousdt-test.so.1", content, 0o644)
	t.Setenv("LD_LIBRARY_PATH", tr.root)
	got, err := Find("libgousdt-test.so")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(got, filepath.Join(tr.root, "libgousdt-test.so.1")))
}

// Everything that this system's own ldconfig lists for this machine is found
// where it says.
func TestFindAgreesWithLdconfig(t *testing.T) {
	testneeds.Only(t, "others have no such cache", "linux")
	out, err := exec.Command(testneeds.Tool(t, "/sbin/ldconfig", "libc-bin"), "-p").Output()
	qt.Assert(t, qt.IsNil(err))
	line := regexp.MustCompile(`^\t(\S+) \(([^)]*)\) => (\S+)$`)
	host := hostTarget()
	checked, first := 0, map[string]bool{}
	for l := range strings.Lines(string(out)) {
		m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil || first[m[1]] || strings.Contains(m[2], "hwcap") || strings.Contains(m[2],
			"prelink") {
			continue
		}
		h, err := readHeader(m[3])
		if err != nil || h.machine != host.machine || h.class != host.class {
			continue
		}
		first[m[1]] = true
		got, err := newSearch(m[1], "/", host, func(string) string { return "" }).find()
		if err != nil && !isLibraryName(m[1]) {
			continue
		}
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, m[3]))
		checked++
	}
	qt.Assert(t, qt.IsTrue(checked > 0), qt.Commentf("ldconfig lists nothing for this machine"))
}

// The cache that ldconfig writes now, in its present and in its compatible
// format, is understood, with processor levels.
func TestFindInACacheWrittenByLdconfig(t *testing.T) {
	testneeds.Only(t, "others have no such cache", "linux")
	ldconfig := testneeds.Tool(t, "/sbin/ldconfig", "libc-bin")
	testneeds.Root(t) // ldconfig -r changes its root
	libc, err := Find("libc.so.6")
	qt.Assert(t, qt.IsNil(err))
	library, err := os.ReadFile(libc)
	qt.Assert(t, qt.IsNil(err))
	for _, format := range []string{"new", "compat"} {
		t.Run(format, func(t *testing.T) {
			tr := newTree(t)
			tr.write("/etc/ld.so.conf", []byte("/opt/x\n"), 0o644)
			tr.write("/opt/x/libc.so.6", library, 0o755)
			tr.write("/opt/x/glibc-hwcaps/x86-64-v2/libc.so.6", library, 0o755)
			out, err := exec.Command(ldconfig, "-c", format, "-r", tr.root).CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))

			c, err := readCache(tr.root)
			qt.Assert(t, qt.IsNil(err))
			got := c.find(func(name []byte) bool { return string(name) == "libc.so.6" })
			want := []cacheEntry{{name: "libc.so.6", path: "/opt/x/libc.so.6"}}
			if runtime.GOARCH == "amd64" {
				want = append([]cacheEntry{{"libc.so.6", "/opt/x/glibc-hwcaps/x86-64-v2/libc.so.6",
					"x86-64-v2"}}, want...)
			}
			qt.Assert(t, qt.IsTrue(slices.Equal(got, want)), qt.Commentf("%v", got))
		})
	}
}
