// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// deployed is a program whose builds have their probes in different places. It
// passes one each millisecond. A byte on standard input has it say how often it
// has, and wait for another byte. Then it passes the probe 100 times more, says
// and waits again. It ends with its input, and with a status of its own.
const deployed = `
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/sdt.h>
const char *debug_query_string = "SELECT 1";
static long run;
__attribute__((noinline)) void tick(volatile int n)
{
#ifdef PADDED
	char room[40];
	memset(room, n, sizeof room);
	n += room[3];
	n *= 5;
	n ^= 0x1234567;
	n ^= 0x1234567;
	n /= 5;
	n -= room[3];
#endif
	DTRACE_PROBE1(postgresql, query__start, debug_query_string);
	DTRACE_PROBE2(gousdt_deployed, tick, n, run);
	DTRACE_PROBE1(postgresql, query__done, debug_query_string);
}
int main(int argc, char **argv)
{
	int n = 0;
	run = argc > 1 ? atol(argv[1]) : 0;
	for (;;) {
		struct pollfd in = { 0, POLLIN, 0 };
		char c;
		if (poll(&in, 1, 1) == 0) {
			tick(n++);
			continue;
		}
		if (read(0, &c, 1) != 1)
			return 7;
		printf("%d\n", n);
		fflush(stdout);
		if (read(0, &c, 1) != 1)
			return 7;
		for (int i = 0; i < 100; i++)
			tick(n++);
		printf("%d\n", n);
		fflush(stdout);
		if (read(0, &c, 1) != 1)
			return 7;
	}
}
`

// DeployedProbe is the probe of the programs of [Deployments]. Its arguments
// are a number that counts up from 0, and that of the run: a PID is used again.
const DeployedProbe = "gousdt_deployed:tick"

// DeployedMore is how often a program passes its probe while its hits are
// counted.
const DeployedMore = 100

// deployedStatus is the status that it ends with.
const deployedStatus = 7

// deployedBuilds are the compiler's options for the builds.
var deployedBuilds = []string{"-O2", "-O0 -DPADDED", "-O1 -DPADDED", "-O2 -DPADDED -fno-pie -no-pie",
	"-O0 -DPADDED -fstack-protector-all", "-O1", "-O2 -DPADDED -fno-omit-frame-pointer"}

// Hits are those that a tracer has reported, by run.
type Hits struct {
	mu  sync.Mutex
	all map[int]map[int]bool
}

// Add takes a hit of [DeployedProbe].
func (h *Hits) Add(run, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[int]map[int]bool)
	}
	if h.all[run] == nil {
		h.all[run] = make(map[int]bool)
	}
	h.all[run][n] = true
}

// Counted waits until the last of the hits has been reported, if any has. It
// returns how many have, and how many have not since the first one.
func (h *Hits) Counted(run, passed int) (counted, missed int) {
	for until := time.Now().Add(testneeds.Patience(answerDeadline)); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		of := h.all[run]
		n, hasLast := len(of), of[passed-1]
		if n > 0 && passed > 0 {
			missed = passed - n - slices.Min(slices.Collect(maps.Keys(of)))
		}
		h.mu.Unlock()
		if n == 0 || passed == 0 || hasLast && missed <= 0 || time.Now().After(until) {
			return n, missed
		}
	}
}

// A Deployment is how a build takes another one's place.
type Deployment int

const (
	InPlace  Deployment = iota // the old one is stopped, and written over
	ByRename                   // the old one runs meanwhile
	ByLinker                   // likewise; the linker makes the file
)

// Deployments replace programs by other builds of them, again and again, while
// something traces them.
type Deployments struct {
	// Dirs are on the file systems to replace programs on, by name.
	Dirs map[string]string
	// Files is the number of programs on each.
	Files int
	// Ways are taken in turn.
	Ways []Deployment
	// Pause is the longest time, but for one in twenty, from the end of the old
	// program to the writing of the new one, and from that to its start.
	Pause time.Duration
	// Counted returns how many hits of a run are counted so far, and how many
	// are not since the first one. If passed is not 0, the process has passed
	// that many, and passes no more until it returns. Without it nothing traces
	// the programs.
	Counted func(run, passed int) (counted, missed int)

	builds []string
	mu     sync.Mutex
	fates  map[string]*fates
}

// fates are what has become of the deployments on a file system.
type fates struct {
	all          int
	died, silent []string
	wrong        []string        // hits that are not counted after the first one is
	held         []time.Duration // until the file was open for writing
	late         []time.Duration // until a hit of the new program was counted
}

