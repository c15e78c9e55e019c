// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Software is a running program of somebody else's making. [Process.Command] is
// what it understands; firing groups is not.
type Software struct {
	*Process
	// File has the probes: the program itself, or a library that it maps.
	File string
}

// Python is a running interpreter. [Python.Call] and [Python.Collect] make it
// pass its probes.
type Python struct {
	Software
	// What the probe function__entry passes when [Python.Call] is called: the
	// file, the function and the line where the function begins.
	Script   string
	Function string
	Line     int
}

// pythonScript obeys commands, one line at a time. Python 3.11 passes the
// probes of functions only while somebody profiles, so somebody does.
const pythonScript = `import gc
import sys

sys.setprofile(lambda frame, event, argument: None)


def traced_function():
    return 1


for line in sys.stdin:
    if line == "call\n":
        traced_function()
    elif line == "collect\n":
        gc.collect()
    print("ok", flush=True)
`

// StartPython runs the system's Python 3. It needs one that was configured with
// DTrace probes, as Debian's is: with function__entry, function__return, line,
// gc__start, gc__done and others, each with a semaphore.
func StartPython(t testing.TB) *Python {
	t.Helper()
	interpreter, file, err := findPython()
	if err != nil {
		testneeds.Missing(t, "%v", err)
	}
	script := filepath.Join(t.TempDir(), "traced.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(pythonScript), 0o644)))
	before, _, _ := strings.Cut(pythonScript, "def ")
	// -I and -S: nothing of the user's runs before the script.
	process := StartCommand(t, exec.Command(interpreter, "-I", "-S", script))
	python := &Python{
		Software: Software{Process: process, File: file},
		Script:   script,
		Function: "traced_function",
		Line:     strings.Count(before, "\n") + 1,
	}
	process.must("ready")
	return python
}

// Call calls the script's function once.
func (p *Python) Call() {
	p.t.Helper()
	p.must("call")
}

// Collect collects garbage once.
func (p *Python) Collect() {
	p.t.Helper()
	p.must("collect")
}

// findPython returns an interpreter and the file with its probes, which is the
// interpreter itself or its library. Not the first python3 in PATH: that may be
// a script that starts another.
func findPython() (interpreter, file string, err error) {
	interpreters, _ := filepath.Glob("/usr/bin/python3.[0-9]*")
	slices.Reverse(interpreters)
	for _, interpreter := range interpreters {
		if hasProbes(interpreter) {
			return interpreter, interpreter, nil
		}
		libraries, _ := filepath.Glob("/usr/lib*/lib" + filepath.Base(interpreter) + ".so.*")
		for _, library := range libraries {
			if needs(interpreter, filepath.Base(library)) && hasProbes(library) {
				return interpreter, library, nil
			}
		}
	}
	return "", "", fmt.Errorf("needs a Python 3 with probes in /usr/bin (Debian: python3), found %q", interpreters)
}

// hasProbes looks for the section of the notes only.
func hasProbes(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".note.stapsdt") != nil
}

func needs(path, library string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	return err == nil && slices.Contains(libraries, library)
}

// Throw is a running C++ program.
type Throw struct{ Software }

// StartThrow runs a C++ program that passes libstdc++'s probes throw, catch and
// rethrow when [Throw.Throw] is called. File is the libstdc++ that it maps.
func StartThrow(t testing.TB) *Throw {
	t.Helper()
	process := Start(t, "throw")
	process.must("ready")
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", process.PID))
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(maps)) {
		// The path is the last field and the only one with a slash.
		if i := strings.Index(line, "/"); i >= 0 && strings.Contains(line, "/libstdc++.so") {
			library := strings.TrimSpace(line[i:])
			if !hasProbes(library) {
				testneeds.Missing(t, "needs a libstdc++ with probes, %s has none", library)
			}
			return &Throw{Software{Process: process, File: library}}
		}
	}
	t.Fatalf("the program maps no libstdc++:\n%s", maps)
	return nil
}

// Throw throws one exception, catches it, rethrows it and catches it again: the
// probes pass as throw, catch, rethrow, catch.
func (p *Throw) Throw() {
	p.t.Helper()
	p.must("throw")
}

