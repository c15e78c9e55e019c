// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// Software is a running program that is not a test's own. [Process.Do] sends
// commands; it has no groups to fire.
type Software struct {
	*Process
	// File has the probes: the program itself, or a library that it maps.
	File string
}

// Python is a running interpreter. The command "call" calls a function, and
// "collect" collects garbage.
type Python struct {
	Software
	// What the probe function__entry passes when the function is called: the
	// file, the function and the line where the function begins.
	Script   string
	Function string
	Line     int
}

// pythonScript obeys commands, one line at a time. Python 3.11 passes the
// probes of functions only while a profile function is set.
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

// CallsOfPython is a probe of Python 3 up to 3.11, and from 3.15 on.
const CallsOfPython = "function__entry"

// StartPython runs the system's Python 3. It needs one that was configured with
// DTrace probes, as Debian's is, and has those that are named. Each has a
// semaphore. It is a copy that no other test traces, unless the probes are in a
// library.
func StartPython(t testing.TB, probes ...string) *Python {
	t.Helper()
	interpreter, file := findPython(t, probes)
	if file == interpreter {
		contents, err := os.ReadFile(file)
		qt.Assert(t, qt.IsNil(err))
		file = filepath.Join(t.TempDir(), filepath.Base(file))
		WriteProgram(t, file, contents)
		interpreter = file
	} else {
		TakeTurn(t, SystemSoftware)
	}
	script := filepath.Join(t.TempDir(), "traced.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(pythonScript), 0o644)))
	before, _, _ := strings.Cut(pythonScript, "def ")
	// -I and -S: nothing of the user's runs before the script.
	process := StartCommand(t, exec.Command(interpreter, "-I", "-S", script))
	process.Do("ready")
	return &Python{
		Software: Software{Process: process, File: file},
		Script:   script,
		Function: "traced_function",
		Line:     strings.Count(before, "\n") + 1,
	}
}

// findPython returns an interpreter and the file with its probes, which is the
// interpreter itself or its library. Not the first python3 in PATH: that may be
// a script that starts another.
func findPython(t testing.TB, probes []string) (interpreter, file string) {
	t.Helper()
	interpreters, _ := filepath.Glob("/usr/bin/python3.[0-9]*")
	slices.Reverse(interpreters)
	for _, interpreter := range interpreters {
		if hasProbes(interpreter, probes...) {
			return interpreter, interpreter
		}
		f, err := elf.Open(interpreter)
		if err != nil {
			continue
		}
		needed, _ := f.ImportedLibraries()
		f.Close()
		libraries, _ := filepath.Glob("/usr/lib*/lib" + filepath.Base(interpreter) + ".so.*")
		for _, library := range libraries {
			if slices.Contains(needed, filepath.Base(library)) && hasProbes(library, probes...) {
				return interpreter, library
			}
		}
	}
	if slices.Contains(probes, CallsOfPython) {
		testneeds.Missing(t, "needs a Python with call probes, up to 3.11 or from 3.15 on, in /usr/bin, "+
			"found %q", interpreters)
	}
	testneeds.Missing(t, "needs a Python 3 with probes %q in /usr/bin (Debian: python3), found %q", probes,
		interpreters)
	return "", ""
}

// hasProbes looks for the section of the notes, and for names in it, only.
func hasProbes(path string, names ...string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	section := f.Section(".note.stapsdt")
	if section == nil {
		return false
	}
	notes, err := section.Data()
	return err == nil && !slices.ContainsFunc(names, func(name string) bool {
		return !bytes.Contains(notes, []byte("\x00"+name+"\x00"))
	})
}

// StartThrow runs a C++ program that passes libstdc++'s probes. File is the
// libstdc++ that it maps. Its commands:
//
//	throw   throws an exception, catches it, rethrows it and catches it again:
//	        the probes pass as throw, catch, rethrow, catch
//	signal  throws one and catches it in a signal's handler, handle, that
//	        interrupts what the function interrupted has called; then as throw
//	N       as throw, from N calls deep of the function descend, which main has
//	        called through throw_again once already, and which calls throw_it
func StartThrow(t testing.TB) *Software {
	t.Helper()
	TakeTurn(t, SystemSoftware)
	process := Start(t, "throw")
	process.Do("ready")
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", process.PID))
	qt.Assert(t, qt.IsNil(err))
	library := string(regexp.MustCompile(`/.*/libstdc\+\+\.so.*`).Find(maps))
	if !hasProbes(library) {
		testneeds.Missing(t, "needs a libstdc++ with probes, not %q of\n%s", library, maps)
	}
	return &Software{Process: process, File: library}
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
	// Version is the first part of the server's.
	Version int

	t     testing.TB
	root  string // in which bin is; its /tmp is the test's own
	bin   string
	owner *syscall.Credential // whom it runs as; nil for the test's own user
}

// ReleaseVariable names the root of a release that internal/setup/releases has
// unpacked, whose server is started.
const ReleaseVariable = "GOUSDT_RELEASE"

// A Release is the root of one that internal/setup/releases has unpacked, or
// empty for the system's own.
type Release string

// StartPostgres makes an empty database cluster in a temporary folder and
// starts a server on it: on a Unix socket only, as an unprivileged user if the
// test runs as root. The end of the test stops the server, also if the test
// process is killed. It does not touch clusters that the machine has, and its
// program is a copy that no other test traces.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	return Release(os.Getenv(ReleaseVariable)).StartPostgres(t)
}

