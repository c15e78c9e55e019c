// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// createAggregations makes the maps of all aggregations.
func (s *Session) createAggregations() error {
	extremes := false
	for i, a := range s.aggregations {
		if err := a.create(i); err != nil {
			return err
		}
		extremes = extremes || a.Min || a.Max
	}
	for _, l := range s.latencies {
		var err error
		if l.starts, err = ebpf.NewMap(&ebpf.MapSpec{
			// The oldest starts make room for new ones: threads and objects end
			// without a probe.
			Name: "trace_starts", Type: ebpf.LRUHash, KeySize: 16, ValueSize: 8, MaxEntries: uint32(l.maxStarts),
		}); err != nil {
			return explain("creating the map of starts", err)
		}
		l.Starts = l.starts.FD()
	}
	if extremes {
		var err error
		if s.plan.Kernel.CompareExchange, err = hasCompareExchange(); err != nil {
			return explain("asking for atomic compare and exchange", err)
		}
	}
	return nil
}

func (a *aggregation) create(number int) error {
	spec := &ebpf.MapSpec{Name: fmt.Sprintf("trace_rows%d", number), ValueSize: uint32(a.ValueSize())}
	if len(a.Keys) == 0 {
		spec.Type, spec.KeySize, spec.MaxEntries = ebpf.PerCPUArray, 4, uint32(a.Entries())
	} else {
		_, size := a.KeyLayout()
		spec.Type, spec.KeySize, spec.MaxEntries = ebpf.PerCPUHash, uint32(size), uint32(a.maxKeys)
	}
	var err error
	if a.accumulators, err = ebpf.NewMap(spec); err != nil {
		return explain("creating the map of an aggregation", err)
	}
	a.Map = a.accumulators.FD()
	if !a.by(expr.Stack) {
		return nil
	}
	if a.stacks, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_stacks", Type: ebpf.StackTrace, KeySize: 4, ValueSize: 8 * maxStackDepth, MaxEntries: uint32(a.maxKeys),
	}); err != nil {
		return explain("creating the map of stacks", err)
	}
	a.Stacks = a.stacks.FD()
	return nil
}

// by reports whether a key comes from this source.
func (a *aggregation) by(source expr.Source) bool {
	return slices.ContainsFunc(a.Keys, func(t expr.Term) bool { return t.Source == source })
}

// hasCompareExchange reports whether the kernel supports BPF_CMPXCHG. It loads
// a program that uses it.
func hasCompareExchange() (bool, error) {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "trace_cmpxchg", Type: ebpf.Kprobe, License: license,
		Instructions: bpfgen.CompareExchangeProbe(),
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		// An older kernel answers EINVAL, and ENOTSUPP (524) if its
		// just-in-time compiler does not support the operation.
		if errors.Is(err, unix.EINVAL) || errors.Is(err, errNotSupported) {
			return false, nil
		}
		return false, err
	}
	return true, prog.Close()
}

// errNotSupported is the kernel's ENOTSUPP, which is no error of POSIX and has
// no name in user space.
const errNotSupported = unix.Errno(524)

// nameTable numbers the texts that are keys. A number is never used for another
// text, because a map may contain it.
type nameTable struct {
	mu      sync.Mutex
	numbers map[string]uint32
	names   []string
}

func (t *nameTable) number(name string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[name]
	if !ok {
		if t.numbers == nil {
			t.numbers = make(map[string]uint32)
		}
		n = uint32(len(t.names))
		t.numbers[name] = n
		t.names = append(t.names, name)
	}
	return n
}

func (t *nameTable) name(number uint64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number >= uint64(len(t.names)) {
		return ""
	}
	return t.names[number]
}
