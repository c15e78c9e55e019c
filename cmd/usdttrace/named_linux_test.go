// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"debug/elf"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// mostUnnamed is the part of the functions on stacks that may have no name.
const mostUnnamed = 0.02

// namedCase is software whose stacks must have names.
type namedCase struct {
	file, probe string
	debug       string // the directory with debug files, "" for none
	work        func() // has the probe passed
	made        string // a function of code made at run time that is on a stack, "" for none
}

// Nearly all functions on stacks of stripped servers and of code made at run
// time have names: debuginfod has the debug files, and processes say what they
// have made.
func TestFunctionsOnStacksHaveNames(t *testing.T) {
	testneeds.Root(t)
	cases := map[string]func(*testing.T) namedCase{"Python": namedPython, "Java": namedJava}
	// It takes minutes to build: make test-soak does.
	if os.Getenv("GOUSDT_SOAK") != "" {
		cases["PostgreSQL"] = namedPostgres
	}
	// Debian strips its own Node, and has the debug file in no package. That of
	// nodejs.org and of others has its symbols.
	if node, err := exec.LookPath("node"); err == nil && hasSymbols(t, node) {
		cases["Node"] = namedNode
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			c := prepare(t)
			args := []string{"--json", "--folded", filepath.Join(t.TempDir(), "folded")}
			if c.debug != "" {
				serveDebugFile(t, c.debug, c.file)
				args = append(args, "--debuginfod")
			}
			r := watching(t, append(args, c.file, c.probe)...)
			c.work()
			summary := r.interrupt().objects("summary")[0]
			folded, err := os.ReadFile(args[2])
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsTrue(summary.Frames > 100), qt.Commentf("%d frames", summary.Frames))
			share := float64(summary.UnnamedFrames) / float64(summary.Frames)
			t.Logf("%s: %.2f%% of %d functions without a name", name, 100*share, summary.Frames)
			qt.Check(t, qt.IsTrue(share <= mostUnnamed), qt.Commentf("%s", folded))
			qt.Check(t, qt.StringContains(string(folded), c.made))
		})
	}
}

