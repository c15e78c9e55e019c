// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procmaps"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// callsBefore are the calls that were going on when their probes were attached,
// as variables of the program show: see providers.Call.Open.
type callsBefore struct {
	mu    sync.Mutex
	calls []callBefore
}

type callBefore struct {
	pid     int
	latency *latency
	site    *Site // some start of such calls
	program *programVariables
	bias    uint64 // from addresses in the file to those in the process

	argument, stamp uint64        // its first argument and its start, as the program has them
	began           time.Duration // of the monotonic clock: the start, or the first look at it
}

// programVariables are those of a file that say whether a call goes on.
type programVariables struct {
	condition *expr.Node
	symbols   map[string]elf.Symbol // of the variables
	argument  string                // the variable that is the first argument
	getter    uint64                // the address of a function that returns when the call began, or 0
	machine   elf.Machine
}

// beforePatience is how long is waited for the memory of processes, which these
// can make wait. maxBefore bounds the calls that are known.
const (
	beforePatience = time.Second
	maxBefore      = 4096
)

// lookBefore looks at each process that an attachment is for, once.
func (s *Session) lookBefore(a *Attachment, w *work) {
	for _, l := range s.latencies {
		site := slices.IndexFunc(w.sites, func(site *Site) bool {
			return site.call != nil && l.call != nil && site.Provider == l.call.Provider &&
				site.call.Start.Name == l.call.Name+"__start"
		})
		file := w.elf.OSFile()
		if site < 0 || file == nil || len(l.call.Open) == 0 || len(l.call.Arguments) == 0 ||
			s.plan.Family != 0 || len(l.Conditions) > 0 {
			continue
		}
		open := l.call.Open[0]
		v := &programVariables{symbols: make(map[string]elf.Symbol), machine: w.elf.Header().Machine}
		v.argument, _ = (&expr.Term{Name: l.call.Arguments[0].Value}).Global()
		node, err := expr.ParseCondition(open.If, s.opts.names(), nil)
		find := func(name string) {
			symbol, err2 := w.elf.Symbol(name)
			v.symbols[name], err = symbol, cmp.Or(err, err2)
		}
		node.Walk(func(t *expr.Term) {
			if name, ok := t.Global(); ok {
				find(name)
			}
		})
		if find(v.argument); err != nil || w.elf.Header().Class != elf.ELFCLASS64 {
			continue // of another version
		}
		v.condition = node
		if symbol, err := w.elf.Symbol(open.Name); err == nil {
			v.getter = symbol.Value
		}
		own, err := procmaps.IdentifyFile(file)
		pids := []int{a.process.PID}
		if a.process.PID == 0 && err == nil {
			pids, err = procfs.NewFS("").PIDs()
		}
		if err != nil {
			continue
		}
		deadline.One(context.Background(), beforePatience, func() {
			for _, pid := range pids {
				s.before.lookAt(callBefore{pid: pid, latency: l, site: w.sites[site], program: v}, own)
			}
		}, nil)
	}
}

// lookAt adds the call that a process is in, if it maps the file.
func (b *callsBefore) lookAt(c callBefore, own procmaps.FileID) {
	files, _ := procmaps.Files(procfs.NewFS(""), c.pid)
	for _, file := range files {
		if id, err := file.ID(); err != nil || id != own {
			continue
		}
		for _, m := range file.Mappings {
			if c.site.Offset < m.Offset || c.site.Offset-m.Offset >= m.End-m.Start {
				continue
			}
			c.bias = m.Start + c.site.Offset - m.Offset - c.site.Location
			now, ok := readClocks()
			if argument, stamp, _, open := c.look(); open && ok {
				c.argument, c.stamp, c.began = argument, stamp, now.monotonic
				if stamp != 0 {
					c.began = time.Duration(int64(stamp)*1000 + timestampEpoch - now.wall)
				}
				b.mu.Lock()
				if len(b.calls) < maxBefore {
					b.calls = append(b.calls, c)
				}
				b.mu.Unlock()
			}
			return
		}
	}
}

// timestampEpoch is 2000-01-01 in nanoseconds of the wall clock.
const timestampEpoch = 946_684_800 * int64(time.Second)

