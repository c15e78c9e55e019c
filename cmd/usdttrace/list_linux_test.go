// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/cmd/internal/testschema"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestList(t *testing.T) {
	p := startTarget(t, "target-pie")
	command := copyBeside(t, copyOf(t, "target-shared"), "libtarget.so")
	library := filepath.Join(filepath.Dir(command), "libtarget.so")
	for _, test := range []struct {
		what, file string
		args       []string
	}{
		{"a file", p.path, []string{p.path}},
		{"a process", p.path, []string{"-p", decimal(p.PID)}},
		{"a file of a process", p.path, []string{"-p", decimal(p.PID), p.path}},
		{"a file of a process by its name", p.path, []string{"-p", decimal(p.PID), "target-pie"}},
		{"a command and its libraries", library, []string{"--", command}},
	} {
		t.Run(test.what, func(t *testing.T) {
			r := start(t, append([]string{"-l", "gousdt_test:three", "gousdt_test:inlined"},
				test.args...)...).wait()
			qt.Check(t, qt.DeepEquals(r.ok(), []string{
				"File: " + test.file,
				"PROBE                SITES  ARGUMENTS",
				"gousdt_test:three        1  i32, u64, u64",
				"gousdt_test:inlined      5  i32, i64",
			}))
			qt.Check(t, qt.Equals(r.stderr, ""))
		})
	}
	t.Run("all processes", func(t *testing.T) {
		r := start(t, "-a", "-l", "gousdt_test:three").wait()
		qt.Check(t, qt.StringContains(strings.Join(r.ok(), "\n"), "File: "+p.path+"\n"))
	})
	t.Run("as JSON", func(t *testing.T) {
		lines := start(t, "--json", "-l", p.path, "gousdt_test:three").wait().ok()
		testschema.Load(t, "usdttrace").Check(t, []byte(lines[0]))
		qt.Assert(t, qt.HasLen(lines, 1))
		qt.Check(t,
			qt.Matches(lines[0],
				`\{"type":"site","provider":"gousdt_test","name":"three","file":"`+p.path+
					`","location":\d+,"args":\["i32","u64","u64"\]\}`))
	})
	t.Run("sites that are skipped", func(t *testing.T) {
		r := start(t, "-l", p.path, "*:three", "*:no_nop").wait()
		qt.Check(t,
			qt.StringContains(r.stderr, "target-pie: skipped probe gousdt_broken:no_nop at "))
	})
	t.Run("all with the names of arguments", func(t *testing.T) {
		names := filepath.Join(t.TempDir(), "names.d")
		qt.Assert(t, qt.IsNil(os.WriteFile(names,
			[]byte("provider gousdt_test { probe three(int count, char *text, void *); };"),
			0o644)))
		r := start(t, "-l", "--names", names, p.path).wait()
		text := strings.Join(r.ok(), "\n")
		qt.Check(t, qt.Matches(text,
			`(?s).*gousdt_test:three +1  count: i32, text: text, u64\n.*`))
		qt.Check(t, qt.Matches(text, `(?s).*gousdt_test:none +.*`))
	})
	t.Run("nothing", func(t *testing.T) {
		r := start(t, "-l", "-p", decimal(p.PID), "gousdt_test:thre").wait()
		qt.Check(t, qt.Equals(r.status, exitNothing))
		qt.Check(t, qt.Matches(r.stderr, fmt.Sprintf(
			`usdttrace: no probe matches gousdt_test:thre in process %d( .*)?\n`, p.PID)))
	})
}

// As of java, which is a launcher: the virtual machine is a library.
func TestFileWithoutProbesOfAProcessThatHasThem(t *testing.T) {
	testprog.Parallel(t)
	path := copyBeside(t, copyOf(t, "target-shared"), "libtarget.so")
	p := startProgram(t, path)
	r := start(t, "-p", decimal(p.PID), "target-shared", "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t,
		qt.Equals(r.stderr,
			fmt.Sprintf("usdttrace: %s: the file has no USDT probes; process %d maps %s, "+
				"which has matching probes: name that, or no file\n", path, p.PID,
				filepath.Join(filepath.Dir(path), "libtarget.so"))))
}

