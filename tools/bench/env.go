// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/libbpf"
)

// scale says how much is done.
type scale uint8

const (
	full  scale = iota // for results to publish
	quick              // for a look
	smoke              // to see whether everything works
)

// env is what rows share.
type env struct {
	scale    scale
	dir      string // for files, removed at the end
	cleanups []func()
	tracers  func() (*tracers, error) // attached when the first row needs them
}

func newEnv(s scale) (*env, error) {
	mode, err := usdt.ModeAuto.Resolve()
	if err != nil {
		return nil, err
	}
	if mode != usdt.ModeMulti {
		return nil, &unableError{"this kernel has no uprobe_multi links (Linux 6.6), of which the floors are made"}
	}
	dir, err := os.MkdirTemp("", "gousdt-bench-")
	if err != nil {
		return nil, err
	}
	e := &env{scale: s, dir: dir}
	e.tracers = sync.OnceValues(func() (*tracers, error) { return newTracers(e) })
	e.cleanup(func() { os.RemoveAll(dir) })
	return e, nil
}

// cleanup registers a function for close, which calls the last one first.
func (e *env) cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *env) close() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
	e.cleanups = nil
}

// nested returns an env for one row.
func (e *env) nested() *env { return &env{scale: e.scale, dir: e.dir, tracers: e.tracers} }

// pick returns the number for the scale.
func (e *env) pick(forFull, forQuick, forSmoke int) int {
	return [...]int{full: forFull, quick: forQuick, smoke: forSmoke}[e.scale]
}

// rounds returns how many rounds a row has.
func (e *env) rounds(r row) int { return e.pick(r.rounds, max(3, r.rounds/5), 1) }

// synthetic writes a synthetic file.
func (e *env) synthetic(f syntheticFile) (string, error) {
	file, err := os.CreateTemp(e.dir, "synthetic-*.so")
	if err != nil {
		return "", err
	}
	return file.Name(), errors.Join(file.Close(), f.Write(file.Name()))
}

// start starts a program of peers.
func (e *env) start(name string) (*peer, error) { return e.untilClosed(startPeer(name)) }

// untilClosed registers a program to be ended by close.
func (e *env) untilClosed(p *peer, err error) (*peer, error) {
	if err == nil {
		e.cleanup(func() { p.Close() })
	}
	return p, err
}

// ask makes a Measure of a command that ends in the number of repetitions and
// whose answer begins with the nanoseconds.
func ask(p *peer, words ...any) func(n int) (float64, error) {
	return func(n int) (float64, error) {
		spent, err := p.Number(append(slices.Clone(words), n)...)
		return spent / float64(n), err
	}
}

// goBuild builds a command.
func (e *env) goBuild(name string) (string, error) {
	return e.goTool(name, "../../cmd", "build", "./"+name)
}

// receiver builds the tests of the Collector's receiver, which can be one.
func (e *env) receiver() (string, error) {
	return e.goTool("receiver", "../../otelcol", "test", "-c", "./usdtreceiver")
}

