// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// license is what the kernel requires of programs that read the memory of
// processes.
const license = "Dual BSD/GPL"

// program is loaded code. Attachments that need the same code share it: those
// of one file in many processes.
type program struct {
	*ebpf.Program
	key  string
	refs int
}

// programCache keeps the programs of a session while something uses them.
type programCache struct {
	template ebpf.ProgramSpec

	mu     sync.Mutex
	loaded map[string]*program
}

// acquire loads a program, or returns a loaded one with the same code. The
// caller must release it.
func (c *programCache) acquire(generated *bpfgen.Program, name string) (*program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := generated.Fingerprint()
	if p := c.loaded[key]; p != nil {
		p.refs++
		return p, nil
	}
	spec := c.template
	spec.Name, spec.Instructions = name, generated.Instructions
	prog, err := ebpf.NewProgram(&spec)
	if err != nil {
		return nil, explain(fmt.Sprintf("loading the program %s", name), err)
	}
	if c.loaded == nil {
		c.loaded = make(map[string]*program)
	}
	p := &program{Program: prog, key: key, refs: 1}
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
	return p.Close()
}

// programTemplate is all of a program but its name and its instructions.
func programTemplate(mode usdt.Mode) ebpf.ProgramSpec {
	spec := ebpf.ProgramSpec{Type: ebpf.Kprobe, License: license}
	if mode == usdt.ModeMulti {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	return spec
}

// all returns clones of the programs that are loaded. The caller must close
// them.
func (c *programCache) all() []*ebpf.Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*ebpf.Program
	for _, p := range c.loaded {
		if clone, err := p.Clone(); err == nil {
			all = append(all, clone)
		}
	}
	return all
}