// StartPostgres starts the server of a release.
func (r Release) StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	return r.startPostgres(t, r.findPostgres(t), 0)
}

// StartPostgresOf is StartPostgres with the programs of a directory, which are
// traced where they are.
func StartPostgresOf(t testing.TB, bin string) *Postgres {
	t.Helper()
	return Release("").startPostgres(t, bin, 0)
}

// StartPostgresForDrivers is StartPostgres for drivers: with TCP, as some know
// nothing else, and with the extension pg_stat_statements.
func (r Release) StartPostgresForDrivers(t testing.TB) *Postgres {
	t.Helper()
	bin := r.findPostgres(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	free.Close()
	p := r.startPostgres(t, bin, free.Addr().(*net.TCPAddr).Port)
	p.Query("CREATE EXTENSION pg_stat_statements")
	return p
}

func (r Release) startPostgres(t testing.TB, bin string, port int) *Postgres {
	t.Helper()
	// Not t.TempDir: another user has to be able to enter it, and the socket's
	// path may have no more than 107 bytes.
	dir, err := os.MkdirTemp("", "postgres")
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Postgres{File: filepath.Join(bin, "postgres"), SocketDir: dir, Port: port, t: t,
		root: string(r), bin: strings.TrimPrefix(bin, string(r))}
	if strings.HasPrefix(p.bin, "/usr/lib/") {
		p.File = copyPostgres(t, p.File, dir, p.bin)
	}
	said, err := p.command(context.Background(), nil,
		filepath.Join(p.bin, "postgres"), "--version").Output()
	qt.Assert(t, qt.IsNil(err))
	_, err = fmt.Sscanf(string(said), "postgres (PostgreSQL) %d", &p.Version)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", said))
	if os.Geteuid() == 0 { // as which the server refuses to run
		p.owner = Unprivileged(t)
		qt.Assert(t, qt.IsNil(os.Chown(dir, int(p.owner.Uid), int(p.owner.Gid))))
	}
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Patience(postgresDeadline))
	defer cancel()
	initdb := p.command(ctx, p.owner, filepath.Join(p.bin, "initdb"), "--pgdata", data,
		"--username", "gousdt", "--auth", "trust", "--locale", "C", "--encoding", "UTF8", "--no-sync")
	out, err := initdb.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s: %s", initdb, out))
	p.start(data)
	return p
}

// start runs the server under a shell that stops it when its own input ends,
// whatever happens to the test process.
func (p *Postgres) start(data string) {
	p.t.Helper()
	const script = `"$@" & echo $!; read -r _; kill -INT $!; wait $!`
	cmd := p.command(context.Background(), p.owner, "sh", "-c", script, "sh",
		p.File, "-D", data,
		"-k", p.SocketDir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off",
		"-c", "max_connections=10", "-c", "max_prepared_transactions=2")
	if p.Port != 0 {
		cmd.Args = append(cmd.Args, "-p", strconv.Itoa(p.Port), "-c", "listen_addresses=127.0.0.1",
			"-c", "shared_preload_libraries=pg_stat_statements")
	}
	stdin, err := cmd.StdinPipe()
	qt.Assert(p.t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(p.t, qt.IsNil(err))
	stderr, err := cmd.StderrPipe()
	qt.Assert(p.t, qt.IsNil(err))
	qt.Assert(p.t, qt.IsNil(cmd.Start()))
	var log bytes.Buffer // of all that it writes
	ready, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if strings.Contains(lines.Text(), "ready to accept connections") {
				select {
				case ready <- struct{}{}:
				default: // it has said so before
				}
			}
		}
	}()
	p.t.Cleanup(func() {
		stdin.Close()
		kill := time.AfterFunc(testneeds.Patience(postgresDeadline), func() {
			syscall.Kill(p.PID, syscall.SIGQUIT) // do not wait for connections
		})
		defer kill.Stop()
		<-ended
		cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("the server wrote:\n%s", &log)
		}
	})
	_, err = fmt.Fscanln(stdout, &p.PID)
	qt.Assert(p.t, qt.IsNil(err), qt.Commentf("start %s", p.File))
	select {
	case <-ready:
	case <-ended:
		p.t.Fatalf("%s did not start", p.File)
	case <-time.After(testneeds.Patience(postgresDeadline)):
		p.t.Fatalf("%s is not ready after %v", p.File, postgresDeadline)
	}
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
	psql := p.command(ctx, p.owner, filepath.Join(p.bin, "psql"), "-X", "-q", "-A", "-t", "-h", p.SocketDir,
		"-U", "gousdt", "-d", "postgres")
	if p.Port != 0 {
		psql.Args = append(psql.Args, "-p", strconv.Itoa(p.Port))
	}
	for _, query := range sql {
		psql.Args = append(psql.Args, "-c", query)
	}
	out, err := psql.CombinedOutput()
	return string(out), err
}