// What usdtlist lists is listed, also if this kernel cannot attach to it.
func TestListOfAnotherMachine(t *testing.T) {
	testprog.Parallel(t)
	testneeds.NoGuest(t, "the files are those of another package")
	testdata := filepath.Join("..", "usdtlist", "testdata")
	for name, machine := range map[string]string{
		"shop-arm64": "arm64", "shop-s390x": "s390x", "shop-amd64": "x86-64",
	} {
		path := filepath.Join(testdata, name)
		r := start(t, "-l", path, "shop:order", "shop:item").wait()
		qt.Check(t, qt.DeepEquals(r.ok(), []string{
			"File: " + path,
			"PROBE       SITES  ARGUMENTS",
			"shop:order      1  i64, i32, u64, i64",
			"shop:item       4  i64, i32",
		}))
		if r.stderr != "" {
			qt.Check(t, qt.Matches(r.stderr, "usdttrace: "+path+": the file is for "+machine+
				`, this kernel attaches to programs for [a-z0-9-]+ \(it is only listed\)\n`))
		}
	}
	r := start(t, "-l", filepath.Join(testdata, "shop-amd64.debug"), "shop:order").wait()
	qt.Check(t, qt.HasLen(r.ok(), 3))
	r = start(t, "-l", filepath.Join(testdata, "shop-arm64"), "nothing:*").wait()
	qt.Check(t, qt.Equals(r.status, exitError))
}

// A program without probes, a library that it is linked with, and a script.
func TestWhereTheProbesAre(t *testing.T) {
	testneeds.NoGuest(t, "it runs a script of a shell")
	program := copyBeside(t, copyOf(t, "target-shared"), "libtarget.so")
	library := filepath.Join(filepath.Dir(program), "libtarget.so")
	matching := "the file has no USDT probes; its library " + library + " has matching probes: usdttrace "
	r := start(t, program, "gousdt_test:three").wait()
	qt.Check(t, qt.Equals(r.status, exitNothing))
	qt.Check(t, qt.Equals(r.stderr,
		"usdttrace: "+program+": "+matching+library+" gousdt_test:three\n"))
	r = start(t, "-l", program).wait()
	qt.Check(t, qt.Equals(r.stderr, "usdttrace: "+program+": the file has no USDT probes; its library "+
		library+" has probes: usdttrace -l "+library+"\n"))
	r = start(t, program, "nothing:*").wait()
	qt.Check(t, qt.Equals(r.stderr, "usdttrace: "+program+": the file has no USDT probes\n"),
		qt.Commentf("its library has others"))
	const without = "; use a build that contains probes, or add your own " +
		"(bpftrace and perf trace functions without a probe)\n"
	r = start(t, "/bin/true", "nothing:*").wait()
	qt.Check(t, qt.Equals(r.stderr, "usdttrace: /bin/true: the file has no USDT probes"+without))
	r = start(t, "nothing:*", "--", "/bin/true").wait()
	qt.Check(t, qt.IsTrue(strings.HasSuffix(r.stderr, "have run"+without)), qt.Commentf(r.stderr))
	r = start(t, "-p", decimal(os.Getpid()), "--duration", "1ms", "nothing:*").wait()
	qt.Check(t, qt.IsTrue(strings.HasSuffix(r.stderr, listsAll+"\n")), qt.Commentf(r.stderr))

	// As of pyenv, whose python3 is a script that runs another program.
	folders := []string{t.TempDir(), t.TempDir()}
	script := filepath.Join(folders[0], "gousdt-tool")
	testprog.WriteProgram(t, script, []byte("#!/bin/sh\nexec /bin/cat </dev/null\n"))
	tool := filepath.Join(folders[1], "gousdt-tool")
	contents, err := os.ReadFile(copyOf(t, "target-pie"))
	qt.Assert(t, qt.IsNil(err))
	testprog.WriteProgram(t, tool, contents)
	t.Setenv("PATH", folders[0]+":"+folders[1]+":"+os.Getenv("PATH"))
	r = start(t, "gousdt-tool", "gousdt_test:three").wait()
	qt.Check(t, qt.StringContains(r.stderr, "is a script or wrapper, not an ELF file "+
		"(give the path of the program it starts); another program of that name, "+tool+
		", has matching probes: usdttrace "+tool+" gousdt_test:three\n"))
	cat, err := filepath.EvalSymlinks("/bin/cat")
	qt.Assert(t, qt.IsNil(err))
	for _, list := range []string{"-l", "-q"} {
		r = start(t, list, "gousdt_test:three", "--", "gousdt-tool", "a b").wait()
		qt.Check(t, qt.StringContains(r.stderr, "; another program of that name, "+tool+
			", has matching probes: usdttrace "+list+" gousdt_test:three -- "+tool+" 'a b'\n"))
	}
	qt.Check(t, qt.StringContains(r.stderr, "; gousdt-tool has run "+cat+";"))
}