// serveDebugFile starts Debian's debuginfod to serve the debug files in a
// directory, with that of a program among them.
func serveDebugFile(t *testing.T, directory, program string) {
	t.Helper()
	file, err := elffile.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	id, err := file.BuildID()
	qt.Assert(t, qt.IsNil(err))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	address := "http://" + listener.Addr().String()
	listener.Close()
	server := exec.Command(testneeds.Tool(t, "debuginfod", "debuginfod"), "-F", directory,
		"-p", address[strings.LastIndexByte(address, ':')+1:], "-d", ":memory:")
	qt.Assert(t, qt.IsNil(server.Start()))
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	testneeds.Await(t, time.Minute, "debuginfod has the file", func() bool {
		response, err := http.Get(address + "/buildid/" + id + "/debuginfo")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	t.Setenv("DEBUGINFOD_URLS", address)
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
}

// built returns the file that a script of internal/setup makes in a directory.
func built(t *testing.T, script, directory, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../docs/recipes/build", directory))
	qt.Assert(t, qt.IsNil(err))
	if _, err := os.Stat(filepath.Join(path, file)); err != nil {
		testneeds.Missing(t, "needs internal/setup/%s docs/recipes/build/%s", script, directory)
	}
	return path
}

func namedPostgres(t *testing.T) namedCase {
	directory := built(t, "postgresql-symbols", "postgresql", "debug/postgres.debug")
	p := testprog.StartPostgresOf(t, filepath.Join(directory, "server/bin"))
	pgbench := func(args ...string) {
		cmd := exec.Command(filepath.Join(directory, "server/bin/pgbench"),
			append(args, "-h", p.SocketDir, "-U", "gousdt", "postgres")...)
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	}
	pgbench("-i", "-q")
	return namedCase{file: p.File, debug: filepath.Join(directory, "debug"),
		probe: "postgresql:transaction__*", work: func() { pgbench("-c", "2", "-t", "100") }}
}

// said starts a command, and returns its lines.
func said(t *testing.T, cmd *exec.Cmd) (next func() string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = os.Stderr
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewReader(out)
	return func() string {
		line, err := lines.ReadString('\n')
		qt.Assert(t, qt.IsNil(err))
		return strings.TrimSpace(line)
	}
}

func namedPython(t *testing.T) namedCase {
	root := built(t, "debug-packages", "debug", "usr/bin/python3.11")
	file := filepath.Join(root, "usr/bin/python3.11")
	cmd := exec.Command(file, "-I", "-S", "-u", "-c", `
import gc
def collect(depth):
    return collect(depth - 1) if depth else gc.collect()
while True:
    input()
    for n in range(20): collect(n)
    print("done")
`)
	cmd.Env = append(os.Environ(), "PYTHONHOME="+filepath.Join(root, "usr"))
	stdin := stdinOf(t, cmd)
	next := said(t, cmd)
	return namedCase{file: file, debug: filepath.Join(root, "usr/lib/debug"),
		probe: "python:gc__start", work: func() {
			_, err := stdin.Write([]byte("\n"))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(next(), "done"))
		}}
}

const javaSource = `
import java.util.concurrent.locks.LockSupport;
public class Parks {
	static int park(int depth) {
		if (depth > 0)
			return park(depth - 1) + 1;
		LockSupport.parkNanos(1000);
		return 0;
	}
	public static void main(String[] args) throws Exception {
		int total = 0;
		for (int n = 0; n < 20000; n++)
			total += park(n % 5);
		while (true) {
			System.in.read();
			for (int n = 0; n < 200; n++)
				total += park(n % 5);
			System.out.println("done");
		}
	}
}
`

func namedJava(t *testing.T) namedCase {
	root := built(t, "debug-packages", "debug", "usr/lib/jvm")
	home := filepath.Join(root, "usr/lib/jvm/java-17-openjdk-amd64")
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "Parks.java"), []byte(javaSource), 0o644)))
	out, err := exec.Command(testneeds.Tool(t, "javac", "default-jdk-headless"), "--release", "17",
		"-d", dir, filepath.Join(dir, "Parks.java")).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	cmd := exec.Command(filepath.Join(home, "bin/java"), "-XX:+PreserveFramePointer", "-cp", dir, "Parks")
	stdin := stdinOf(t, cmd)
	next := said(t, cmd)
	return namedCase{file: filepath.Join(home, "lib/server/libjvm.so"),
		debug: filepath.Join(root, "usr/lib/debug"), probe: "hotspot:thread__park__begin",
		made: "Parks.park", work: func() {
			_, err := stdin.Write([]byte("\n"))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(next(), "done"))
			out, err := exec.Command(testneeds.Tool(t, "jcmd", "default-jdk-headless"),
				decimal(cmd.Process.Pid), "Compiler.perfmap").CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			t.Cleanup(func() { os.Remove("/tmp/perf-" + decimal(cmd.Process.Pid) + ".map") })
		}}
}

// nodeProbe passes a probe where a program asks for its user, as Node has no
// probes of its own.
const nodeProbe = `
#include <sys/sdt.h>
#include <unistd.h>
uid_t getuid(void) { STAP_PROBE(preloaded, getuid); return 0; }
`

func hasSymbols(t *testing.T, program string) bool {
	t.Helper()
	file, err := elf.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	return file.Section(".symtab") != nil
}

func namedNode(t *testing.T) namedCase {
	node := testneeds.Tool(t, "node", "nodejs")
	dir := t.TempDir()
	library := filepath.Join(dir, "preloaded.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "probe.c"), []byte(nodeProbe), 0o644)))
	out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-I",
		filepath.Join(filepath.Dir(testprog.Path(t, "target-pie")), "include"), "-o", library,
		filepath.Join(dir, "probe.c")).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	cmd := exec.Command(node, "--perf-basic-prof",
		"--interpreted-frames-native-stack", "-e", `
function ask(depth) { return depth ? ask(depth - 1) + 1 : process.getuid(); }
process.stdin.on("data", () => {
	for (let n = 0; n < 500; n++) ask(n % 7);
	console.log("done");
});
console.log("ready");
`)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library)
	cmd.Dir = dir
	stdin := stdinOf(t, cmd)
	next := said(t, cmd)
	qt.Assert(t, qt.Equals(next(), "ready"))
	t.Cleanup(func() { os.Remove("/tmp/perf-" + decimal(cmd.Process.Pid) + ".map") })
	return namedCase{file: library, probe: "preloaded:getuid", made: "ask", work: func() {
		_, err := stdin.Write([]byte("\n"))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(next(), "done"))
	}}
}