// Client returns a command of the server's clients, as psql, which runs as the
// test's own user.
func (p *Postgres) Client(name string, args ...string) *exec.Cmd {
	cmd := p.command(context.Background(), nil, filepath.Join(p.bin, name), args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// command returns a command that runs as a user, nil for the test's own, in a
// folder that both may enter, with nothing in its environment that leads it to
// another server.
func (p *Postgres) command(
	ctx context.Context, as *syscall.Credential, name string, args ...string,
) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if p.root != "" {
		if as == nil {
			as = new(syscall.Credential)
		}
		in := InRelease(p.root, as, append([]string{name}, args...)...)
		cmd = exec.CommandContext(ctx, in[0], in[1:]...)
	} else if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	cmd.Dir = p.SocketDir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	return cmd
}

// InRelease is a command of another release of the system, which is unpacked at
// root: it shares this system's processes, users and /tmp.
func InRelease(root string, as *syscall.Credential, command ...string) []string {
	const enter = `for d in tmp dev proc etc/passwd etc/group; do mount --rbind "/$d" "$0/$d"; done
		user=$1; shift; exec chroot --userspec="$user" "$0" "$@"`
	return append([]string{"unshare", "--mount", "sh", "-e", "-c", enter, root,
		fmt.Sprintf("%d:%d", as.Uid, as.Gid)}, command...)
}

// Unprivileged returns an account for a server.
func Unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if account, err := user.Lookup(name); err == nil {
			of := new(syscall.Credential)
			_, err := fmt.Sscan(account.Uid+" "+account.Gid, &of.Uid, &of.Gid)
			qt.Assert(t, qt.IsNil(err))
			return of
		}
	}
	t.Fatal("no account to run a server as: neither postgres nor nobody exists")
	return nil
}

// copyPostgres copies a server to where it finds, from its own place, links to
// the other files of its release. Links to its other programs are beside it.
func copyPostgres(t testing.TB, file, dir, bin string) string {
	t.Helper()
	contents, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(dir, bin, "postgres")
	qt.Assert(t, qt.IsNil(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.Symlink("/usr/share", filepath.Join(dir, "usr/share")),
		os.Symlink(filepath.Join(bin, "../lib"), filepath.Join(dir, bin, "../lib")))))
	others, err := os.ReadDir(filepath.Dir(file))
	qt.Assert(t, qt.IsNil(err))
	for _, other := range others {
		if name := other.Name(); name != "postgres" {
			qt.Assert(t, qt.IsNil(os.Symlink(filepath.Join(bin, name), filepath.Join(dir, bin, name))))
		}
	}
	WriteProgram(t, path, contents)
	return path
}

// findPostgres returns the folder of the newest server's programs. Debian keeps
// each version in a folder of its own, which is not in PATH.
func (r Release) findPostgres(t testing.TB) string {
	t.Helper()
	pattern := string(r) + "/usr/lib/postgresql/*/bin"
	folders, _ := filepath.Glob(pattern)
	newest, best := 0, ""
	for _, folder := range folders {
		version, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		if version > newest && hasProbes(filepath.Join(folder, "postgres")) {
			newest, best = version, folder
		}
	}
	if best == "" {
		testneeds.Missing(t, "needs a PostgreSQL server with probes in %s (Debian: postgresql)",
			pattern)
	}
	return best
}

// What the tests of two packages cannot use at the same time, as both see it.
// Each is a directory of the system, which is locked: another checkout has the
// same.
const (
	SystemSoftware = "/usr"  // its files' hits, and semaphores that count tracers, are those of all
	HostileUsers   = "/home" // they have the same user IDs, and share what one user may take
	tracefsEvents  = "/sys"  // those of killed tracers belong to nobody
)

// TakeTurn waits until no test of another package uses something, and keeps
// others waiting until the end of the test. What starts software of the system
// does that too.
func TakeTurn(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(prebuiltVariable) != "" {
		return // guests run one package at a time
	}
	turns.Lock()
	defer turns.Unlock()
	if turns.users[what] == 0 {
		file, err := os.Open(what)
		qt.Assert(t, qt.IsNil(err))
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		qt.Assert(t, qt.IsNil(err))
		turns.files[what] = file
	}
	turns.users[what]++
	t.Cleanup(func() {
		turns.Lock()
		defer turns.Unlock()
		if turns.users[what]--; turns.users[what] == 0 {
			turns.files[what].Close()
		}
	})
}

// turns are those of this process.
var turns = struct {
	sync.Mutex
	users map[string]int
	files map[string]*os.File
}{users: make(map[string]int), files: make(map[string]*os.File)}
