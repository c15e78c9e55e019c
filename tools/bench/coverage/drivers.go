// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	tetragon "github.com/cilium/tetragon/pkg/elf"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// A reply is what a driver answers to a path: one line of JSON.
type reply struct {
	Sites []site `json:"sites"`
	Error string `json:"error,omitempty"` // the whole file is refused
	Panic string `json:"panic,omitempty"`
}

type site struct {
	Provider  string     `json:"provider"`
	Name      string     `json:"name"`
	Offset    uint64     `json:"offset"`
	Semaphore uint64     `json:"semaphore"`      // offset in the file, or 0
	Args      []argument `json:"args,omitempty"` // null: the project's Go code does not decode them
}

// An argument is in the numbers that an eBPF program calculates with.
type argument struct {
	Kind            string `json:"kind"` // constant, register, memory, address, bytes or none
	Size            int    `json:"size"`
	Signed          bool   `json:"signed,omitempty"`
	Value           uint64 `json:"value"` // the constant or the displacement
	Register, Index int16  // offsets in struct pt_regs, or -1
	Scale           uint8  `json:"scale,omitempty"` // bits that the index is shifted to the left
	Shift           uint8  `json:"shift,omitempty"` // bits that the register is shifted to the right
	IndexSize       int8   `json:"index_size,omitempty"`
	Address32       bool   `json:"address32,omitempty"`
}

// A project is a driver with what is known of it.
type project struct {
	name, version string
	command       []string // empty: not run
}

// drivers returns the projects that are built in, the executables of a
// directory, and the projects that neither has.
func drivers(directory string) ([]project, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []project{{"gousdt", "this checkout", []string{self, "-serve", "gousdt"}},
		{"tetragon", tetragonVersion(), []string{self, "-serve", "tetragon"}}}
	for _, name := range []string{"parca-usdt", "inspektor-gadget", "obi"} {
		p := project{name: name}
		path := filepath.Join(directory, name)
		if info, err := os.Stat(path); directory != "" && err == nil && info.Mode()&0o111 != 0 {
			p.command = []string{path}
			version, _ := exec.Command(path, "-version").Output()
			p.version = strings.TrimSpace(string(version))
		}
		all = append(all, p)
	}
	return all, nil
}

// serve answers each path of standard input.
func serve(name string) error {
	list := listOurs
	switch name {
	case "gousdt":
	case "tetragon":
		list = listTetragon
	default:
		return fmt.Errorf("no driver %q", name)
	}
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := out.Encode(answer(list, in.Text())); err != nil {
			return err
		}
	}
	return in.Err()
}

func answer(list func(path string) ([]site, error), path string) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			r = reply{Panic: fmt.Sprint(p)}
		}
	}()
	sites, err := list(path)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Sites: sites}
}

// mostMemory is how much a driver may have, in KiB: beyond that it ends.
const mostMemory = 4 << 20

// patience is how long a driver may take for one file.
const patience = 20 * time.Second

// A runner asks a driver, and starts it again if it ends.
type runner struct {
	project project
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	peak    int64 // resident memory in KiB
}

func (r *runner) start() (err error) {
	limited := []string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, mostMemory), "sh"}
	r.process = exec.Command("sh", append(limited, r.project.command...)...)
	r.process.Stderr = io.Discard
	if r.in, err = r.process.StdinPipe(); err != nil {
		return err
	}
	out, err := r.process.StdoutPipe()
	if err != nil {
		return err
	}
	r.out = bufio.NewReader(out)
	return r.process.Start()
}

// ask returns the answer for a file. A process that ends or takes too long
// counts as a panic.
func (r *runner) ask(path string) (answer reply, err error) {
	if r.process == nil {
		if err := r.start(); err != nil {
			return reply{}, err
		}
	}
	late := time.AfterFunc(patience, func() { r.process.Process.Kill() })
	_, failed := fmt.Fprintln(r.in, path)
	line, ended := r.out.ReadBytes('\n')
	late.Stop()
	if failed != nil || ended != nil {
		return reply{Panic: "the process has ended"}, r.stop()
	}
	return answer, json.Unmarshal(line, &answer)
}

// stop ends the driver and notes how much memory it has had.
func (r *runner) stop() error {
	if r.process == nil {
		return nil
	}
	r.in.Close()
	io.Copy(io.Discard, r.out)
	err := r.process.Wait()
	if usage, ok := r.process.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.peak = max(r.peak, usage.Maxrss)
	}
	r.process = nil
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

func listOurs(path string) ([]site, error) {
	file, err := elfnote.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	kernel := file.Header().Machine
	if kernel == elf.EM_386 {
		kernel = elf.EM_X86_64
	}
	var sites []site
	for s, err := range file.Sites() {
		if err != nil {
			continue
		}
		found := site{Provider: s.Provider, Name: s.Name, Offset: s.Offset, Semaphore: s.SemaphoreOffset,
			Args: []argument{}}
		for _, arg := range argspec.Decode(nil, file, s.Location, s.Arguments) {
			found.Args = append(found.Args, ourArgument(&arg, kernel))
		}
		sites = append(sites, found)
	}
	return sites, nil
}

func ourArgument(arg *argspec.Arg, kernel elf.Machine) argument {
	where, err := arg.Encode(kernel)
	if err != nil {
		return argument{Kind: "none"}
	}
	return argument{Kind: arg.Kind.String(), Size: arg.Size, Signed: arg.Signed, Value: where.Value,
		Register: where.Register, Index: where.Index, Scale: where.Scale, Shift: where.Shift,
		IndexSize: arg.IndexSize, Address32: arg.Address32}
}

func tetragonVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/cilium/tetragon" {
			return dependency.Version
		}
	}
	return ""
}

// listTetragon lists a file as tetragon does. Its Go code is for the host's
// machine. Type NONE is what it leaves if it could not parse an argument.
func listTetragon(path string) ([]site, error) {
	file, err := tetragon.OpenSafeELFFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	targets, err := file.UsdtTargets()
	if err != nil {
		return nil, err
	}
	var sites []site
	for _, t := range targets {
		s := site{Provider: t.Spec.Provider, Name: t.Spec.Name, Offset: t.IpRel, Semaphore: t.SemaOff,
			Args: []argument{}}
		for _, arg := range t.Spec.Args[:t.Spec.ArgsCnt] {
			a := argument{Kind: "none", Size: arg.Size, Signed: arg.Signed, Value: arg.ValOff,
				Register: -1, Index: -1}
			switch arg.Type {
			case tetragon.USDT_ARG_TYPE_CONST:
				a.Kind = "constant"
			case tetragon.USDT_ARG_TYPE_REG:
				a.Kind, a.Register = "register", int16(arg.RegOff)
			case tetragon.USDT_ARG_TYPE_REG_DEREF:
				a.Kind, a.Register = "memory", int16(arg.RegOff)
			case tetragon.USDT_ARG_TYPE_SIB:
				a.Kind, a.Register = "memory", int16(arg.RegOff)
				a.Index, a.Scale = int16(arg.RegIdxOff), arg.Scale
			}
			s.Args = append(s.Args, a)
		}
		sites = append(sites, s)
	}
	return sites, nil
}
