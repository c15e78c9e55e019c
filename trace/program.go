// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/code"
	"github.com/gousdt/gousdt/usdt"
)

// license is what the kernel requires of programs that read the memory of processes.
const license = "Dual BSD/GPL"

// program is loaded code. Attachments that need the same code share it: those of one file in many processes.
type program struct {
	key    string
	refs   int
	cookie bool // it needs BPF cookies

	programs []*ebpf.Program // the first one is what is attached
	chunks   *ebpf.Map       // the others, nil if there are none
}

func (p *program) entry() *ebpf.Program { return p.programs[0] }

func (p *program) close() error {
	var errs []error
	for _, prog := range p.programs {
		errs = append(errs, prog.Close())
	}
	return errors.Join(append(errs, p.chunks.Close())...)
}

// programCache keeps the programs of a session while something uses them.
type programCache struct {
	template ebpf.ProgramSpec

	mu     sync.Mutex
	loaded map[string]*program
}

// acquire loads a program, or returns one with the same code. Each is to be released once.
func (c *programCache) acquire(blocks *code.Blocks, name string) (*program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := blocks.Fingerprint()
	if p := c.loaded[key]; p != nil {
		p.refs++
		return p, nil
	}
	p := &program{key: key, refs: 1}
	if err := p.load(c.template, blocks, name); err != nil {
		p.close()
		return nil, err
	}
	if c.loaded == nil {
		c.loaded = make(map[string]*program)
	}
	c.loaded[key] = p
	return p, nil
}

func (c *programCache) release(p *program) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.refs--; p.refs > 0 {
		return nil
	}
	delete(c.loaded, p.key)
	return p.close()
}

func (p *program) load(template ebpf.ProgramSpec, blocks *code.Blocks, name string) error {
	all, cookie, err := blocks.Programs(func(programs int) (int, error) {
		if template.Flags&unix.BPF_F_SLEEPABLE != 0 {
			return 0, errors.New("the sites need more than one program, which cannot be with Options.PageIn: attach fewer at a time")
		}
		var err error
		p.chunks, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "trace_programs", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: uint32(programs),
		})
		if err != nil {
			return 0, explain("creating the map of programs", err)
		}
		return p.chunks.FD(), nil
	})
	if err != nil {
		return err
	}
	p.cookie = cookie
	for i, instructions := range all {
		spec := template
		spec.Name, spec.Instructions = name, instructions
		prog, err := ebpf.NewProgram(&spec)
		if err != nil {
			return explain(fmt.Sprintf("loading the program %s", name), err)
		}
		p.programs = append(p.programs, prog)
		if i > 0 {
			if err := p.chunks.Put(uint32(i-1), prog); err != nil {
				return explain("writing the map of programs", err)
			}
		}
	}
	return nil
}

// programTemplate is all of a program but its name and its instructions.
func programTemplate(mode usdt.Mode, sleepable bool) ebpf.ProgramSpec {
	spec := ebpf.ProgramSpec{Type: ebpf.Kprobe, License: license}
	if mode == usdt.ModeMulti {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	if sleepable {
		spec.Flags = unix.BPF_F_SLEEPABLE
	}
	return spec
}

// all returns clones of the programs that are loaded, which the caller is to close.
func (c *programCache) all() []*ebpf.Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*ebpf.Program
	for _, p := range c.loaded {
		for _, prog := range p.programs {
			if clone, err := prog.Clone(); err == nil {
				all = append(all, clone)
			}
		}
	}
	return all
}
