// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// openTerminal returns both ends of a pseudo terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		testneeds.Missing(t, "needs pseudo terminals: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { master.Close() })
	qt.Assert(t, qt.IsNil(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	qt.Assert(t, qt.IsNil(err))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		testneeds.Missing(t, "needs pseudo terminals: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestTerminalsGetColoursUnlessTheUserWantsNone(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	for _, variable := range []string{"", "NO_COLOR=1", "TERM=dumb"} {
		t.Run(variable, func(t *testing.T) {
			master, slave := openTerminal(t)
			r := startPrepared(t, func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, "NO_COLOR="+strings.TrimPrefix(variable, "NO_COLOR="))
				if variable == "TERM=dumb" {
					cmd.Env = append(cmd.Env, variable, "NO_COLOR=")
				}
				if variable == "" {
					cmd.Env = append(cmd.Env, "NO_COLOR=")
				}
				cmd.Stdout = slave
			}, "--max-events", "1", p.path, "gousdt_test:three")
			slave.Close()
			r.await(&r.stderr, "(Ctrl-C ends)")
			p.Fire("three", 1)
			qt.Assert(t, qt.Equals(r.wait().status, exitWatched))
			text, _ := io.ReadAll(master) // it ends with an error, since nobody has the other end
			qt.Check(t, qt.StringContains(string(text), "gousdt_test:three"))
			qt.Check(t, qt.Equals(strings.Contains(string(text), "\x1b["), variable == ""),
				qt.Commentf("%q", text))
		})
	}
}

// liveRun is usdttrace --live on a terminal of its own.
type liveRun struct {
	*running
	screen *watched
	master *os.File
	read   chan struct{}
}

func startLive(t *testing.T, args ...string) *liveRun {
	t.Helper()
	return startLiveIn(t, nil, args...)
}

// startLiveIn starts it by another command, unless that is empty.
func startLiveIn(t *testing.T, by []string, args ...string) *liveRun {
	t.Helper()
	master, slave := openTerminal(t)
	qt.Assert(t, qt.IsNil(unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: 24, Col: 120})))
	l := &liveRun{screen: &watched{changed: make(chan struct{}, 1)}, master: master,
		read: make(chan struct{})}
	l.running = startPrepared(t, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if len(by) > 0 {
			self, err := os.Executable()
			qt.Assert(t, qt.IsNil(err))
			cmd.Path, cmd.Args = by[0], slices.Concat(by, []string{self}, cmd.Args[1:])
		}
	}, append([]string{"--live", "--interval", "20ms"}, args...)...)
	slave.Close()
	go func() {
		defer close(l.read)
		_, _ = io.Copy(l.screen, master) // it ends with an error, since nobody has the other end
	}()
	l.shows("(Ctrl-C ends)")
	return l
}

func (l *liveRun) shows(text string) {
	l.t.Helper()
	l.await(l.screen, text)
}

func (l *liveRun) press(keys string) {
	_, err := io.WriteString(l.master, keys)
	qt.Assert(l.t, qt.IsNil(err))
}

// quit ends it, and returns what it printed then.
func (l *liveRun) quit() string {
	l.t.Helper()
	l.press("q")
	qt.Check(l.t, qt.Equals(l.wait().status, exitWatched))
	<-l.read
	parts := strings.Split(l.screen.String(), "\x1b[?1049l")
	qt.Assert(l.t, qt.IsTrue(len(parts) > 1))
	return parts[len(parts)-1]
}

// Enter looks closer at a row in another run, and q ends with the table of all
// hits, whatever intervals they came in.
func TestLiveTablesAreDrawnInPlaceAndPrintedAtTheEnd(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	l := startLive(t, "--by", "probe", p.path, "gousdt_test:*")
	p.Fire("three", 3)
	l.shows("gousdt_test:three")
	l.press("\r")
	l.shows("--by comm,pid")
	l.shows("watching 1 site")
	p.Fire("three", 1)
	l.shows("target-pie  ")
	p.Fire("three", 5)
	qt.Check(t, qt.Matches(l.quit(), `(?s).*COMM .*target-pie +\d+ +6 .*6 events, 0 lost; .*`))
}

// Hits whose keys lose their row to others, of later intervals, are in (other).
func TestLiveSummaryHasTheHitsOfOtherKeys(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	l := startLive(t, "--by", "probe", "--max-keys", "1", p.path, "gousdt_test:*")
	p.Fire("none", 2)
	l.shows("gousdt_test:none")
	p.Fire("three", 5)
	l.shows("gousdt_test:three")
	qt.Check(t, qt.Matches(l.quit(), `(?s).*gousdt_test:three +5.*\(other\) +2 .*`+
		`7 events, 0 lost.*\n2 hits are of the less frequent keys.*`))
}

