// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// answerDeadline is how long a program may take to answer one command. It is
// long enough for an emulated machine that passes a probe thousands of times.
const answerDeadline = 60 * time.Second

// Process is a running traced program. Its methods end the test when the
// program does not do what it is asked to, so they belong on the test's own
// goroutine; [Process.Command] may be called from any, one at a time.
type Process struct {
	// PID as this process sees it.
	PID int

	t       testing.TB
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan string
	errs    strings.Builder
	stopped bool
}

// Start runs a program of [Path], or any other by its absolute path that speaks
// the protocol of internal/testdata/README.md. The end of the test kills it.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = Path(t, name)
	}
	return StartCommand(t, exec.Command(name, args...))
}

// StartCommand is [Start] for a command prepared by the caller: in a namespace,
// as another user, with another environment. It sets the command's standard
// input, output and error. When it returns, the program runs.
func StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, answers: make(chan string)}
	var err error
	p.stdin, err = cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = &p.errs
	start := cmd.Start
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		start = func() error { return onLastingThread(t, cmd.Start) }
	}
	qt.Assert(t, qt.IsNil(start()), qt.Commentf("start the traced program"))
	p.PID = cmd.Process.Pid
	go func() {
		defer close(p.answers)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.answers <- lines.Text()
		}
	}()
	t.Cleanup(p.Kill)
	// Until the program answers it may still be loaded: os/exec returns before
	// its files are mapped. What it answers does not matter.
	_, _ = p.Command("pid")
	return p
}

// onLastingThread calls a function on a thread that does nothing else until the
// end of the test. A child gets its parent-death signal when the thread that
// started it ends, and a thread that waits for a file does not end.
func onLastingThread(t testing.TB, f func() error) error {
	result, ended := make(chan error), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		result <- f()
		<-ended
	}()
	return <-result
}

// Command sends one line and returns what the program answers after "ok", or as
// an error what it answers instead.
func (p *Process) Command(line string) (string, error) {
	_, err := fmt.Fprintln(p.stdin, line)
	answer := ""
	if err == nil {
		answer, err = p.answer()
	}
	if err != nil {
		return "", fmt.Errorf("command %q: %w", line, err)
	}
	text, ok := strings.CutPrefix(answer, "ok")
	if !ok {
		return "", fmt.Errorf("command %q: the program answers %q", line, answer)
	}
	return strings.TrimSpace(text), nil
}

func (p *Process) answer() (string, error) {
	select {
	case answer, ok := <-p.answers:
		if !ok {
			return "", cmp.Or(p.end(), errors.New("the program ended"))
		}
		return answer, nil
	case <-time.After(testneeds.Patience(answerDeadline)):
		return "", fmt.Errorf("no answer in %v or more: %w", answerDeadline, os.ErrDeadlineExceeded)
	}
}