// look reads the memory of the process: whether a call goes on there, its first
// argument with the text that it points to, and when the call began, 0 if that
// is not known.
func (c *callBefore) look() (argument, stamp uint64, text []byte, open bool) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.pid))
	if err != nil {
		return 0, 0, nil, false
	}
	defer memory.Close()
	v := c.program
	readable := true
	read := func(address uint64, size uint64) uint64 {
		var word [8]byte
		_, err := memory.ReadAt(word[:min(size, 8)], int64(address))
		readable = readable && err == nil
		return binary.LittleEndian.Uint64(word[:])
	}
	variable := func(name string) uint64 {
		return read(c.bias+v.symbols[name].Value, v.symbols[name].Size)
	}
	open = holds(v.condition, variable)
	argument = variable(v.argument)
	if !readable || !open {
		return 0, 0, nil, false
	}
	if v.getter != 0 {
		var code [16]byte
		if _, err := memory.ReadAt(code[:], int64(c.bias+v.getter)); err == nil {
			if at := returned(v.machine, c.bias+v.getter, code[:]); at != 0 {
				stamp = read(at, 8)
			}
		}
	}
	text = make([]byte, 1<<10)
	n, _ := memory.ReadAt(text, int64(argument))
	return argument, stamp, text[:n], readable
}

// holds reports whether a condition on variables holds.
func holds(n *expr.Node, variable func(name string) uint64) bool {
	switch n.Op {
	case expr.Not:
		return !holds(n.Nodes[0], variable)
	case expr.And, expr.Or:
		for _, part := range n.Nodes {
			if holds(part, variable) == (n.Op == expr.Or) {
				return n.Op == expr.Or
			}
		}
		return n.Op == expr.And
	}
	name, ok := n.Left.Global()
	return ok && n.Right.Source == expr.Number &&
		n.Op.Holds(expr.Uint(variable(name)).Compare(n.Right.Number))
}

// returned returns the address of the variable that a function returns, which
// does nothing else, by its code: so it is known also if the variable has no
// symbol. It returns 0 for another function.
func returned(machine elf.Machine, at uint64, code []byte) uint64 {
	order := binary.LittleEndian
	switch machine {
	case elf.EM_X86_64:
		endbr := []byte{0xf3, 0x0f, 0x1e, 0xfa}
		if bytes.HasPrefix(code, endbr) {
			at, code = at+4, code[4:]
		}
		if bytes.HasPrefix(code, []byte{0x48, 0x8b, 0x05}) && code[7] == 0xc3 { // MOV disp32(RIP), RAX; RET
			return at + 7 + uint64(int64(int32(order.Uint32(code[3:]))))
		}
	case elf.EM_AARCH64:
		page, load := order.Uint32(code), order.Uint32(code[4:])
		if page&0x9f00001f == 0x90000000 && load&0xffc003ff == 0xf9400000 &&
			order.Uint32(code[8:]) == 0xd65f03c0 {
			// ADRP X0; LDR X0, [X0, #n]; RET
			distance := int64(int32(page<<8)>>13)<<2 | int64(page>>29&3)
			return at&^0xfff + uint64(distance<<12) + uint64(load>>10&0xfff)*8
		}
	}
	return 0
}

// open returns the calls of before that still go on, and forgets the others.
func (b *callsBefore) open(s *Session, longer time.Duration) (open []*Event) {
	b.mu.Lock()
	calls := b.calls
	b.mu.Unlock()
	now, ok := readClocks()
	if !ok || len(calls) == 0 {
		return nil
	}
	var over []callBefore
	if !deadline.One(context.Background(), beforePatience, func() {
		for _, c := range calls {
			argument, stamp, text, going := c.look()
			duration := now.monotonic - c.began
			switch {
			case !going || argument != c.argument || stamp != c.stamp:
				over = append(over, c)
			case duration > longer && s.mayCount(c.latency, &bpfgen.OpenCall{}, duration):
				open = append(open, c.event(text, duration, now.wall))
			}
		}
	}, nil) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = slices.DeleteFunc(slices.Clone(b.calls),
		func(c callBefore) bool { return slices.Contains(over, c) })
	return open
}

func (c *callBefore) event(text []byte, duration time.Duration, wall int64) *Event {
	start := &Event{Monotonic: c.began, Time: time.Unix(0, int64(c.began)+wall), CPU: -1, Weight: 1,
		Probe: c.site.call.Start.Provider + ":" + c.site.call.Start.Name, PID: c.pid, TID: c.pid}
	start.Command, _ = commandSince(c.pid, 0, c.began)
	if c.latency.Spans {
		text, _, isWhole := bytes.Cut(text, []byte{0})
		start.Site = &Site{File: c.site.File, siteKind: c.site.siteKind}
		start.Site.Provider, start.Site.Name = c.site.call.Start.Provider, c.site.call.Start.Name
		query := ValueOf(c.argument)
		query.text = true
		if query.setData(text, dataComplete); !isWhole {
			query.dataState = dataTruncated
		}
		start.Args = []Value{query}
		for range c.site.own - 1 {
			start.Args = append(start.Args, Value{valueForm: valueForm{state: valueUnreadable}})
		}
	}
	return &Event{call: c.site.call, Start: start, Duration: duration}
}