// NewDeployments builds the programs, and mounts the file systems. It needs
// [InPrivateMounts].
func NewDeployments(t testing.TB, files int) *Deployments {
	t.Helper()
	d := &Deployments{Dirs: mountAll(t), Files: files, Ways: []Deployment{InPlace},
		Pause: 500 * time.Millisecond}
	dir := t.TempDir()
	source := filepath.Join(dir, "deployed.c")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(deployed), 0o600)))
	for n, options := range deployedBuilds {
		build := filepath.Join(dir, strconv.Itoa(n))
		out, err := exec.Command(testneeds.Tool(t, "gcc", "gcc"), append(strings.Fields(options),
			"-c", "-o", build+".o", source)...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		qt.Assert(t, qt.IsNil(linkBuild(build, build)))
		d.builds = append(d.builds, build)
	}
	for _, path := range d.Paths() {
		qt.Assert(t, qt.IsNil(copyOver(d.builds[0], path, nil)))
	}
	return d
}

// linkBuild makes a build from its object file, as a compiler's user does.
func linkBuild(build, path string) error {
	options := []string{"-o", path, build + ".o"}
	if n, _ := strconv.Atoi(filepath.Base(build)); strings.Contains(deployedBuilds[n], "-no-pie") {
		options = append(options, "-no-pie")
	}
	out, err := exec.Command("gcc", options...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Paths returns the paths of the programs.
func (d *Deployments) Paths() (paths []string) {
	for _, dir := range d.Dirs {
		for n := range d.Files {
			paths = append(paths, filepath.Join(dir, fmt.Sprint("deployed", n)))
		}
	}
	slices.Sort(paths)
	return paths
}

// Run replaces programs that often, or for that time. It fails the test if a
// program does not end with its own status, is never seen, or has a hit that is
// not counted after another one is. It logs a table.
func (d *Deployments) Run(t testing.TB, name string, count int, long time.Duration) {
	t.Helper()
	d.fates = make(map[string]*fates)
	var running sync.WaitGroup
	var begun atomic.Int64
	end := time.Now().Add(long)
	for kind, dir := range d.Dirs {
		f := &fates{}
		d.fates[kind] = f
		for n := range d.Files {
			running.Go(func() {
				path := filepath.Join(dir, fmt.Sprint("deployed", n))
				p := startDeployed(path)
				for begun.Add(1) <= int64(count) || time.Now().Before(end) {
					p = d.deploy(f, path, p)
				}
				_ = p.end()
			})
		}
	}
	running.Wait()
	total := 0
	for kind, f := range d.fates {
		total += f.all
		for _, bad := range [][]string{f.died, f.silent, f.wrong} {
			for _, text := range bad[:min(len(bad), 10)] {
				t.Errorf("%s, %s: %s", name, kind, text)
			}
		}
		t.Logf("| %s | %s | %d | %d | %d | %d | %s | %s |", name, kind, f.all, len(f.died), len(f.silent),
			len(f.wrong), spread(f.held), spread(f.late))
	}
	qt.Check(t, qt.IsTrue(total >= count))
}

// spread returns the median, the 99th percentile and the maximum.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	ms := func(part float64) int64 { return all[int(part*float64(len(all)-1))].Milliseconds() }
	return fmt.Sprintf("%d / %d / %d ms", ms(0.5), ms(0.99), ms(1))
}

// deploy replaces a running program, and returns the new one.
func (d *Deployments) deploy(f *fates, path string, old *deployedProgram) *deployedProgram {
	d.mu.Lock()
	way, build := d.Ways[f.all%len(d.Ways)], d.builds[rand.IntN(len(d.builds))]
	f.all++
	d.mu.Unlock()
	stop := func() {
		if err := old.end(); err != nil {
			d.note(&f.died, "%v", err)
		}
	}
	pause := func() {
		most := float64(d.Pause)
		if rand.IntN(20) == 0 {
			most *= 6
		}
		time.Sleep(time.Duration(rand.Float64() * most))
	}
	var held time.Duration
	var err error
	switch way {
	case InPlace:
		stop()
		pause()
		err = copyOver(build, path, &held)
	case ByRename:
		if err = copyOver(build, path+".new", nil); err == nil {
			err = os.Rename(path+".new", path)
		}
	case ByLinker:
		err = linkBuild(build, path)
	}
	if err != nil {
		d.note(&f.died, "writing %s: %v", path, err)
	}
	pause()
	if way != InPlace {
		d.check(f, old)
		stop()
	} else {
		d.mu.Lock()
		f.held = append(f.held, held)
		d.mu.Unlock()
	}
	now := startDeployed(path)
	d.check(f, now)
	return now
}

func (d *Deployments) note(to *[]string, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*to = append(*to, time.Now().Format(time.TimeOnly+".000 ")+fmt.Sprintf(format, args...))
}

// check has a program pass its probe, and compares what is counted.
func (d *Deployments) check(f *fates, p *deployedProgram) {
	if d.Counted == nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	began := time.Now()
	for counted := 0; counted == 0; counted, _ = d.Counted(p.run, 0) {
		if p.failed() != nil {
			return // its end is noted
		}
		if time.Since(began) > testneeds.Patience(answerDeadline) {
			d.note(&f.silent, "%s: no hit of process %d is counted", p.path, p.pid)
			return
		}
		time.Sleep(time.Millisecond)
	}
	late := time.Since(began)
	passed, err := p.ask()
	if err != nil {
		return
	}
	before, _ := d.Counted(p.run, passed)
	if passed, err = p.ask(); err != nil {
		return
	}
	counted, missed := d.Counted(p.run, passed)
	if counted != before+DeployedMore || missed != 0 {
		d.note(&f.wrong, "%s: process %d: %d hits are counted, after %d more %d, and %d are not",
			p.path, p.pid, before, DeployedMore, counted, missed)
	}
	_, _ = p.stdin.Write([]byte{'.'}) // it goes on
	d.mu.Lock()
	f.late = append(f.late, late)
	d.mu.Unlock()
}

// copyOver writes to a file as cp does, and says how long that has to wait.
func copyOver(from, to string, held *time.Duration) error {
	contents, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	began := time.Now()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if held != nil {
		*held = time.Since(began)
	}
	_, err = file.Write(contents)
	return errors.Join(err, file.Close())
}

// A deployedProgram runs.
type deployedProgram struct {
	path   string
	pid    int
	run    int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	ended  chan struct{}
	err    error // if it has not started
}

// deployedRuns counts the programs that were started.
var deployedRuns atomic.Int32

func startDeployed(path string) *deployedProgram {
	for {
		run := os.Getpid()*1e6 + int(deployedRuns.Add(1))
		p := &deployedProgram{path: path, run: run, cmd: exec.Command(path, strconv.Itoa(run)),
			ended: make(chan struct{})}
		p.stdin, _ = p.cmd.StdinPipe()
		stdout, _ := p.cmd.StdoutPipe()
		p.stdout = bufio.NewReader(stdout)
		switch p.err = p.cmd.Start(); {
		case errors.Is(p.err, unix.ETXTBSY):
			// A child that is being started still has it open for writing.
			time.Sleep(time.Millisecond)
			continue
		case p.err != nil:
			close(p.ended)
			return p
		}
		p.pid = p.cmd.Process.Pid
		go func() {
			defer close(p.ended)
			_ = p.cmd.Wait() // see status
		}()
		return p
	}
}

// ask returns how often the probe has been passed.
func (p *deployedProgram) ask() (int, error) {
	if _, err := p.stdin.Write([]byte{'.'}); err != nil {
		return 0, err
	}
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// failed returns why a program has ended that should run.
func (p *deployedProgram) failed() error {
	select {
	case <-p.ended:
		return p.status()
	default:
		return nil
	}
}

func (p *deployedProgram) status() error {
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.path, p.err)
	}
	state := p.cmd.ProcessState
	if state.ExitCode() != deployedStatus {
		signal := state.Sys().(syscall.WaitStatus).Signal()
		return fmt.Errorf("%s: process %d ended with status %d, %v", p.path, p.pid, state.ExitCode(), signal)
	}
	return nil
}