// ThrowFromSignal throws one exception and catches it within a signal's
// handler, handle, that interrupts what the function interrupted has called.
// Then it is [Throw.Throw].
func (p *Throw) ThrowFromSignal() {
	p.t.Helper()
	p.must("signal")
}

// ThrowFrom is [Throw.Throw] from so many calls deep of the function descend,
// which main has called through throw_again once already, and which calls
// throw_it.
func (p *Throw) ThrowFrom(levels int) {
	p.t.Helper()
	p.must("%d", levels)
}

// postgresDeadline is how long the server may take to be made, to start, to
// answer one query and to stop. Making it writes some forty megabytes.
const postgresDeadline = 60 * time.Second

// Postgres is a running PostgreSQL server of the test's own.
type Postgres struct {
	// File is the server's program: it has the probes query__start,
	// transaction__start and about seventy others, each with a semaphore.
	File string
	// PID of the server. Each connection, and so each Query, is served by a
	// child process of it: trace all processes, or those of the file.
	PID int
	// SocketDir is the folder of the Unix socket, the only way in unless there
	// is a Port.
	SocketDir string
	// Port is that of TCP on 127.0.0.1, 0 without TCP.
	Port int

	t   testing.TB
	bin string
}

// StartPostgres makes an empty database cluster in a temporary folder and
// starts a server on it: on a Unix socket only, as an unprivileged user if the
// test runs as root. The end of the test stops the server, also if the test
// process is killed. It does not touch clusters that the machine has.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	return startPostgres(t, 0)
}

// StartPostgresOf is StartPostgres with the programs of a directory.
func StartPostgresOf(t testing.TB, bin string) *Postgres {
	t.Helper()
	return startPostgresOf(t, bin, 0)
}

// StartPostgresForDrivers is StartPostgres for drivers, some of which know TCP
// only, with what counts statements: the extension pg_stat_statements.
func StartPostgresForDrivers(t testing.TB) *Postgres {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	p := startPostgres(t, port)
	p.Query("CREATE EXTENSION pg_stat_statements")
	return p
}

func startPostgres(t testing.TB, port int) *Postgres {
	t.Helper()
	bin, err := findPostgres()
	if err != nil {
		testneeds.Missing(t, "%v", err)
	}
	return startPostgresOf(t, bin, port)
}

func startPostgresOf(t testing.TB, bin string, port int) *Postgres {
	t.Helper()
	owner, err := unprivileged()
	qt.Assert(t, qt.IsNil(err))
	// Not t.TempDir: another user has to be able to enter it, and the socket's
	// path may have no more than 107 bytes.
	dir, err := os.MkdirTemp("", "postgres")
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { os.RemoveAll(dir) })
	if owner != nil {
		qt.Assert(t, qt.IsNil(os.Chown(dir, int(owner.Uid), int(owner.Gid))))
	}
	p := &Postgres{File: filepath.Join(bin, "postgres"), SocketDir: dir, Port: port, t: t,
		bin: bin}
	data := filepath.Join(dir, "data")

	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(postgresDeadline))
	defer cancel()
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data,
		"--username", "gousdt", "--auth", "trust", "--locale", "C", "--encoding", "UTF8",
		"--no-sync")
	p.unprivileged(initdb, owner)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(initdb.Args, " "), err, out)
	}
	p.start(data, owner)
	return p
}