// goTool writes what a command of the go tool makes in the folder of a module.
func (e *env) goTool(name, module, verb string, arguments ...string) (string, error) {
	path := filepath.Join(e.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil // for another row
	}
	linked := path + ".linked"
	cmd := exec.Command("go", append([]string{verb, "-o", linked}, arguments...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as releases are
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: go %s %v: %w: %s", module, verb, arguments, err, out)
	}
	// Go's linker writes through a mapping, which leaves the file in single
	// pages of the cache. A start from those takes a tenth longer than from the
	// large ones of a file that was written as cp and dpkg write.
	program, err := os.ReadFile(linked)
	if err != nil {
		return "", err
	}
	return path, errors.Join(os.WriteFile(path, program, 0o700), os.Remove(linked))
}

// libjvm prefers the distribution's.
func libjvm() (string, error) {
	for _, pattern := range []string{"java-*-openjdk-*", "*"} {
		found, _ := filepath.Glob("/usr/lib/jvm/" + pattern + "/lib/server/libjvm.so")
		if len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	return "", &unableError{"no libjvm.so below /usr/lib/jvm"}
}

// tracer is a Manager with the programs of peers/hit.bpf.c.
type tracer struct {
	*usdt.Manager
	programs map[string]*ebpf.Program
}

// The programs of peers/hit.bpf.c, by the header that they are compiled with.
const (
	ownObject    = "gousdt.bpf.o"
	libbpfObject = "libbpf.bpf.o"
)

// tracer loads the programs that are compiled with this module's header. They
// will send nothing.
func (e *env) tracer() (*tracer, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	object, err := buildPeer(ownObject)
	if err != nil {
		return nil, &unableError{err.Error()}
	}
	spec, err := libbpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 64 << 10
	manager, err := usdt.NewManager(spec, nil)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { manager.Close() })
	options := manager.CollectionOptions()
	collection, err := ebpf.NewCollectionWithOptions(spec, *options)
	if err != nil {
		return nil, err
	}
	e.cleanup(collection.Close)
	return &tracer{Manager: manager, programs: collection.Programs}, nil
}

// libbpf starts libbpf, which loads its programs and says how it would attach
// them. Versions before 1.3 use perf events, which are not compared.
func (e *env) libbpf() (*peer, error) {
	object, err := buildPeer(libbpfObject)
	if err != nil {
		return nil, err
	}
	p, err := e.start("libbpf")
	if err != nil {
		return nil, err
	}
	answer, err := p.Ask("load", object)
	if err == nil && answer[0] != "multi" {
		err = &unableError{"this version has no uprobe_multi links"}
	}
	return p, err
}

// oneProcessor is the last processor that this process may use. Work of
// nanoseconds is measured there for all contestants: the processor that has
// written data decides which caches have it.
func oneProcessor() (*unix.CPUSet, error) {
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for i := range 8 * 1024 {
		if all.IsSet(i) {
			last.Zero()
			last.Set(i)
		}
	}
	return &last, nil
}

// runOn runs work on these processors only.
func runOn(processors *unix.CPUSet, work func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	if err := unix.SchedSetaffinity(0, processors); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return errors.Join(work(),
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &before)))
}

// keepOn keeps another process on these processors.
func keepOn(processors *unix.CPUSet, pid int) error {
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(pid, processors))
}

// A syntheticFile is an ELF file with any number of probes, to be listed and
// attached to. A uprobe needs a file and not a process, so nobody ever runs it.
// Zero fields mean one of each.
type syntheticFile struct {
	Sites int
	// Probes share the sites equally: probe_0 has the first of them. The
	// provider is syntheticProvider.
	Probes int
	// Specs is how many different argument strings there are. Sites take them
	// in turn.
	Specs int
}

// syntheticProvider is the provider of all probes.
const syntheticProvider = "synthetic"

func syntheticProbe(i int) string { return fmt.Sprintf("probe_%d", i) }

// arguments are those of a site, by machine, with the number of the string.
var arguments = map[string]string{
	"amd64": "8@%%rdi -4@%%esi -4@-%d(%%rbp)",
	"arm64": "8@x0 -4@x1 -4@[sp, %d]",
}

// Write writes the file, an ELF64 shared library for the machine that this
// program was built for.
func (f syntheticFile) Write(path string) error {
	format, ok := arguments[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no argument strings of synthetic probes for %s", runtime.GOARCH)
	}
	notes := make([]testprog.Note, max(f.Sites, 1))
	for i := range notes {
		probe := int(int64(i) * int64(max(f.Probes, 1)) / int64(len(notes)))
		notes[i] = testprog.Note{Provider: syntheticProvider, Name: syntheticProbe(probe), Apart: true,
			Arguments: fmt.Sprintf(format, 8*(1+i%max(f.Specs, 1)))}
	}
	return os.WriteFile(path, testprog.NotesFile(notes), 0o644)
}