// end ends a program. The error says if it does not end with its own status.
func (p *deployedProgram) end() error {
	p.stdin.Close()
	<-p.ended
	return p.status()
}

// mountAll returns a directory of each file system that there is, by its name.
// It needs [InPrivateMounts].
func mountAll(t testing.TB) map[string]string {
	t.Helper()
	dirs := make(map[string]string)
	add := func(kind string, mount func(dir string) error) {
		dir := filepath.Join(t.TempDir(), kind)
		qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o755)))
		if err := mount(dir); err != nil {
			t.Logf("without %s: %v", kind, err)
			return
		}
		t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Unmount(dir, unix.MNT_DETACH))) })
		dirs[kind] = dir
	}
	onImage := func(kind, size string) func(dir string) error {
		make := testneeds.Tool(t, "mkfs."+kind, map[string]string{"btrfs": "btrfs-progs",
			"ext4": "e2fsprogs"}[kind])
		return func(dir string) error {
			image := dir + ".image"
			script := fmt.Sprintf("truncate -s %s %[2]s && %s -q %[2]s && mount -o loop %[2]s %[4]s", size,
				image, make, dir)
			if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	}
	add("ext4", onImage("ext4", "64M"))
	add("btrfs", onImage("btrfs", "128M"))
	add("tmpfs", func(dir string) error { return unix.Mount("none", dir, "tmpfs", 0, "") })
	add("overlay", func(dir string) error {
		lower, upper := t.TempDir(), t.TempDir()
		for n := range 100 {
			path := filepath.Join(lower, fmt.Sprint("deployed", n))
			qt.Assert(t, qt.IsNil(os.WriteFile(path, nil, 0o755)))
		}
		qt.Assert(t, qt.IsNil(os.Mkdir(upper+"/work", 0o755)))
		qt.Assert(t, qt.IsNil(os.Mkdir(upper+"/upper", 0o755)))
		return unix.Mount("overlay", dir, "overlay", 0,
			"lowerdir="+lower+",upperdir="+upper+"/upper,workdir="+upper+"/work")
	})
	return dirs
}