// Why nothing comes is said while it does not, not only at the end.
func TestHintWhileNothingComes(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	names := filepath.Join(t.TempDir(), "names.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names,
		[]byte("#pragma gousdt fires gousdt_test:three in another protocol only\n"), 0o644)))
	r := watching(t, "--names", names, p.path, "gousdt_test:three")
	r.await(&r.stderr, "usdttrace: nothing yet: gousdt_test:three fires in another protocol only\n")
	p.Fire("three", 2)
	r.await(&r.stdout, "gousdt_test:three")
	qt.Check(t, qt.HasLen(r.interrupt().ok(), 3))

	// It fires, but the hits are not wanted.
	r = watching(t, "--names", names, "--duration", "5.5", "--where", "arg0 == 4711",
		p.path, "gousdt_test:three")
	p.Fire("three", 2)
	qt.Check(t, qt.Not(qt.StringContains(r.wait().stderr, "nothing yet")))
}

// What people type wrong, and what they are told. The messages of the file are
// written by -update: read them as a user who has typed that.
func TestWrongCommandLinesGetAMessageAboutWhatWasTyped(t *testing.T) {
	testprog.Parallel(t)
	testprog.RequireBPF(t)
	const file = "testdata/wrong.txt"
	golden, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	dir := t.TempDir()
	for name, of := range map[string]string{"target": "target-pie", "members": "members", "calls": "calls",
		"stripped": "members-stripped"} {
		program, err := os.ReadFile(testprog.Path(t, of))
		qt.Assert(t, qt.IsNil(err))
		testprog.WriteProgram(t, filepath.Join(dir, name), program)
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "members.d"), []byte(
		"provider members { probe request(struct request *request, int code); };"), 0o600)))
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "calls.d"), []byte(
		"provider gousdt_test { call work() { three .. twelve; }; };"), 0o600)))
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	var got strings.Builder
	for line := range strings.Lines(string(golden)) {
		words, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !isCommand {
			if strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(runDeadline))
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", `usdttrace() { exec "$0" "$@"; }; `+words, self)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), runVariable+"=1", "HOME="+dir)
		output, err := cmd.CombinedOutput()
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", words))
		got.WriteString("$ " + words + "\n" + string(output))
	}
	if *update {
		qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(got.String()), 0o644)))
		return
	}
	qt.Check(t, qt.Equals(got.String(), string(golden)))
}

func TestProcessesOfOneNameAreListed(t *testing.T) {
	dir := t.TempDir()
	sleep, err := os.ReadFile(testneeds.Tool(t, "sleep", "coreutils"))
	qt.Assert(t, qt.IsNil(err))
	var last int
	for _, name := range []string{"twins", "twins", "postgres"} {
		program := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.WriteFile(program+".new", sleep, 0o755)))
		qt.Assert(t, qt.IsNil(os.Rename(program+".new", program)))
		cmd := exec.Command(program, "60")
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		last = cmd.Process.Pid
	}
	err = new(options).setPID("twins")
	qt.Check(t, qt.ErrorMatches(err,
		`these processes have that name: \d+ \d+; one process can be given: FILE in place of -p watches all that run it, .*`))
	err = new(options).setPID(fmt.Sprintf("%d,%d", os.Getpid(), last))
	qt.Check(t, qt.ErrorMatches(err, `one process can be given: FILE in place of -p watches all that run it `+
		`\(of servers of PostgreSQL one by its port: --where 'global.PostPortNumber == 5432'\), .*`))
}