// end closes the program's input, waits for it and returns how it died. A
// tracer that damages the program makes it die of a signal.
func (p *Process) end() error {
	p.stopped = true
	p.stdin.Close()
	kill := time.AfterFunc(testneeds.Patience(answerDeadline), func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.answers {
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the program ended: %w %s", err, &p.errs)
	}
	return nil
}

// must is [Process.Command], and ends the test without an answer.
func (p *Process) must(format string, args ...any) []string {
	p.t.Helper()
	answer, err := p.Command(fmt.Sprintf(format, args...))
	qt.Assert(p.t, qt.IsNil(err))
	return strings.Fields(answer)
}

// numbers is must for answers that end in numbers after their first words.
func (p *Process) numbers(words int, format string, args ...any) (numbers []int) {
	p.t.Helper()
	for _, field := range p.must(format, args...)[words:] {
		n, err := strconv.Atoi(field)
		qt.Assert(p.t, qt.IsNil(err))
		numbers = append(numbers, n)
	}
	return numbers
}

// Do sends commands: "load PATH" and "unload", "exec", "leave", "list" and
// others of internal/testdata/README.md.
func (p *Process) Do(commands ...string) {
	p.t.Helper()
	for _, command := range commands {
		p.must("%s", command)
	}
}

// Fire passes every site of a group n times, on the program's main thread. When
// it returns, the probes have been passed.
func (p *Process) Fire(group string, n int) {
	p.t.Helper()
	p.must("fire %s %d", group, n)
}

// Thread passes every site of a group once in each of n new threads, which all
// live at the same time, and returns their thread IDs.
func (p *Process) Thread(group string, n int) []int {
	p.t.Helper()
	return p.numbers(2, "thread %s %d", group, n)
}

// Fork passes every site of a group n times in a child process and returns the
// PID that the child had. The child has ended by then.
func (p *Process) Fork(group string, n int) int {
	p.t.Helper()
	return p.numbers(2, "fork %s %d", group, n)[0]
}

// Semaphores returns what the program finds in the semaphores of a group, in
// the order of its sites; nothing if it has none.
func (p *Process) Semaphores(group string) []int {
	p.t.Helper()
	return p.numbers(1, "sem %s", group)
}

// Semaphore is [Process.Semaphores] for a group that has exactly one.
func (p *Process) Semaphore(group string) int {
	p.t.Helper()
	values := p.Semaphores(group)
	qt.Assert(p.t, qt.HasLen(values, 1))
	return values[0]
}

// Exec makes the process execute its program anew: the PID stays, everything
// that was mapped is mapped again elsewhere. It returns when the new program
// runs.
func (p *Process) Exec() {
	p.t.Helper()
	p.Do("exec", "pid")
}

// Stop ends the program by closing its input, and waits for it. It fails the
// test if the program ends with an error: then something has damaged it.
func (p *Process) Stop() {
	p.t.Helper()
	if p.stopped {
		return
	}
	if err := p.end(); err != nil {
		p.t.Error(err)
	}
}

// Kill ends the program at once, and waits for it. After [Process.Stop] or
// another Kill it does nothing.
func (p *Process) Kill() {
	if p.stopped {
		return
	}
	p.cmd.Process.Kill()
	_ = p.end() // it was killed
	if p.t.Failed() && p.errs.Len() > 0 {
		p.t.Logf("the traced program wrote: %s", &p.errs)
	}
}

// RequireBPF skips a test where this process may not load a tracing program,
// and fails it in continuous integration. Any other error than a missing
// permission fails it, too. On machines with 32 bits it skips every test. Below
// Linux 5.11 it lifts the limit on locked memory that BPF maps count against.
func RequireBPF(t testing.TB) {
	t.Helper()
	testneeds.Only(t, "traced programs are those of machines with 64 bits", "amd64", "arm64",
		"loong64", "ppc64le", "riscv64", "s390x")
	switch err := canLoad(); {
	case errors.Is(err, os.ErrPermission):
		testneeds.Missing(t, "needs to load BPF programs (root, or CAP_BPF and CAP_PERFMON): %v",
			err)
	case err != nil:
		t.Fatalf("loading a BPF program: %v", err)
	}
}

// HoldSite attaches a program to a place of a file without a semaphore, as
// another tracer would, until the end of the test or Close.
func HoldSite(t testing.TB, path string, offset uint64) io.Closer {
	t.Helper()
	program, err := emptyProgram()
	qt.Assert(t, qt.IsNil(err))
	defer program.Close()
	executable, err := link.OpenExecutable(path)
	qt.Assert(t, qt.IsNil(err))
	held, err := executable.Uprobe("x", program, &link.UprobeOptions{Address: offset})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { held.Close() })
	return held
}

// RequireStacks skips a test where the kernel walks no user stacks: on s390x it
// does from Linux 6.7 on (its commit 504b73d00a55).
func RequireStacks(t testing.TB) {
	t.Helper()
	if runtime.GOARCH == "s390x" {
		testneeds.Kernel(t, "6.7", "user stacks on s390x")
	}
}

var canLoad = sync.OnceValue(func() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	program, err := emptyProgram()
	if err != nil {
		return err
	}
	return program.Close()
})

func emptyProgram() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "testprog_probe", Type: ebpf.Kprobe,
		License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
}

