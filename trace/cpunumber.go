// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// numberProcessors makes the map from which programs read the number of their
// processor, on a kernel that does not let them call a helper for it.
func (s *Session) numberProcessors() error {
	known, err := hasProcessorID()
	if known || err != nil {
		return err
	}
	if s.processors, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "trace_processor", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	}); err != nil {
		return err
	}
	s.plan.Kernel.Processors = s.processors.FD()
	count, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	numbers := make([]uint64, count)
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	return s.processors.Put(uint32(0), numbers)
}

// hasProcessorID reports whether programs may call bpf_get_smp_processor_id. It
// loads one that does. It is a variable for tests.
var hasProcessorID = func() (bool, error) {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "trace_processor", Type: ebpf.Kprobe, License: license,
		Instructions: bpfgen.ProcessorIDProbe(),
	}, ebpf.ProgramOptions{LogDisabled: true})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, errNotSupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, prog.Close()
}