// start runs the server under a shell that stops it when its own input ends,
// whatever happens to the test process.
func (p *Postgres) start(data string, owner *syscall.Credential) {
	p.t.Helper()
	const script = `"$@" & echo $!; read -r _; kill -INT $!; wait $!`
	cmd := exec.Command("sh", "-c", script, "sh", p.File, "-D", data, "-k", p.SocketDir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off", "-c",
		"max_connections=10")
	if p.Port != 0 {
		cmd.Args = append(cmd.Args, "-p", strconv.Itoa(p.Port), "-c", "listen_addresses=127.0.0.1",
			"-c", "shared_preload_libraries=pg_stat_statements")
	}
	p.unprivileged(cmd, owner)
	stdin, err := cmd.StdinPipe()
	qt.Assert(p.t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(p.t, qt.IsNil(err))
	stderr, err := cmd.StderrPipe()
	qt.Assert(p.t, qt.IsNil(err))
	qt.Assert(p.t, qt.IsNil(cmd.Start()))
	log := make(chan []byte, 1)
	ready := make(chan bool, 1)
	go watchLog(stderr, ready, log)
	p.t.Cleanup(func() {
		stdin.Close()
		kill := time.AfterFunc(testneeds.Patience(postgresDeadline), func() {
			syscall.Kill(p.PID, syscall.SIGQUIT) // do not wait for connections
		})
		defer kill.Stop()
		text := <-log
		cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("the server wrote:\n%s", text)
		}
	})

	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.t.Fatalf("start %s: %v", p.File, err)
	}
	if p.PID, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		p.t.Fatalf("start %s: %v", p.File, err)
	}
	select {
	case ok := <-ready:
		if !ok {
			p.t.Fatalf("%s did not start", p.File)
		}
	case <-time.After(testneeds.Patience(postgresDeadline)):
		p.t.Fatalf("%s is not ready after %v", p.File, postgresDeadline)
	}
}

// watchLog sends true on ready when the server says that it is, false if it
// ends before that, and on log everything that the server wrote when it has
// ended.
func watchLog(stderr io.Reader, ready chan<- bool, log chan<- []byte) {
	var text bytes.Buffer
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		text.Write(append(lines.Bytes(), '\n'))
		if strings.Contains(lines.Text(), "ready to accept connections") {
			select {
			case ready <- true:
			default: // it has said so before
			}
		}
	}
	close(ready)
	log <- text.Bytes()
}

// Query sends queries on a connection of their own and returns what psql
// prints: a line per row, columns divided by |.
func (p *Postgres) Query(sql ...string) string {
	p.t.Helper()
	out, err := p.psql(sql...)
	if err != nil {
		p.t.Fatalf("query %q: %v\n%s", sql, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

// Refuse sends queries that fail, on one connection.
func (p *Postgres) Refuse(sql ...string) {
	p.t.Helper()
	if out, err := p.psql(sql...); err == nil || !strings.Contains(out, "ERROR") {
		p.t.Fatalf("queries %q: %v\n%s", sql, err, out)
	}
}

// psql sends queries, and returns what psql prints.
func (p *Postgres) psql(sql ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(postgresDeadline))
	defer cancel()
	psql := exec.CommandContext(ctx, filepath.Join(p.bin, "psql"), "-X", "-q", "-A", "-t",
		"-h", p.SocketDir, "-U", "gousdt", "-d", "postgres")
	if p.Port != 0 {
		psql.Args = append(psql.Args, "-p", strconv.Itoa(p.Port))
	}
	for _, query := range sql {
		psql.Args = append(psql.Args, "-c", query)
	}
	psql.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PG")
	})
	out, err := psql.CombinedOutput()
	return string(out), err
}

// unprivileged makes a command run as owner in a folder that owner may enter,
// with nothing in its environment that could lead it to another server.
func (p *Postgres) unprivileged(cmd *exec.Cmd, owner *syscall.Credential) {
	cmd.Dir = p.SocketDir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	if owner != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	}
}

// unprivileged returns who the server runs as if this process is root, which it
// refuses to run as; else nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no account to run a server as: neither postgres nor nobody exists")
}

// findPostgres returns the folder of the newest server's programs. Debian keeps
// each version in a folder of its own, which is not in PATH.
func findPostgres() (string, error) {
	const pattern = "/usr/lib/postgresql/*/bin"
	folders, _ := filepath.Glob(pattern)
	slices.SortFunc(folders, func(a, b string) int {
		version := func(folder string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
			return n
		}
		return version(b) - version(a)
	})
	for _, folder := range folders {
		if hasProbes(filepath.Join(folder, "postgres")) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("needs a PostgreSQL server with probes in %s (Debian: postgresql)",
		pattern)
}