// Tracefs is where [InPrivateMounts] mounts tracefs.
const Tracefs = "/sys/kernel/tracing"

// InPrivateMounts runs a test again as a process with its own mount namespace,
// in which tracefs is mounted, and reports whether this is that process. A test
// begins with
//
//	if !testprog.InPrivateMounts(t) {
//		return
//	}
func InPrivateMounts(t *testing.T) bool {
	t.Helper()
	RequireBPF(t)
	testneeds.Root(t)
	if !inProcess(t, "GOUSDT_TEST_PRIVATE_MOUNTS", syscall.CLONE_NEWNS) {
		return false
	}
	TakeTurn(t, tracefsEvents)
	qt.Assert(t, qt.IsNil(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")))
	if err := unix.Mount("none", Tracefs, "tracefs", 0, ""); err != nil {
		qt.Assert(t, qt.ErrorIs(err, unix.EBUSY)) // mounted already
	}
	return true
}

// inProcess reports whether this is a process that runs the test alone, and
// starts one if it is not.
func inProcess(t *testing.T, variable string, unshared uintptr) bool {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		return true
	}
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	run := "-test.run=^" + t.Name() + "$"
	if _, subtests, some := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); some {
		run += "/" + subtests
	}
	cmd := exec.Command(self, run, "-test.v")
	if deadline, ok := t.Deadline(); ok {
		// The child ends before this test.
		cmd.Args = append(cmd.Args, "-test.timeout="+(time.Until(deadline)*9/10).String())
	}
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unshared}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	qt.Assert(t, qt.IsNil(err))
	testneeds.Again(t, string(out))
	qt.Assert(t, qt.StringContains(string(out), "--- PASS: "+t.Name()))
	return false
}

// SharedEvents returns the events in tracefs that sites share, and the places
// of each, without those of tracers that others run: all see the same tracefs.
// It needs [InPrivateMounts].
func SharedEvents(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Tracefs, "uprobe_events"))
	qt.Assert(t, qt.IsNil(err))
	events := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		name, place, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if name, ok := strings.CutPrefix(name, "p:"+attaching.EventGroup+"/"); ok && !isForeign(name) {
			events[name] = append(events[name], place)
		}
	}
	return events
}

// isForeign reports whether an event is of a running process that is neither
// this one nor started by it.
func isForeign(event string) bool {
	var pid int
	_, err := fmt.Sscanf(event, "p%d_", &pid)
	for isParent := false; err == nil && pid != os.Getpid(); isParent = true {
		if pid <= 1 {
			return isParent
		}
		var status []byte
		status, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
		_, parent, _ := strings.Cut(string(status), "\nPPid:")
		fmt.Sscan(parent, &pid)
	}
	return false
}

// AllowLockedMemory makes the call that raises the limit on locked memory
// succeed without effect, if CAP_SYS_RESOURCE is missing. The profiler insists
// on it, and kernels since 5.11 do not need it. It lasts until this process
// ends.
func AllowLockedMemory() error {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil); !errors.Is(err, unix.EPERM) {
		return err
	}
	const number, resource = 0, 16 + 8 // in struct seccomp_data: the call, and its second argument
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRLIMIT64, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: resource},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.RLIMIT_MEMLOCK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO}, // 0: it has succeeded
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// Printed runs an example, and returns what it has printed. When it prints a
// line that begins with during, meet is called; "" is no line.
func Printed(t *testing.T, example func(), during string, meet func()) string {
	t.Helper()
	// The signal that ends an example must not end the test if it comes
	// late.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)

	stdout := os.Stdout
	read, write, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer read.Close()
	os.Stdout = write
	go func() {
		defer write.Close()
		example()
	}()
	var printed strings.Builder
	lines := bufio.NewReader(read)
	for met := false; ; {
		line, err := lines.ReadString('\n')
		printed.WriteString(line)
		if err == io.EOF {
			break
		}
		qt.Check(t, qt.IsNil(err))
		if !met && during != "" && strings.HasPrefix(line, during) {
			met = true
			meet()
		}
	}
	os.Stdout = stdout
	return printed.String()
}