// Why nothing comes is shown while it does not.
func TestLiveTablesSayWhyNothingComes(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	names := filepath.Join(t.TempDir(), "names.d")
	qt.Assert(t, qt.IsNil(os.WriteFile(names, []byte("#pragma gousdt fires "+
		"gousdt_test:three where it has been switched on\n"), 0o666)))
	l := startLive(t, "--names", names, p.path, "gousdt_test:three")
	l.shows("switched") // the cursor moves between words
	p.Fire("three", 2)
	qt.Check(t, qt.Matches(l.quit(), "(?s).*2 events, 0 lost; 1 site; [^\n]*\n"))
}

// Starts and ends that do not belong together are reported while they come.
func TestLiveTablesDoubtCalls(t *testing.T) {
	testprog.Parallel(t)
	path := copyOf(t, "calls")
	l := startLive(t, "--latency", "gousdt_calls:loop", path)
	cmd := exec.Command(path)
	cmd.Stdin = strings.NewReader("interleaved\n")
	qt.Assert(t, qt.IsNil(cmd.Run()))
	l.shows("differ") // the cursor moves between words
	l.shows("arg0?")
	l.quit()
}

// Ctrl-Z stops it as any other command of a shell.
func TestLiveTablesAreStoppedAndContinued(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	l := startLiveIn(t, []string{"/bin/sh", "-mc", `"$@"; stty -a; echo stopped; read line; fg`, "sh"},
		"--by", "probe", p.path, "gousdt_test:*")
	p.Fire("three", 3)
	l.shows("gousdt_test:three")
	l.press("\x1a")
	l.shows("stopped\r\n")
	_, after, _ := strings.Cut(l.screen.String(), "\x1b[?1049l")
	qt.Check(t, qt.Matches(after, `(?s).* icanon .* echo .*`))
	p.Fire("three", 4)
	l.screen.forget()
	l.press("\n")
	l.shows("\x1b[?1049h")
	l.shows("gousdt_test:three")
	qt.Check(t, qt.Matches(l.quit(), `(?s).*gousdt_test:three +7 .*`))
}

// No shell continues what is alone in its session: it goes on at once. What
// another program stops takes the terminal again.
func TestLiveTablesWithoutAShellGoOn(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	l := startLive(t, "--by", "probe", p.path, "gousdt_test:*")
	p.Fire("three", 3)
	l.shows("gousdt_test:three")
	for _, stop := range []func(){
		func() { l.press("\x1a") },
		func() {
			qt.Check(t, qt.IsNil(l.cmd.Process.Signal(syscall.SIGSTOP)))
			qt.Check(t, qt.IsNil(l.cmd.Process.Signal(syscall.SIGCONT)))
		},
	} {
		l.screen.forget()
		stop()
		l.shows("\x1b[?1049h")
		l.shows("gousdt_test:three")
	}
	l.press("q")
	qt.Check(t, qt.Equals(l.wait().status, exitWatched))
}

// Where a terminal has no room for them, bytes are cut as such, not as a text.
// Where the shell ignores that its terminal goes, only reading says so.
func TestLiveTablesEndWithTheirTerminal(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	l := startLiveIn(t, []string{testneeds.Tool(t, "sh", "dash"), "-c", `trap "" HUP; "$0" "$@"; exit $?`},
		p.path, "gousdt_test:three")
	qt.Assert(t, qt.IsNil(l.master.Close()))
	qt.Check(t, qt.Equals(l.wait().status, exitError)) // the tables are not printed
}

func TestBytesAreCutToTheTerminal(t *testing.T) {
	testprog.Parallel(t)
	p := startTarget(t, "target-pie")
	master, slave := openTerminal(t)
	qt.Assert(t, qt.IsNil(unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: 24, Col: 80})))
	r := startPrepared(t, func(cmd *exec.Cmd) { cmd.Stdout = slave }, "--color", "never", "--bytes",
		"0:13,1:13,2:13", "--max-events", "1", p.path, "gousdt_test:strings")
	slave.Close()
	r.await(&r.stderr, "(Ctrl-C ends)")
	p.Fire("strings", 1)
	qt.Assert(t, qt.Equals(r.wait().status, exitWatched))
	text, _ := io.ReadAll(master) // it ends with an error, since nobody has the other end
	qt.Check(t, qt.Matches(string(text), `(?s).* arg0=68 65 6c \.\.\. arg1=.*`))
}
